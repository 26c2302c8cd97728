"""Tiny environments and their configs, shared by all tests; everything pickles by name, for worker processes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Sequence, Text, Tuple

from rlcli.core.spec import EnvSpec


def empty_obs(spec: EnvSpec, n_envs: int) -> Any:
    """Zeros for n_envs observations, as a sampler would allocate them."""

    def zeros(leaf: Any) -> Any:
        if isinstance(leaf, dict):
            return {key: zeros(part) for key, part in leaf.items()}
        return np.zeros((n_envs, *leaf.shape), leaf.dtype)

    return zeros(spec.example_obs)


class IndexEnv(gymnasium.Env):
    """obs = (episode from 0, t), reward = t of the step from 1; episode k lasts lengths[k % len(lengths)] steps."""

    action_space = Discrete(3)
    observation_space = Box(0, np.inf, (2,), np.float32)

    def __init__(self, lengths: list[int], truncate: bool) -> None:
        self.lengths, self.truncate = lengths, truncate
        self.episode, self.t = -1, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.episode = -1
        self.episode, self.t = self.episode + 1, 0
        return self._obs(), {}

    def step(self, action):
        self.t += 1
        end = self.t >= self.lengths[self.episode % len(self.lengths)]
        return self._obs(), float(self.t), end and not self.truncate, end and self.truncate, {}

    def _obs(self):
        return np.array([self.episode, self.t], np.float32)


@dataclass
class IndexConfig:
    lengths: list[int] = field(default_factory=lambda: [3, 5, 7])
    truncate: bool = False

    def build(self) -> gymnasium.Env:
        return IndexEnv(self.lengths, self.truncate)


class NoiseEnv(gymnasium.Env):
    """obs, rewards and ends (terminations and truncations) are drawn from the env's own stream and the action."""

    action_space = Discrete(4)
    observation_space = Box(-np.inf, np.inf, (3,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.random(3), {}

    def step(self, action):
        draws = self.np_random.random(3)
        end = self.np_random.random()
        return draws + action, float(draws.sum()), bool(end < 0.1), bool(0.1 <= end < 0.2), {}


@dataclass
class NoiseConfig:
    def build(self) -> gymnasium.Env:
        return NoiseEnv()


class LivesEnv(gymnasium.Env):
    """3 lives of 5 points, 2 in the first step of a life and 1 in the others; told as AtariEnv tells it.

    Rewards are clipped to 1, so a whole game is worth 15 raw and 12 clipped.
    """

    action_space = Discrete(2)
    observation_space = Box(0, 100, (1,), np.float32)
    steps_per_life = 4

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        raw = 2.0 if self.t % self.steps_per_life == 0 else 1.0
        self.t += 1
        lost, over = self.t % self.steps_per_life == 0, self.t == 3 * self.steps_per_life
        info = {"rlcli.raw_reward": raw, "rlcli.life_lost": lost and not over}
        return np.array([self.t], np.float32), 1.0, over, False, info


@dataclass
class LivesConfig:
    def build(self) -> gymnasium.Env:
        return LivesEnv()


class InfoEnv(IndexEnv):
    """Its infos are everything that an info should not be."""

    infos = (
        {},
        {"a": 1},
        {"a": "text", "b": None},
        {"nested": {"x": [1, {"y": object()}]}, 3: "an int key"},
        {"a": np.zeros((2, 2)), "lambda": len},
        None,
    )

    def step(self, action):
        *rest, _ = super().step(action)
        return (*rest, self.infos[self.t % len(self.infos)])


@dataclass
class InfoConfig:
    def build(self) -> gymnasium.Env:
        return InfoEnv([10], False)


class ReuseEnv(IndexEnv):
    """Writes every observation into one and the same array."""

    def __init__(self, lengths: list[int], truncate: bool) -> None:
        super().__init__(lengths, truncate)
        self.array = np.zeros(2, np.float32)

    def _obs(self):
        self.array[:] = self.episode, self.t
        return self.array


@dataclass
class ReuseConfig:
    def build(self) -> gymnasium.Env:
        return ReuseEnv([3], False)


class StartEnv(gymnasium.Env):
    """Actions are 5, 6, 7; obs is the action taken, as a Discrete(10)."""

    action_space = Discrete(3, start=5)
    observation_space = Discrete(10)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        assert self.action_space.contains(action)
        return int(action), 1, False, False, {}


@dataclass
class StartConfig:
    def build(self) -> gymnasium.Env:
        return StartEnv()


class DictEnv(gymnasium.Env):
    """obs = {image uint8 [1, 4, 4], body: {joints float64 [2], step Discrete}}; Box actions, mutated in place."""

    action_space = Box(-2, 2, (2,), np.float32)
    observation_space = Dict(
        {
            "image": Box(0, 255, (1, 4, 4), np.uint8),
            "body": Dict({"joints": Box(-np.inf, np.inf, (2,), np.float64), "step": Discrete(1000)}),
        }
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.joints = 0, np.zeros(2)
        return self._obs(), {}

    def step(self, action):
        self.t += 1
        self.joints = self.joints + action
        action *= 0
        return self._obs(), float(self.joints.sum()), self.t == 6, False, {}

    def _obs(self):
        image = np.full((1, 4, 4), self.t, np.uint8)
        return {"image": image, "body": {"joints": self.joints, "step": self.t}}


@dataclass
class DictConfig:
    def build(self) -> gymnasium.Env:
        return DictEnv()


class TupleEnv(gymnasium.Env):
    """obs = (image uint8 [1, 4, 4], {pair: (joints float32 [2], Discrete(1000))})."""

    observation_space = Tuple(
        [
            Box(0, 255, (1, 4, 4), np.uint8),
            Dict({"pair": Tuple([Box(-np.inf, np.inf, (2,), np.float32), Discrete(1000)])}),
        ]
    )
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._obs(), {}

    def step(self, action):
        self.t += 1
        return self._obs(), 1.0, self.t == 6, False, {}

    def _obs(self):
        pair = [np.full(2, -self.t, np.float32), self.t]  # a list does as well
        return np.full((1, 4, 4), self.t, np.uint8), {"pair": pair}


@dataclass
class TupleConfig:
    def build(self) -> gymnasium.Env:
        return TupleEnv()


ACTION_SPACES = {
    "discrete": Discrete(3, start=5),
    "multi_discrete": MultiDiscrete([2, 3], dtype=np.int32, start=[1, -1]),
    "multi_discrete of two dimensions": MultiDiscrete([[2, 3], [4, 5]]),
    "multi_binary": MultiBinary(3),
    "multi_binary of two dimensions": MultiBinary((2, 2)),
    "float32": Box(-2, 2, (2,), np.float32),
    "float64": Box(-2, 2, (2,), np.float64),
    "float16": Box(-2, 2, (2,), np.float16),
    "unbounded": Box(-np.inf, np.array([np.inf, 1.0], np.float32), (2,), np.float32),
    "wide": Box(-np.finfo(np.float64).max, np.finfo(np.float64).max, (2,), np.float64),
    "scalar": Box(-1, 1, (), np.float32),
    "uint8": Box(0, np.array([3, 255], np.uint8), (2,), np.uint8),
    "uint64": Box(0, np.iinfo(np.uint64).max, (2,), np.uint64),
    "int64": Box(-5, 5, (2, 1), np.int64),
}
COMPOSITE = {
    "dict": Dict({"turn": Discrete(3, start=5), "push": Box(-2, 2, (2,), np.float32)}),
    "tuple": Tuple([MultiDiscrete([2, 3], start=[1, -1]), Discrete(2), MultiBinary(2)]),
    "nested": Dict({"pair": Tuple([Discrete(2), Box(-1, 1, (), np.float64)]), "go": MultiBinary((1, 2))}),
}
"""Action spaces whose actions are trees."""


class ActionEnv(gymnasium.Env):
    """Takes actions of one of `ACTION_SPACES`, insists on them, keeps them in ``seen`` and spoils what it was given."""

    observation_space = Box(0, np.inf, (1,), np.float32)

    def __init__(self, kind: str) -> None:
        self.action_space = ACTION_SPACES[kind]
        self.seen: list[Any] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.seen.append(np.array(action))
        if isinstance(action, np.ndarray):
            action[...] = 0
        return np.zeros(1, np.float32), 1.0, False, False, {}


@dataclass
class ActionConfig:
    kind: str

    def build(self) -> gymnasium.Env:
        return ActionEnv(self.kind)


class RaisingEnv(IndexEnv):
    """Raises ValueError("marker-7") in its constructor, in its n-th reset or in its n-th step, counted over its life.

    With ``exit_code`` the process exits instead; with ``sleep_s`` it sleeps there.
    """

    def __init__(self, where: str, n: int, exit_code: int | None, sleep_s: float) -> None:
        super().__init__([4], False)
        self.where, self.n, self.exit_code, self.sleep_s = where, n, exit_code, sleep_s
        self.counts = {"build": 0, "reset": 0, "step": 0}
        self._count("build")

    def reset(self, *, seed=None, options=None):
        self._count("reset")
        return super().reset(seed=seed)

    def step(self, action):
        self._count("step")
        return super().step(action)

    def _count(self, where: str) -> None:
        self.counts[where] += 1
        if where != self.where or self.counts[where] != self.n:
            return
        if self.exit_code is not None:
            import os

            os._exit(self.exit_code)
        if self.sleep_s:
            time.sleep(self.sleep_s)
            return
        raise ValueError("marker-7")


@dataclass
class RaisingConfig:
    where: str = "step"
    n: int = 5
    exit_code: int | None = None
    sleep_s: float = 0.0

    def build(self) -> gymnasium.Env:
        return RaisingEnv(self.where, self.n, self.exit_code, self.sleep_s)


SPACE_FAULTS = {
    "no space": ("observation_space", None),
    "text space": ("observation_space", Dict({"note": Text(5)})),
    "graph space": ("observation_space", Tuple([Discrete(2), Graph(Discrete(2), None)])),
    "sequence space": ("observation_space", Sequence(Discrete(2))),
    "empty space": ("observation_space", Dict({"inner": Tuple([])})),
    "int keys": ("observation_space", Dict({1: Discrete(2)})),
    "uint8 space": ("observation_space", Box(0, 255, (2,), np.uint8)),
    "float64 space": ("observation_space", Box(0, np.inf, (2,), np.float64)),
    "text action": ("action_space", Text(3)),
    "text in a tuple action": ("action_space", Tuple([Discrete(2), Dict({"go": Text(3)})])),
    "empty action": ("action_space", Tuple([Discrete(2), Tuple([])])),
}

RESET_FAULTS = {
    "reset without info": lambda obs, info: obs,
    "reset with text": lambda obs, info: (obs, "text"),
}

STEP_FAULTS = {
    "old step": lambda obs, reward, terminated, truncated, info: (obs, reward, terminated, info),
    "no step": lambda *got: None,
    "shape": lambda obs, *rest: (obs[:1], *rest),
    "float64": lambda obs, *rest: (obs.astype(np.float64), *rest),
    "complex": lambda obs, *rest: (obs.astype(np.complex64), *rest),
    "ragged": lambda obs, *rest: ([[0], [0, 1]], *rest),
    "text obs": lambda obs, *rest: (np.array(["a", "b"]), *rest),
    "none obs": lambda obs, *rest: (None, *rest),
    "bounds": lambda obs, *rest: (-obs, *rest),
    "text reward": lambda obs, reward, *rest: (obs, "much", *rest),
    "none reward": lambda obs, reward, *rest: (obs, None, *rest),
    "two rewards": lambda obs, reward, *rest: (obs, np.ones(2), *rest),
    "text flag": lambda obs, reward, terminated, *rest: (obs, reward, "no", *rest),
    "none flag": lambda obs, reward, terminated, truncated, info: (obs, reward, terminated, None, info),
    "two flags": lambda obs, reward, terminated, *rest: (obs, reward, np.zeros(2, bool), *rest),
    "half flag": lambda obs, reward, terminated, *rest: (obs, reward, 0.5, *rest),
    "text raw reward": lambda *got: (*got[:4], {"rlcli.raw_reward": "much"}),
}


class FaultyEnv(IndexEnv):
    """Breaks its own rules in one way from its n-th step on (or in its spaces, or in each reset)."""

    def __init__(self, fault: str, n: int) -> None:
        super().__init__([100], False)
        self.fault, self.n = fault, n
        if fault in SPACE_FAULTS:
            setattr(self, *SPACE_FAULTS[fault])

    def reset(self, *, seed=None, options=None):
        return RESET_FAULTS.get(self.fault, lambda *got: got)(*super().reset(seed=seed))

    def step(self, action):
        got = super().step(action)
        return STEP_FAULTS[self.fault](*got) if self.t >= self.n and self.fault in STEP_FAULTS else got


@dataclass
class FaultyConfig:
    fault: str = ""
    n: int = 1

    def build(self) -> gymnasium.Env:
        return FaultyEnv(self.fault, self.n)
