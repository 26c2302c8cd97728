"""Environments whose state is in unusual places; at the top of a module, for other processes."""

from __future__ import annotations

import enum
import random
from collections import deque
from dataclasses import dataclass, field

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.utils import EzPickle


class Mood(enum.Enum):
    CALM = 0
    WILD = 1


@dataclass
class Cell:
    value: float
    neighbours: list[Cell] = field(default_factory=list)


CELLS = [Cell(1.0), Cell(2.0)]


class Slotted:
    __slots__ = ("__hidden", "count", "unset")

    def __init__(self):
        self.count, self.__hidden = 0, 0

    def tick(self):
        self.count, self.__hidden = self.count + 1, self.__hidden + self.count
        return self.__hidden


def counter():
    """A function with a variable of its own."""
    count = 0

    def tick():
        nonlocal count
        count += 1
        return count

    return tick


LEVELS = [np.array([1.0, 2.0]), np.array([3.0, 4.0])]


class MazeEnv(EzPickle, gymnasium.Env):
    """Observations are made of all its state; episodes of about 12 steps."""

    observation_space = Box(-np.inf, np.inf, (12,), np.float64)

    def __init__(self, scale: float = 1.0):
        EzPickle.__init__(self, scale)
        self.scale = scale
        self.action_space = Discrete(3)
        self.old = np.random.RandomState(3)
        self.python = random.Random(4)
        self.slotted, self.tick = Slotted(), counter()
        self.total = np.float64(0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.old.seed(seed)
            self.python.seed(seed)
        self.queue = deque([0.0] * 3, maxlen=3)
        cells = [Cell(float(i)) for i in range(int(self.np_random.integers(2, 5)))]
        for i, cell in enumerate(cells):
            cell.neighbours.append(cells[i - 1])  # a ring
        self.cell = cells[0]
        self.grid = np.zeros((3, 4))
        self.row = self.grid[1]  # a view
        self.shared = self.also_shared = [0]
        self.level = LEVELS[int(self.np_random.integers(2))]
        self.mood, self.seen = Mood.CALM, {(-1, i) for i in range(40)}
        self.picked = 0
        self.draw = self.np_random.random  # a method in C
        if hasattr(self, "bonus"):
            del self.bonus
        return self._obs(), {}

    def step(self, action):
        self.queue.append(self.draw() * self.scale)
        self.cell = self.cell.neighbours[0]
        self.cell.value += float(self.old.standard_normal()) + self.python.gauss(0, 1)
        self.row += action
        self.shared.append(self.also_shared[-1] + 1)
        self.seen.add((action, len(self.seen)))
        self.picked = sorted(self.seen).index(list(self.seen)[int(self.draw() * len(self.seen))])
        if self.draw() < 0.3:
            self.seen.discard(next(iter(self.seen)))
        self.mood = Mood.WILD if self.draw() < 0.5 else Mood.CALM
        self.total += self.action_space.sample()
        if self.draw() < 0.2:
            self.bonus = self.slotted.tick() + self.tick()
        return self._obs(), float(self.total), bool(self.draw() < 0.08), False, {}

    def _obs(self):
        values = (*self.queue, self.cell.value, self.grid.sum(), self.also_shared[-1], *self.level, self.mood.value)
        return np.array(
            [*values, len(self.seen), self.picked + self.slotted.count, getattr(self, "bonus", -1)], np.float64
        )


class Smooth(gymnasium.Wrapper):
    """Keeps a running mean of observations."""

    def __init__(self, env):
        super().__init__(env)
        self.mean = np.zeros(12)

    def reset(self, **kwargs):
        obs, info = self.env.reset(**kwargs)
        self.mean = obs.copy()
        return self.mean, info

    def step(self, action):
        obs, *rest = self.env.step(action)
        self.mean *= 0.9
        self.mean += 0.1 * obs
        return self.mean, *rest


@dataclass
class MazeConfig:
    scale: float = 1.0

    def build(self):
        return Smooth(gymnasium.wrappers.TimeLimit(MazeEnv(self.scale), 25))


def steps():
    yield from range(10**6)


class HiddenEnv(gymnasium.Env):
    """Has one more thing."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float64)
    action_space = Discrete(2)

    def __init__(self, kind: str):
        self.kind, self.t = kind, 0
        self.parts = {"deep": [None, None]}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.kind == "generator":
            self.parts["deep"][1] = steps()
        elif self.kind == "module stream":
            self.parts["deep"][1] = np.random
        elif self.kind == "global stream":
            self.parts["deep"][1] = np.random.rand
        elif self.kind == "set of objects":
            self.parts["deep"][1] = {Slotted(), Slotted(), Slotted()}
        elif self.kind == "iterator":
            self.parts["deep"][1] = iter([1, 2])
        elif self.kind == "bytes of others":
            self.parts["deep"][1] = memoryview(b"abc")
        return np.zeros(1), {}

    def step(self, action):
        self.t += 1
        draw = np.random.rand() if self.kind == "unseen global stream" else 0.0
        return np.array([self.t + draw]), 0.0, False, False, {}


@dataclass
class HiddenConfig:
    kind: str

    def build(self):
        return HiddenEnv(self.kind)
