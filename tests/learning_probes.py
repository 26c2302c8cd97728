"""An endless task and a mortal one of known value, and the shortest way to train on them."""

import contextlib
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from rlcli.agents.epsilon_config import ConstantEpsilon
from rlcli.core.context import BuildContext
from rlcli.envs.probe import probe
from rlcli.models.config import AutoModelConfig
from rlcli.replay.config import UniformReplayConfig
from rlcli.samplers.config import SerialConfig
from tests.sampler_probes import make_setup


class ConstantEnv(gymnasium.Env):
    """One observation, reward 1, over after 20 steps: by the clock or by death."""

    observation_space = spaces.Box(0, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

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


@dataclass
class ConstantConfig:
    dies: bool
    kind: str = "constant"

    def build(self):
        return ConstantEnv(self.dies)

    def for_evaluation(self):
        return self


def build(env, config, n_envs=4, **changes):
    torch.manual_seed(0)
    context = BuildContext(
        spec=probe(env),
        seed=0,
        n_steps=10_000,
        n_envs=n_envs,
        device="cpu",
        model=AutoModelConfig(mlp_hidden=[16]),
        epsilon=ConstantEpsilon(0.5),
        replay=UniformReplayConfig(size=5_000),
    )
    context = replace(context, **changes)
    agent = config.build_agent(context)
    return agent, config.build(context, agent)


class Trained(NamedTuple):
    agent: Any
    algo: Any
    step: int
    samples: Any
    metrics: Any


def train(env, config, n_iterations, batch_T=10, n_envs=4):
    agent, algo = build(env, config, n_envs)
    step = 0
    with contextlib.closing(SerialConfig(batch_T, n_envs).build(make_setup(env, agent))) as sampler:
        for _ in range(n_iterations):
            got = sampler.collect(step)
            step += got.n_steps
            metrics = algo.update(got.samples, step=step)
    return Trained(agent, algo, step, got.samples, metrics)
