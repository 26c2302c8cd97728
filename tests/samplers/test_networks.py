"""Real networks in every sampler: the same actions, the recorded numbers up to rounding (docs/determinism.md)."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from rlcli.agents.epsilon_config import ConstantEpsilon
from rlcli.agents.policy import PolicyAgent
from rlcli.agents.q import QAgent
from rlcli.envs.config import AtariConfig, GymConfig
from rlcli.models.config import AutoModelConfig
from rlcli.models.heads import QNetwork
from rlcli.models.policy import PolicyValueNetwork
from tests.sampler_modes import ONE_OF_EACH, batches, config
from tests.sampler_probes import make_setup

CARTPOLE = GymConfig("CartPole-v1")
PONG = AtariConfig(game="pong")


@cache
def setup(env_name):
    return make_setup({"cartpole": CARTPOLE, "pong": PONG}[env_name])


def agent(env_name, algo):
    """With the same new weights each time."""
    torch.manual_seed(0)
    spec = setup(env_name).spec
    trunk = AutoModelConfig().build(spec.observation_space)
    if algo == "a2c":
        return PolicyAgent(PolicyValueNetwork(trunk, spec.n_actions))
    return QAgent(QNetwork(trunk, spec.n_actions, dueling=False), ConstantEpsilon(0.2), 5)


@cache
def ran(mode, env_name, algo):
    batch = {"cartpole": (100, 5, 5), "pong": (40, 2, 5)}[env_name]
    made = replace(setup(env_name), agent=agent(env_name, algo))
    return [b.samples for b in batches(config(mode, *batch[:2], max_decorrelation_steps=5), made, batch[2])]


def assert_same_actions(expected, actual, n_rows):
    assert n_rows == sum(len(s.action) for s in expected)
    for a, b in zip(expected, actual, strict=True):
        assert torch.equal(a.action, b.action)
        assert torch.equal(a.valid, b.valid)
        torch.testing.assert_close(a.obs, b.obs, atol=1e-6, rtol=0)
        torch.testing.assert_close(a.record, b.record, atol=1e-5, rtol=0)


@pytest.mark.parametrize("mode", ONE_OF_EACH[1:])
@pytest.mark.parametrize("algo", ["dqn", "a2c"])
def test_cartpole_networks_choose_the_same_500_actions(algo, mode):
    assert_same_actions(ran("serial", "cartpole", algo), ran(mode, "cartpole", algo), 500)


@pytest.mark.parametrize("mode", ONE_OF_EACH[1:])
def test_nature_network_chooses_the_same_200_actions_in_pong(mode):
    assert_same_actions(ran("serial", "pong", "dqn"), ran(mode, "pong", "dqn"), 200)
