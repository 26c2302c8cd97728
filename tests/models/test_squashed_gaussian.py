"""The squashed Gaussian against numbers worked out by hand, and integrals and derivatives taken numerically."""

import math

import numpy as np
import pytest
import torch

from rlcli.models.squashed_gaussian import log_prob, normals, sample
from tests.tables import assert_table

CASES = [(0.0, 0.0), (0.7, -1.0), (-1.5, 0.5), (3.0, -2.0)]
"""Mean and log deviation."""


def column(value):
    return torch.tensor([[value]], dtype=torch.float64)


def f64(*rows):
    return torch.tensor(rows, dtype=torch.float64)


HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
# tanh(ln(3) / 2) = 1/2 with the slope 1 - 1/4 = 3/4; tanh(ln(9) / 2) = 8/10 with the slope 1 - 0.64 = 0.36
A, B = math.log(3) / 2, math.log(9) / 2


def test_log_prob_is_the_table_worked_out_by_hand():
    # z 0, deviation 1, slope 1: -ln sqrt(2 pi);  z 0, deviation 2, slope 3/4: that less ln 2 and ln 0.75;
    # z 1, deviation B, slope 0.36: that less 1/2, ln B and ln 0.36
    mean, log_std, u = f64([0.0], [A], [0.0]), f64([0.0], [math.log(2)], [math.log(B)]), f64([0.0], [A], [B])
    second, third = -HALF_LOG_2PI - math.log(1.5), -HALF_LOG_2PI - 0.5 - math.log(B) - math.log(0.36)

    assert_table([-HALF_LOG_2PI, second, third], log_prob(mean, log_std, u))
    # of one action of two dimensions
    assert_table([second + third], log_prob(mean[1:].T, log_std[1:].T, u[1:].T))


def test_a_sample_is_the_table_worked_out_by_hand():
    # u = 0 + A * 1 and 2 B - B * 1: actions 1/2 and 8/10
    mean, log_std, z = f64([0.0, 2 * B]), f64([math.log(A), math.log(B)]), f64([1.0, -1.0])

    action, log_density = sample(mean, log_std, z)

    assert_table([[0.5, 0.8]], action)
    gaussians = -2 * HALF_LOG_2PI - 1 - math.log(A) - math.log(B)
    assert_table([gaussians - math.log(0.75) - math.log(0.36)], log_density)


def density(mean, log_std, a):
    """Of actions, by the change of variables with the derivative of atanh taken numerically."""
    std, h = math.exp(log_std), 1e-6
    slope = (np.arctanh(a + h) - np.arctanh(a - h)) / (2 * h)
    u = np.arctanh(a)
    return np.exp(-0.5 * ((u - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi)) * slope


@pytest.mark.parametrize(("mean", "log_std"), CASES)
def test_log_prob_equals_a_numerical_change_of_variables(mean, log_std):
    a = np.linspace(-0.99, 0.99, 41)
    u = torch.from_numpy(np.arctanh(a))[:, None]

    got = log_prob(column(mean).expand(41, 1), column(log_std).expand(41, 1), u).exp()

    np.testing.assert_allclose(density(mean, log_std, a), got.numpy(), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(("mean", "log_std"), CASES)
def test_the_density_over_actions_sums_to_one(mean, log_std):
    edges = np.tanh(np.linspace(-12, 12, 20_001))
    middle, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    u = torch.from_numpy(np.arctanh(middle))[:, None]
    n = len(middle)

    p = log_prob(column(mean).expand(n, 1), column(log_std).expand(n, 1), u).exp().numpy()

    assert (p * width).sum() == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(("mean", "log_std"), CASES)
def test_mean_of_minus_log_prob_is_the_entropy(mean, log_std):
    # entropy of a = entropy of u + E[log(1 - tanh(u)^2)], the second by a sum over a fine grid
    u = np.linspace(mean - 10 * math.exp(log_std), mean + 10 * math.exp(log_std), 100_001)
    weight = np.exp(-0.5 * ((u - mean) / math.exp(log_std)) ** 2)
    weight /= weight.sum()
    expected = 0.5 * math.log(2 * math.pi * math.e) + log_std + (weight * np.log(1 / np.cosh(u) ** 2)).sum()
    z = normals((torch.arange(20_000, dtype=torch.float64)[:, None] + 0.5) / 20_000)

    _, log_density = sample(column(mean).expand_as(z), column(log_std).expand_as(z), z)

    assert -log_density.mean().item() == pytest.approx(expected, abs=2e-3)


def test_dimensions_add_up():
    mean, log_std, u = (torch.tensor([[a, b]], dtype=torch.float64) for a, b in [(0.3, -1.0), (-0.5, 0.2), (0.9, -2.0)])
    parts = [log_prob(mean[:, [i]], log_std[:, [i]], u[:, [i]]) for i in (0, 1)]

    torch.testing.assert_close(parts[0] + parts[1], log_prob(mean, log_std, u))


def test_far_out_where_tanh_is_flat_log_prob_and_its_gradient_stay_finite_and_right():
    # at u = 40, 1 - tanh(u)^2 is 4 exp(-80): 0 in floats, but its logarithm is log 4 - 80
    mean = torch.tensor([[0.0]], requires_grad=True)
    log_std = torch.tensor([[3.0]])

    got = log_prob(mean, log_std, torch.tensor([[40.0]]))
    got.sum().backward()

    expected = -0.5 * (40 / math.exp(3)) ** 2 - 3 - 0.5 * math.log(2 * math.pi) - (math.log(4) - 80)
    assert got.item() == pytest.approx(expected, rel=1e-5)
    assert torch.isfinite(mean.grad).all()
    negative = log_prob(mean.detach(), log_std, torch.tensor([[-40.0]]))
    assert negative.item() == pytest.approx(expected, rel=1e-5)


def test_gradients_flow_through_action_and_log_density():
    mean, log_std = (torch.tensor([[v]], dtype=torch.float64, requires_grad=True) for v in (0.3, -0.4))
    z = torch.tensor([[0.8]], dtype=torch.float64)

    assert torch.autograd.gradcheck(lambda m, s: sample(m, s, z), (mean, log_std))


def test_normals_are_the_inverse_cumulative_distribution():
    # Phi(1.959964) = 0.975, Phi(-1) = 0.158655
    got = normals(torch.tensor([0.5, 0.975, 0.15865525393145707], dtype=torch.float64))

    np.testing.assert_allclose(got, [0.0, 1.959963984540054, -1.0], atol=1e-9)


def test_normals_of_the_outermost_uniforms_are_finite_and_ordered():
    z = normals(torch.tensor([0.0, 2.0**-53, 0.5, 1.0 - 2.0**-53], dtype=torch.float64))

    assert torch.isfinite(z).all()
    assert (z.diff() > 0).all()
    assert z.abs().max() < 9
