"""HalfCheetah with a gearbox: a MuJoCo body for algorithms that choose among a few actions."""

import gymnasium
import numpy as np

GEARS = np.array([[0, 0, 0, 0, 0, 0], [1, -1, 1, -1, 1, -1], [-1, 1, -1, 1, -1, 1]], np.float32)


class Gears(gymnasium.ActionWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.action_space = gymnasium.spaces.Discrete(len(GEARS))

    def action(self, action):
        return GEARS[action]


def make(**kwargs):
    return Gears(gymnasium.make("HalfCheetah-v5", disable_env_checker=True, max_episode_steps=40, **kwargs))


gymnasium.register("CheetahGears-v0", entry_point=make)
