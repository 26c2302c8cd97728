"""Environments of many spaces for sampler tests. Imports no torch, which workers that only step do without."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from tests.probes import ACTION_SPACES


class EchoEnv(gymnasium.Env):
    """Observes what it was last given, in a nested space; a game lasts 5 to 7 steps and scores its actions' sum."""

    def __init__(self, kind: str) -> None:
        self.action_space = ACTION_SPACES[kind]
        size = int(np.prod(self.action_space.shape, dtype=np.int64))
        self.observation_space = Dict(
            {
                "echo": Box(-np.inf, np.inf, (size,), np.float64),
                "pair": Tuple([Discrete(1000), Dict({"image": Box(0, 255, (1, 2, 2), np.uint8)})]),
            }
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.length = 0, int(self.np_random.integers(5, 8))
        return self._obs(np.zeros(self.observation_space["echo"].shape)), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.t += 1
        echo = np.asarray(action, np.float64).ravel()
        return self._obs(echo), float(np.clip(echo, -9, 9).sum()), self.t == self.length, False, {}

    def _obs(self, echo):
        return {"echo": echo, "pair": (self.t, {"image": np.full((1, 2, 2), self.t, np.uint8)})}


@dataclass
class EchoConfig:
    kind: str

    def build(self):
        return EchoEnv(self.kind)


class ProcessEnv(gymnasium.Env):
    """Observes its process: (whether torch is loaded, torch's threads, CPUs it may use); the first two once built."""

    observation_space = Box(0, np.inf, (3,), np.float32)
    action_space = Discrete(2)

    def __init__(self) -> None:
        torch = sys.modules.get("torch")
        self.seen = np.array(
            [torch is not None, 0 if torch is None else torch.get_num_threads(), len(os.sched_getaffinity(0))],
            np.float32,
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.seen, {}

    def step(self, action):
        return self.seen, 0.0, False, False, {}


@dataclass
class ProcessConfig:
    def build(self):
        return ProcessEnv()


class WideEnv(gymnasium.Env):
    """Observations of 4 KB, so that whatever keeps a batch shows."""

    observation_space = Box(0, np.inf, (1024,), np.float32)
    action_space = Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1024, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(1024, self.t, np.float32), 1.0, self.t == 30, False, {}


@dataclass
class WideConfig:
    def build(self):
        return WideEnv()


class CountedEnv(gymnasium.Env):
    """Each step makes a file one byte longer, and takes a while."""

    observation_space = Box(0, np.inf, (1,), np.float32)
    action_space = Discrete(3)

    def __init__(self, path: str, step_s: float) -> None:
        self.file, self.step_s = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), step_s

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        os.write(self.file, b".")
        time.sleep(self.step_s)
        return np.array([self.t], np.float32), float(action), self.t == 20, False, {}

    def close(self):
        os.close(self.file)


@dataclass
class CountedConfig:
    path: str
    step_s: float = 0.0

    def build(self):
        return CountedEnv(self.path, self.step_s)
