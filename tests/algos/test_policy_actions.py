"""A2C and PPO on Box and composite actions."""

import pytest
import torch

from rlcli.algos.a2c_config import A2CConfig
from rlcli.algos.ppo_config import PPOConfig
from tests.policy_probes import SMALL, BanditConfig, FarBoxConfig, Session

PPO = PPOConfig(discount=0.9, learning_rate=1e-2, epochs=4, minibatches=2, entropy_loss_coeff=0.0)
A2C = A2CConfig(discount=0.9, learning_rate=1e-2, entropy_loss_coeff=0.0)
ALGOS = pytest.mark.parametrize("config", [A2C, PPO], ids=["a2c", "ppo"])


@ALGOS
def test_a_gaussian_climbs_beyond_the_bounds_and_the_environment_sees_them(config):
    session = Session(FarBoxConfig(), config, SMALL, batch_T=16, n_envs=8)
    before = session.agent.model(torch.ones(1, 1))[0][0, :2].mean().item()

    session.train(60)
    mean = session.agent.model(torch.ones(1, 1))[0][0, :2]

    assert mean.min().item() > before
    assert mean.mean().item() > 0.3
    assert session.evaluate() == pytest.approx(7 * 0.2, abs=1e-4)


@ALGOS
def test_every_part_of_a_composite_action_is_learned(config):
    session = Session(BanditConfig(), config, SMALL, batch_T=4, n_envs=64)

    session.train(150 if isinstance(config, A2CConfig) else 40)

    # 5 right choices, less the square of what is missing of 1
    assert session.evaluate() > 4.9


def test_composite_samples_come_as_trees_with_their_log_prob():
    session = Session(BanditConfig(), PPO, SMALL, batch_T=6, n_envs=3)
    (got,) = session.collected(1)
    samples = got.samples
    taken = session.agent.taken(samples)
    flat = {"turn": taken["turn"].flatten(0, 1), "lights": taken["lights"].flatten(0, 1)}
    flat["pair"] = {key: leaf.flatten(0, 1) for key, leaf in taken["pair"].items()}

    params, _ = session.agent.model(samples.obs[:-1].flatten(0, 1))

    assert {"0": (6, 3, 2), "1": (6, 3)} == {key: tuple(leaf.shape) for key, leaf in samples.action["pair"].items()}
    expected = session.agent.distribution.log_prob(params, flat).view(6, 3)
    torch.testing.assert_close(expected, samples.record["log_prob"])
    assert (samples.action["turn"].abs() <= 2).all()
    assert torch.equal(samples.action["lights"], taken["lights"])
