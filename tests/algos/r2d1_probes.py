"""R2D1 on networks so small that it learns in seconds, and the shortest way to run it."""

import contextlib
import math
from dataclasses import replace

import torch

from rlcli.algos.r2d1_config import R2D1Config
from rlcli.envs.previous import with_previous
from rlcli.replay.config import SequenceReplayConfig
from rlcli.samplers.config import SerialConfig
from tests.learning_probes import ConstantConfig, build
from tests.policy_probes import SMALL
from tests.sampler_modes import copy_of
from tests.sampler_probes import WanderConfig, make_setup

LSTM = replace(SMALL, recurrent="lstm")
BURN_IN, TRAIN, N = 3, 4, 2
REPLAY = SequenceReplayConfig(size=4_000, burn_in_T=BURN_IN, train_T=TRAIN, state_interval=2)
R2D1 = R2D1Config(
    discount=0.9,
    learning_rate=1e-2,
    batch_size=8,
    replay_ratio=4,
    min_steps_learn=0,
    target_update_interval=10,
    n_step_return=N,
    head_hidden=[16],
)


def sensitive(agent):
    """Let values hang on the state, which new ones hardly do."""
    for parameter in agent.model.parameters():
        parameter.data.mul_(3)
    return agent


def learner(config=R2D1, env=None, model=LSTM, replay_config=REPLAY, n_envs=4):
    """(agent, algo) whose online and target network differ."""
    env = with_previous(ConstantConfig(False) if env is None else env, model)
    agent, algo = build(env, config, n_envs, model=model, replay=replay_config)
    sensitive(agent)
    algo.rule.target.module.load_state_dict(agent.model.state_dict())
    return agent, algo


def apart(algo):
    """The same with a target network that is not the online one."""
    random = torch.Generator().manual_seed(7)
    for parameter in algo.rule.target.module.parameters():
        parameter.add_(torch.randn(parameter.shape, generator=random) * 0.3)
    return algo


@contextlib.contextmanager
def running(config, env=None, batch_T=5, model=LSTM, n_envs=4, reset="mid_batch", replay_config=REPLAY):
    """(algo, collect); collect(n) takes n batches, learns from each and gives copies of them."""
    env = WanderConfig() if env is None else env
    agent, algo = learner(config, env, model, replay_config, n_envs)
    setup = make_setup(with_previous(env, model), agent)
    step = 0
    with contextlib.closing(SerialConfig(batch_T, n_envs, reset=reset).build(setup)) as sampler:

        def collect(n):
            nonlocal step
            kept = []
            for _ in range(n):
                got = sampler.collect(step)
                step += got.n_steps
                kept.append(copy_of(got.samples))
                algo.update(got.samples, step=step)
            return kept

        yield algo, collect


def h(x, eps):
    return x if eps is None else math.copysign(math.sqrt(abs(x) + 1) - 1, x) + eps * x


def h_inverse(y, eps):
    """By bisection."""
    low, high = -1e6, 1e6
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if h(middle, eps) < y else (low, middle)
    return low
