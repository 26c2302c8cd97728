import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlcli.core.errors import ConfigError
from rlcli.envs import previous
from rlcli.models import recurrent
from rlcli.models.action_distributions import Categorical, distribution_for
from rlcli.models.config import AutoModelConfig
from rlcli.models.policy import PolicyValueNetwork, RecurrentPolicyNetwork, policy_network
from rlcli.models.recurrent import RecurrentCore, RecurrentTrunk

BOX = spaces.Box(-1, 1, (3,), np.float32)
KINDS = pytest.mark.parametrize("kind", ["lstm", "gru"])


def with_previous(space, n):
    parts = {"obs": space, "previous_action": spaces.Box(-1, 1, (n,)), "previous_reward": spaces.Box(-1, 1, (1,))}
    return spaces.Dict(parts)


@KINDS
def test_sequence_equals_single_steps_with_restarts_by_hand(kind):
    torch.manual_seed(0)
    core = RecurrentCore(kind, 3, 5)
    x = torch.randn(9, 4, 3)
    begins = torch.rand(9, 4) < 0.3
    begins[0, 1] = begins[5, 2] = True
    first = {key: torch.randn(4, 5) for key in core.initial_state(1)}

    outputs, last = core(x, first, begins)

    state = first
    for t in range(9):
        state = {key: torch.where(begins[t][:, None], 0.0, leaf) for key, leaf in state.items()}
        output, state = core(x[t : t + 1], state)
        torch.testing.assert_close(outputs[t], output[0])
    torch.testing.assert_close(last, state)


@KINDS
def test_rows_before_an_episodes_beginning_have_no_influence_and_get_no_gradient(kind):
    core = RecurrentCore(kind, 3, 5)
    x = torch.randn(4, 1, 3, requires_grad=True)
    begins = torch.tensor([[False], [False], [True], [False]])

    core(x, core.initial_state(1), begins)[0][2:].sum().backward()

    assert x.grad[:2].abs().max() == 0
    assert x.grad[2:].abs().min(-1).values.max() > 0


def test_lstm_of_one_unit_gives_what_its_equations_give():
    core = RecurrentCore("lstm", 1, 1).double()
    with torch.no_grad():
        for weight in core.parameters():
            weight.fill_(0.5)

    x, h, c = (torch.tensor(value, dtype=torch.float64) for value in ([[[2.0]]], [[0.0]], [[1.0]]))

    output, state = core(x, {"h": h, "c": c})

    # all gates see 0.5 * 2 + 0.5 + 0.5 = 2
    gate = 1 / (1 + math.exp(-2))
    c = gate * 1 + gate * math.tanh(2)
    assert c == pytest.approx(state["c"].item())
    assert gate * math.tanh(c) == pytest.approx(output.item())


def test_previous_action_and_reward_enter_behind_the_trunk():
    config = AutoModelConfig(mlp_hidden=[7])
    trunk = RecurrentTrunk(config.trunk, with_previous(BOX, 4), "lstm", 5)
    widths = {"obs": 3, "previous_action": 4, "previous_reward": 1}
    obs = {key: torch.randn(2, 3, width) for key, width in widths.items()}

    features, _ = trunk(obs, trunk.initial_state(3))
    other, _ = trunk({**obs, "previous_reward": obs["previous_reward"] + 1}, trunk.initial_state(3))

    assert (2, 3, 5) == features.shape
    assert 7 + 4 + 1 == trunk.core.rnn.input_size
    assert not torch.allclose(features, other)


def test_the_two_rooms_mean_the_same_keys():
    assert (previous.OBS, (previous.ACTION, previous.REWARD)) == (recurrent.OBS, recurrent.PREVIOUS)


@KINDS
def test_policy_network_is_what_the_config_asks_for(kind):
    config = AutoModelConfig(recurrent=kind, recurrent_hidden=6, init="orthogonal")
    network = policy_network(config, BOX, Categorical(2))

    params, value, state = network.unroll(torch.randn(4, 3, 3), network.initial_state(3))

    assert isinstance(network, RecurrentPolicyNetwork)
    assert ((4, 3, 2), (4, 3)) == (params.shape, value.shape)
    assert {(3, 6)} == {tuple(leaf.shape) for leaf in state.values()}


def test_separate_trunks_share_no_weight():
    network = policy_network(AutoModelConfig(shared_trunk=False), BOX, distribution_for(spaces.Box(-1, 1, (2,))))
    params, _ = network(torch.randn(4, 3))
    params.sum().backward()

    assert all(p.grad is None for p in network.value_trunk.parameters())
    assert all(p.grad is not None for p in network.trunk.parameters())
    assert network.log_std.grad is not None


def test_orthogonal_init_has_the_gains_of_the_paper():
    config = AutoModelConfig(mlp_hidden=[64, 64], init="orthogonal")
    network = policy_network(config, spaces.Box(-1, 1, (64,)), Categorical(4))

    # W W^T = gain^2 I
    for layer, gain in ((network.trunk.mlp[0], math.sqrt(2)), (network.policy, 0.01), (network.value, 1.0)):
        gram = layer.weight @ layer.weight.T
        torch.testing.assert_close(gram, gain**2 * torch.eye(len(gram)), atol=1e-5, rtol=0)
        assert layer.bias.abs().max() == 0


def test_orthogonal_init_reaches_convolutions_with_channels_last():
    config = AutoModelConfig(init="orthogonal")
    network = policy_network(config, spaces.Box(0, 255, (4, 84, 84), np.uint8), Categorical(4))

    weight = network.trunk.convs[0].conv[0].weight.detach().flatten(1)
    torch.testing.assert_close(weight @ weight.T, 2 * torch.eye(32), atol=1e-5, rtol=0)


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.Box(-1, 1, (2,))], ids=["discrete", "box"])
def test_a_new_policy_is_nearly_the_same_everywhere(space):
    distribution = distribution_for(space)
    network = PolicyValueNetwork(AutoModelConfig().trunk(BOX), distribution, log_std=-0.5)

    params, _ = network(torch.randn(100, 3))

    assert params.std(0).max() < 0.05
    if isinstance(space, spaces.Box):
        assert [-0.5, -0.5] == params[0, 2:].tolist()


@pytest.mark.parametrize(
    "option", [{"recurrent": "lstm"}, {"shared_trunk": False}, {"normalize_obs": True}, {"init": "orthogonal"}], ids=str
)
@pytest.mark.parametrize("build", ["build", "build_for_streams"])
def test_an_algorithm_that_knows_none_of_it_refuses_by_name(option, build):
    with pytest.raises(ConfigError, match=f"^model.{next(iter(option))}: .* is not for this algo"):
        getattr(AutoModelConfig(**option), build)(BOX)


def test_recurrent_with_two_trunks_is_refused():
    assert ["shared_trunk: false is not allowed with recurrent=lstm, must be true"] == AutoModelConfig(
        recurrent="lstm", shared_trunk=False
    ).problems()
