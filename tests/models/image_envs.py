"""Environments that show images; importing this registers them."""

import gymnasium
import numpy as np
from gymnasium import spaces

IMAGE = spaces.Box(0, 255, (3, 24, 20), np.uint8)


class _Shows(gymnasium.Env):
    """Random observations; the reward is the size of the action; ten steps."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self._t += 1
        return self.observation_space.sample(), float(np.abs(action).sum()), False, self._t >= 10, {}


class ImageBox(_Shows):
    """An image, and actions in a box."""

    observation_space = IMAGE
    action_space = spaces.Box(-1.0, 2.0, (2,))


class ImageAndPose(_Shows):
    """A Dict of an image, a grid of bools with its channels first, and a vector."""

    observation_space = spaces.Dict(
        {"camera": IMAGE, "grid": spaces.Box(0, 1, (6, 10, 10), np.bool_), "pose": spaces.Box(-1.0, 1.0, (3,))}
    )
    action_space = spaces.Discrete(3)


gymnasium.register("tests/ImageBox-v0", ImageBox)
gymnasium.register("tests/ImageAndPose-v0", ImageAndPose)
