import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from torch import nn

from rlcli.models.actors import DeterministicActor, SquashedGaussianActor
from rlcli.models.config import AutoModelConfig
from rlcli.models.critics import Critic, StateValue, TwinCritic

CONFIG = AutoModelConfig(
    mlp_hidden=[8, 6], conv_channels=[4], conv_kernels=[3], conv_strides=[2], conv_paddings=[0], conv_hidden=5
)
VECTOR, IMAGE = Box(-1, 1, (3,)), Box(0, 255, (1, 12, 12), np.uint8)


class OwnTrunk(nn.Module):
    n_features = 3

    def forward(self, obs):
        return obs


class OwnModel:
    def build(self, observation_space):
        return OwnTrunk()


def example(space, n):
    if isinstance(space, Dict):
        return {key: example(part, n) for key, part in space.items()}
    return torch.as_tensor(np.stack([space.sample() for _ in range(n)]))


@pytest.mark.parametrize("space", [VECTOR, IMAGE, Discrete(4), Dict({"a": VECTOR, "b": IMAGE})])
def test_every_observation_space_has_critics_actors_and_values(space):
    obs, action = example(space, 5), torch.rand(5, 2) * 2 - 1

    q1, q2 = TwinCritic(CONFIG, space, 2)(obs, action)

    assert (5,) == tuple(q1.shape) == tuple(q2.shape) == tuple(StateValue(CONFIG.build(space))(obs).shape)
    assert (5, 2) == tuple(DeterministicActor(CONFIG.build(space), 2)(obs).shape)
    sampled, log_prob = SquashedGaussianActor(CONFIG.build(space), 2).sample(obs, torch.zeros(5, 2))
    assert (5, 2) == tuple(sampled.shape)
    assert (5,) == tuple(log_prob.shape)


def test_vectors_and_action_enter_the_first_layer_together_the_action_last():
    critic = Critic(CONFIG, VECTOR, 2)
    first = critic.trunk.mlp[0]

    assert (8, 5) == tuple(first.weight.shape)
    with torch.no_grad():
        first.weight[:, 3:] = 0.0
    obs = torch.rand(4, 3)
    assert torch.equal(critic(obs, torch.zeros(4, 2)), critic(obs, torch.ones(4, 2)))


@pytest.mark.parametrize(("model", "space"), [(CONFIG, IMAGE), (OwnModel(), VECTOR)], ids=["image", "own"])
def test_the_better_of_two_actions_hangs_on_the_observation_also_behind_features(model, space):
    # a sum of a part of the observation and one of the action would give 0 everywhere
    torch.manual_seed(0)
    space.seed(0)
    critic = Critic(model, space, 1)
    one, two = (example(space, 1) for _ in range(2))
    up, down = torch.ones(1, 1), -torch.ones(1, 1)

    interaction = critic(one, up) - critic(one, down) - critic(two, up) + critic(two, down)

    assert interaction.abs().item() > 1e-4


def test_twin_critics_share_nothing():
    twins = TwinCritic(CONFIG, VECTOR, 2)
    shared = {id(p) for p in twins.q1.parameters()} & {id(p) for p in twins.q2.parameters()}

    assert not shared
    assert not torch.equal(twins.q1.head[0].weight, twins.q2.head[0].weight)


def test_last_layers_of_ddpg_begin_within_three_thousandths():
    critic, actor = Critic(CONFIG, VECTOR, 2, 3e-3), DeterministicActor(CONFIG.build(VECTOR), 2, 3e-3)

    for layer in (critic.head[0], actor.mean):
        assert layer.weight.abs().max() <= 3e-3
        assert layer.bias.abs().max() <= 3e-3
        assert layer.weight.abs().max() > 1e-3
    assert Critic(CONFIG, VECTOR, 2).head[0].weight.abs().max() > 3e-3


def test_log_std_is_kept_between_minus_20_and_2():
    actor = SquashedGaussianActor(CONFIG.build(VECTOR), 1)
    for bias, expected in ((100.0, 2.0), (-100.0, -20.0)):
        with torch.no_grad():
            actor.log_std.bias.fill_(bias)
        assert expected == actor(torch.zeros(1, 3))[1].item()
