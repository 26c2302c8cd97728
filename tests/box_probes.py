"""Tasks with actions in a box: of known value, of known best action, and one of everything that can happen."""

import contextlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from rlcli.core.context import BuildContext
from rlcli.envs.probe import probe
from rlcli.models.config import AutoModelConfig
from rlcli.replay.config import UniformReplayConfig
from rlcli.samplers.config import SerialConfig
from tests.sampler_probes import make_setup


class BanditEnv(gymnasium.Env):
    """One step of reward -(a - best)^2, then death."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Box(-1, 3, (1,), np.float32)

    def __init__(self, best):
        self.best = best

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action):
        return np.ones(1, np.float32), -float((action[0] - self.best) ** 2), True, False, {}


class ConstantEnv(gymnasium.Env):
    """One observation, reward 1 whatever is done, over after 20 steps: by the clock or by death."""

    observation_space = spaces.Box(0, 1, (2,), np.float32)
    action_space = spaces.Box(-2, 2, (1,), np.float32)

    def __init__(self, dies):
        self.dies = dies

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.ones(2, np.float32), {}

    def step(self, action):
        self.t += 1
        over = self.t == 20
        return np.ones(2, np.float32), 1.0, over and self.dies, over and not self.dies, {}


class RoamEnv(gymnasium.Env):
    """Observes (t, both numbers of the last action, a random number); lengths, rewards and ways to end are random."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([3.0, 0.5], np.float32))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.length = int(self.np_random.integers(1, 12))
        self.dies = bool(self.np_random.integers(2))
        return self._obs(np.zeros(2)), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.t += 1
        over = self.t >= self.length
        return self._obs(action), float(self.np_random.normal()), over and self.dies, over and not self.dies, {}

    def _obs(self, action):
        return np.array([self.t / 10, *action, self.np_random.random()], np.float32)


@dataclass
class EnvConfig:
    """``make`` and its arguments."""

    make: Any
    args: tuple = ()
    kind: str = "box_probe"

    def build(self):
        return self.make(*self.args)

    def for_evaluation(self):
        return self


def build(env, config, n_envs=4, hidden=(16,), seed=0):
    torch.manual_seed(seed)
    context = BuildContext(
        spec=probe(env),
        seed=seed,
        n_steps=10_000,
        n_envs=n_envs,
        device="cpu",
        model=AutoModelConfig(mlp_hidden=list(hidden)),
        replay=UniformReplayConfig(size=5_000),
    )
    agent = config.build_agent(context)
    return agent, config.build(context, agent)


class Trained(NamedTuple):
    agent: Any
    algo: Any
    samples: Any
    metrics: Any


def train(env, config, n_iterations, batch_T=10, n_envs=4, hidden=(16,)):
    agent, algo = build(env, config, n_envs, hidden)
    step = 0
    with contextlib.closing(SerialConfig(batch_T, n_envs).build(make_setup(env, agent))) as sampler:
        for _ in range(n_iterations):
            got = sampler.collect(step)
            step += got.n_steps
            metrics = algo.update(got.samples, step=step)
    return Trained(agent, algo, got.samples, metrics)
