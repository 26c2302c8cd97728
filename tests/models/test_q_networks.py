"""Networks whose action values are means of distributions."""

import math

import torch

from rlcli.models.config import AutoModelConfig
from rlcli.models.heads import CategoricalQNetwork, QNetwork
from rlcli.models.quantile import QuantileNetwork
from tests.models.test_trunk import VECTOR

OBS = torch.tensor([[1.0, 0.0, 0.0]])
ATOMS = torch.tensor([0.0, 10.0, 20.0])


def trunk(*hidden):
    return AutoModelConfig(mlp_hidden=list(hidden)).build(VECTOR)


def test_categorical_value_is_the_mean_over_the_atoms():
    network = CategoricalQNetwork(trunk(), 2, ATOMS)
    logits = torch.tensor([[0.25, 0.5, 0.25], [0.0, 0.25, 0.75]]).log().clamp(min=-1e9)
    with torch.no_grad():
        network.advantage.weight.zero_()
        network.advantage.bias.copy_(logits.flatten())

    # 5 + 5;  2.5 + 15
    torch.testing.assert_close(torch.tensor([[10.0, 17.5]]), network(OBS))
    torch.testing.assert_close(logits[None], network.logits(OBS))


def test_dueling_streams_of_a_distribution_are_summed_atom_by_atom_before_the_softmax():
    network = CategoricalQNetwork(trunk(), 2, ATOMS, dueling=True)
    with torch.no_grad():
        network.streams.advantage[0].weight.zero_()
        network.streams.advantage[0].weight[:, 0] = torch.tensor([1.0, 2, 3, 5, 2, 1])
        network.streams.advantage_bias.copy_(torch.tensor([7.0, 8, 9]))
        network.streams.value[0].weight.zero_()
        network.streams.value[0].bias.copy_(torch.tensor([10.0, 20, 30]))

    # advantages less their mean over the two actions: (-2, 0, 1) and (2, 0, -1); the shared bias goes out
    torch.testing.assert_close(torch.tensor([[[8.0, 20, 31], [12.0, 20, 29]]]), network.logits(OBS))


def test_atoms_act_and_are_shared_but_are_no_part_of_what_is_saved():
    network = CategoricalQNetwork(trunk(4), 2, ATOMS)

    assert "atoms" in dict(network.named_buffers())
    assert not [name for name in network.state_dict() if "atoms" in name]
    assert list(QNetwork(trunk(4), 2, False).state_dict()) == list(network.state_dict())


def test_quantile_is_the_head_of_features_times_the_embedding_of_tau():
    network = QuantileNetwork(trunk(), 2, n_cosines=3)
    with torch.no_grad():
        network.phi[0].weight.copy_(torch.tensor([[1.0, 2.0, 4.0], [0, 0, 0], [-1, 0, 0]]))
        network.phi[0].bias.copy_(torch.tensor([0.5, 1.0, 0.0]))
        network.advantage.weight.copy_(torch.tensor([[1.0, 10.0, 100.0], [2.0, 0, 0]]))
        network.advantage.bias.copy_(torch.tensor([0.0, 7.0]))

    # tau 1/3: cosines of 0, pi/3, 2 pi/3 are 1, 1/2, -1/2; phi = (1 + 1 - 2 + 0.5, 1, relu(-1)) = (0.5, 1, 0)
    # features (2, 3, 4): products (1, 3, 0); head 1 + 30, 2 + 7
    # tau 1: 1, -1, 1; phi (1 - 2 + 4 + 0.5, 1, 0) = (3.5, 1, 0); products (7, 3, 0); head 37, 21
    out = network.quantiles(torch.tensor([[2.0, 3.0, 4.0]]), torch.tensor([[1 / 3, 1.0]]))

    torch.testing.assert_close(torch.tensor([[[31.0, 9.0], [37.0, 21.0]]]), out)


def test_quantile_value_is_the_mean_over_evenly_spaced_quantiles():
    network = QuantileNetwork(trunk(8), 3, n_midpoints=4)
    obs = torch.randn(5, 3)

    tau = torch.tensor([[0.125, 0.375, 0.625, 0.875]]).expand(5, -1)

    torch.testing.assert_close(network.quantiles(obs, tau).mean(dim=1), network(obs))
    assert torch.equal(network(obs), network(obs))


def test_hidden_layer_of_a_quantile_network_comes_after_the_product():
    network = QuantileNetwork(AutoModelConfig(mlp_hidden=[8, 6]).build_for_streams(VECTOR), 3)

    shapes = {name: tuple(p.shape) for name, p in network.named_parameters() if name.endswith("weight")}

    expected = {"trunk.mlp.0": (8, 3), "phi.0": (8, 64), "advantage.0": (6, 8), "advantage.2": (3, 6)}
    assert {f"{name}.weight": shape for name, shape in expected.items()} == shapes


def test_cosines_begin_at_the_constant():
    network = QuantileNetwork(trunk(8), 3, n_cosines=4)

    torch.testing.assert_close(math.pi * torch.tensor([0.0, 1, 2, 3]), network._frequencies)
