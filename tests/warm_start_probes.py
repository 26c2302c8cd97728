"""Agents and learners that start from a file, and files to start from."""

from pathlib import Path

import numpy as np
import torch
from gymnasium import spaces

from rlcli.agents.epsilon_config import ConstantEpsilon
from rlcli.algos.dqn_config import DQNConfig
from rlcli.cli.config import RunConfig
from rlcli.core.context import BuildContext
from rlcli.core.spec import EnvSpec
from rlcli.envs.config import AtariConfig
from rlcli.models.config import AutoModelConfig
from rlcli.record.snapshot import snapshot_state, write_snapshot
from rlcli.replay.config import UniformReplayConfig
from tests.rlpyt_probes import loss

DATA = Path(__file__).parent / "data" / "rlpyt"
CARTPOLE = spaces.Box(-1.0, 1.0, (4,), np.float32)


def config_for(path, **parts):
    """A run of DQN on Pong that starts from the file."""
    whole = {"env": AtariConfig(), "algo": DQNConfig(), "model": AutoModelConfig(), "choices": {"algo": "dqn"}} | parts
    return RunConfig(resume=str(path), **whole)


def built(config, space, n_actions):
    """The agent and the learner of a configuration."""
    return built_for(config, space, spaces.Discrete(n_actions))


def built_for(config, space, action_space):
    """The same, for any actions."""
    torch.manual_seed(8)
    context = BuildContext(
        spec=EnvSpec(space, action_space, space.sample(), action_space.sample()),
        seed=0,
        n_steps=1000,
        n_envs=1,
        device="cpu",
        model=config.model,
        epsilon=ConstantEpsilon(0.1),
        replay=UniformReplayConfig(size=8),
    )
    agent = config.algo.build_agent(context)
    return agent, config.algo.build(context, agent)


def of_shape(config, shape, n_actions=6):
    return built(config, spaces.Box(0, 255, shape, np.uint8), n_actions)


def in_vectors(n_actions=2, algo=None, **model):
    config = RunConfig(algo=algo or DQNConfig(), model=AutoModelConfig(mlp_hidden=[8], **model))
    return built(config, CARTPOLE, n_actions)


def save(path, agent, algo, **changes):
    """A snapshot of rlcli's own."""
    content = {
        "itr": 3,
        "cum_steps": 60,
        "agent_state_dict": agent.state_dict(),
        "optimizer_state_dict": algo.optimizer_state_dict(),
        "algo_state_dict": algo.state_dict(),
        "config": {"algo": {"kind": "dqn"}, "env": {"kind": "gym"}},
    }
    write_snapshot(path, snapshot_state(**(content | changes)))
    return str(path)


def learn(agent, algo, obs):
    """One step of the learner's optimizer, on any loss."""
    algo.rule.optimizer.step(loss(agent.model(obs)), 0)


def weights(network):
    return {name: value.clone() for name, value in network.state_dict().items()}


def changed(before, network):
    return {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
