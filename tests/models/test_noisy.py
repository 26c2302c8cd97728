"""Noisy dense layers, and networks with them."""

import pytest
import torch

from rlcli.models.config import AutoModelConfig
from rlcli.models.heads import CategoricalQNetwork, QNetwork
from rlcli.models.noisy import NoiseParts, NoisyLinear, count_noise
from rlcli.models.quantile import QuantileNetwork
from tests.models.test_trunk import IMAGE, VECTOR


def layer():
    made = NoisyLinear(2, 1)
    with torch.no_grad():
        made.weight.copy_(torch.tensor([[1.0, 2.0]]))
        made.bias.copy_(torch.tensor([10.0]))
        made.weight_sigma.copy_(torch.tensor([[0.5, 0.25]]))
        made.bias_sigma.copy_(torch.tensor([3.0]))
    return made


def test_noise_is_the_outer_product_of_signed_roots():
    # e_in = (4, -9), e_out = 16: f = (2, -3), 4
    # weights 1 + 0.5 * 4 * 2 = 5, 2 + 0.25 * 4 * -3 = -1; bias 10 + 3 * 4 = 22; of (1, 2): 5 - 2 + 22
    noise = torch.tensor([[4.0, -9.0, 16.0]])

    torch.testing.assert_close(torch.tensor([[25.0]]), layer()(torch.tensor([[1.0, 2.0]]), noise))


def test_without_noise_it_is_the_plain_layer():
    torch.testing.assert_close(torch.tensor([[15.0]]), layer()(torch.tensor([[1.0, 2.0]])))


def test_each_sample_may_have_noise_of_its_own():
    made, x, noise = NoisyLinear(5, 3), torch.randn(4, 5), torch.randn(4, 8)

    one_by_one = torch.cat([made(x[i : i + 1], noise[i : i + 1]) for i in range(4)])

    torch.testing.assert_close(one_by_one, made(x, noise))
    assert not torch.allclose(made(x, noise), made(x, noise[:1]))


def test_initial_weights_are_those_of_a_plain_layer_and_sigma_a_half_over_the_root_of_the_width():
    torch.manual_seed(3)
    plain = torch.nn.Linear(16, 4)
    torch.manual_seed(3)
    noisy = NoisyLinear(16, 4)

    assert torch.equal(plain.weight, noisy.weight)
    assert {0.125} == set(noisy.weight_sigma.flatten().tolist()) | set(noisy.bias_sigma.tolist())


def networks(space=VECTOR, dueling=False):
    trunk = AutoModelConfig(mlp_hidden=[8, 6]).build_for_streams(space)
    atoms = torch.linspace(0, 1, 5)
    return [
        QNetwork(trunk, 3, dueling, noisy=True),
        CategoricalQNetwork(trunk, 3, atoms, dueling, noisy=True),
        QuantileNetwork(trunk, 3, n_midpoints=4, dueling=dueling, noisy=True),
    ]


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("which", range(3))
def test_one_draw_of_noise_is_for_all_samples_or_one_for_each(which, dueling):
    network = networks(dueling=dueling)[which]
    obs, noise = torch.randn(4, 3), torch.randn(4, network.n_noise)

    each = network(obs, noise)

    one_by_one = torch.cat([network(obs[i : i + 1], noise[i : i + 1]) for i in range(4)])
    torch.testing.assert_close(one_by_one, each)
    torch.testing.assert_close(network(obs, noise[:1].expand(4, -1)), network(obs, noise[:1]))
    assert not torch.allclose(each, network(obs))


@pytest.mark.parametrize("which", range(3))
def test_all_dense_layers_behind_the_convolutions_are_noisy(which):
    network = networks(IMAGE, dueling=True)[which]

    plain = [name for name, part in network.named_modules() if type(part) is torch.nn.Linear]

    assert [name for name in plain if not name.startswith("phi")] == []
    n_outputs = 5 if which == 1 else 1
    assert (3136 + 512) * 2 + (512 + 3 * n_outputs) + (512 + n_outputs) == network.n_noise == count_noise(network)


@pytest.mark.parametrize("which", range(3))
def test_sigma_gets_a_gradient(which):
    network = networks(dueling=True)[which]

    network(torch.randn(4, 3), torch.randn(1, network.n_noise)).pow(2).sum().backward()

    sigmas = [p.grad for name, p in network.named_parameters() if name.endswith("sigma")]
    assert 8 == len(sigmas)
    assert all(bool(grad.abs().sum() > 0) for grad in sigmas)


def test_noise_of_another_width_is_refused():
    parts = NoiseParts(torch.zeros(1, 9))
    parts.through(layer(), torch.zeros(1, 2))

    with pytest.raises(ValueError, match="noise: expected 3 numbers per sample, got 9"):
        parts.check_all_used()
