"""CartPole that takes its time, as a user's module that registers it: ``tests.slow_envs:SlowCartPole-v0``."""

import time

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class SlowCartPole(CartPoleEnv):
    """Sleeps in each step."""

    def __init__(self, sleep_s=0.0):
        super().__init__()
        self.sleep_s = sleep_s

    def step(self, action):
        time.sleep(self.sleep_s)
        return super().step(action)


gymnasium.register("SlowCartPole-v0", SlowCartPole, max_episode_steps=500)
