"""An environment whose games are short and poor or long and rich by turns."""

from dataclasses import dataclass

import gymnasium
import numpy as np
from gymnasium import spaces


class ParityEnv(gymnasium.Env):
    """Even games: 2 steps, score 50; odd games: 150 steps, score 150. The mean is 100."""

    def __init__(self):
        self.observation_space = spaces.Box(0, 1000, (4,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.game = -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.game = -1
        self.game += 1
        self.t = 0
        return np.zeros(4, np.float32), {}

    def step(self, action):
        self.t += 1
        length, score = (150, 150.0) if self.game % 2 else (2, 50.0)
        over = self.t == length
        return np.full(4, self.t, np.float32), score * over, over, False, {}


@dataclass
class ParityConfig:
    """Config of ParityEnv."""

    kind: str = "parity"
    label: str = "parity"

    def build(self):
        return ParityEnv()

    def for_evaluation(self):
        return self
