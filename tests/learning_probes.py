"""Tasks of known value (endless, mortal, a cue to remember) and the shortest way to train on them."""

import contextlib
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from rlcli.agents.epsilon_config import ConstantEpsilon
from rlcli.algos.dqn_config import DQNConfig
from rlcli.algos.r2d1_config import R2D1Config
from rlcli.core.context import BuildContext
from rlcli.envs.previous import with_previous
from rlcli.envs.probe import probe
from rlcli.models.config import AutoModelConfig
from rlcli.replay.config import SequenceReplayConfig, UniformReplayConfig
from rlcli.samplers.config import SerialConfig
from tests.policy_probes import CueConfig
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
    torch.manual_seed(changes.get("seed", 0))
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


CUE_MODEL = AutoModelConfig(mlp_hidden=[16], recurrent="lstm", recurrent_hidden=16)
CUE_R2D1 = R2D1Config(
    discount=0.99,
    learning_rate=5e-3,
    adam_eps=1e-5,
    batch_size=16,
    replay_ratio=32,
    min_steps_learn=200,
    target_update_interval=10,
    tau=0.2,
    n_step_return=3,
    head_hidden=[16],
)
CUE_SEQUENCES = SequenceReplayConfig(size=5_000, burn_in_T=6, train_T=12, state_interval=6)
CUE_DQN = DQNConfig(
    learning_rate=5e-3,
    adam_eps=1e-5,
    replay_ratio=16,
    min_steps_learn=200,
    target_update_interval=10,
    tau=0.2,
    n_step_return=3,
)


def score_of_cue(config, model, replay, n_steps, seed):
    """Mean score of 200 greedy games of `CueEnv` after ``n_steps``; the optimum is 1, guessing gives 0."""
    env = with_previous(CueConfig(), model)
    agent, algo = build(env, config, 8, model=model, replay=replay, epsilon=ConstantEpsilon(0.3, 0.0), seed=seed)
    setup = make_setup(env, agent, seed=seed, eval_n_envs=8, eval_n_episodes=200)
    step = 0
    with contextlib.closing(SerialConfig(12, 8).build(setup)) as sampler:
        while step < n_steps:
            got = sampler.collect(step)
            step += got.n_steps
            algo.update(got.samples, step=step)
        return float(np.mean([game.score for game in sampler.evaluate(step).games]))
