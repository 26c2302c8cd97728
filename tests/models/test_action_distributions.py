"""Distributions of actions against numbers worked out by hand, and against torch.distributions."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlcli.core.errors import ConfigError
from rlcli.models.action_distributions import (
    Categorical,
    Composite,
    DiagonalGaussian,
    MultiCategorical,
    distribution_for,
)
from tests.tables import assert_table

F64 = torch.float64


def rows(*values):
    return torch.tensor(values, dtype=F64)


def logs(*rows_):
    return torch.tensor(rows_, dtype=F64).log()


# categorical: probabilities 0.2, 0.5, 0.3


def test_categorical_is_the_inverse_of_its_cumulative_distribution():
    params = logs([0.2, 0.5, 0.3]).expand(6, 3)
    uniforms = rows(0.0, 0.1999, 0.2001, 0.6999, 0.7001, 1 - 2**-53)[:, None]

    assert [0, 0, 1, 1, 2, 2] == Categorical(3).sample(params, uniforms).tolist()


def test_categorical_never_draws_an_action_of_probability_zero():
    assert [1] == Categorical(2).sample(logs([0.0, 1.0]), rows([0.0])).tolist()


def test_categorical_log_prob_and_mode_are_those_of_the_table():
    params = logs([2.0, 5.0, 3.0], [2.0, 5.0, 3.0])  # unnormalised

    assert_table([math.log(0.3), math.log(0.2)], Categorical(3).log_prob(params, torch.tensor([2, 0])))
    assert [1, 1] == Categorical(3).mode(params).tolist()


def test_categorical_entropy_is_that_of_the_table_and_a_forbidden_action_adds_nothing():
    # 1/2 and two times 1/4: 1/2 ln 2 + 2 * 1/4 ln 4 = 3/2 ln 2
    assert_table([1.5 * math.log(2), math.log(2)], Categorical(3).entropy(logs([0.5, 0.25, 0.25], [0.5, 0.0, 0.5])))


def test_categorical_kl_is_that_of_the_table():
    # 1/2 ln(1/2 / 1/4) + 1/2 ln(1/2 / 3/4) = 1/2 ln 2 + 1/2 ln(2/3) = 1/2 ln(4/3)
    assert_table(
        [0.5 * math.log(4 / 3), 0.0], Categorical(2).kl(logs([0.5, 0.5], [0.1, 0.9]), logs([0.25, 0.75], [0.1, 0.9]))
    )


# several choices at once


def test_each_choice_of_a_multi_categorical_has_its_own_uniform_and_logits():
    params = logs([0.4, 0.6, 0.1, 0.1, 0.8])

    action = MultiCategorical([2, 3], (2,)).sample(params, rows([0.5, 0.15]))

    assert [[1, 1]] == action.tolist()
    assert action.dtype == torch.int64


def test_multi_categorical_log_prob_entropy_and_kl_are_sums():
    distribution = MultiCategorical([2, 3], (2,))
    params, other = logs([0.4, 0.6, 0.1, 0.1, 0.8]), logs([0.5, 0.5, 0.2, 0.2, 0.6])

    assert_table([math.log(0.6 * 0.1)], distribution.log_prob(params, torch.tensor([[1, 0]])))
    assert_table(
        [-sum(p * math.log(p) for p in (0.4, 0.6, 0.1, 0.1, 0.8))],
        distribution.entropy(params),
    )
    pairs = ((0.4, 0.5), (0.6, 0.5), (0.1, 0.2), (0.1, 0.2), (0.8, 0.6))
    assert_table([sum(p * math.log(p / q) for p, q in pairs)], distribution.kl(params, other))
    assert [[1, 2]] == distribution.mode(params).tolist()


def test_binary_choices_come_in_the_spaces_shape_and_dtype():
    distribution = distribution_for(spaces.MultiBinary((2, 2)))
    params = logs([0.9, 0.1, 0.1, 0.9, 0.9, 0.1, 0.1, 0.9])

    action = distribution.mode(params)

    assert [[[0, 1], [0, 1]]] == action.tolist()
    assert action.dtype == torch.int8
    assert_table([4 * math.log(0.9)], distribution.log_prob(params, action))


# gaussian: mean 1, log std ln 2; mean -1, log std 0


GAUSSIAN = rows([1.0, -1.0, math.log(2), 0.0])


def test_gaussian_is_the_inverse_of_its_cumulative_distribution():
    # quantiles of the standard normal: 0 at 1/2, 1 at 0.841344746068543
    action = DiagonalGaussian((2,)).sample(GAUSSIAN, rows([0.841344746068543, 0.5]))

    assert_table([[3.0, -1.0]], action.double(), rtol=1e-6)


def test_gaussian_of_the_smallest_and_the_largest_uniform_is_finite():
    action = DiagonalGaussian((2,)).sample(GAUSSIAN, rows([0.0, 1 - 2**-53]))

    assert torch.isfinite(action).all()
    assert action[0, 0] < -10
    assert action[0, 1] > 5


def test_gaussian_log_prob_is_that_of_the_table():
    # z = (3 - 1) / 2 = 1 and 0: -1/2 - ln 2 - ln(2 pi)
    assert_table(
        [-0.5 - math.log(2) - math.log(2 * math.pi)], DiagonalGaussian((2,)).log_prob(GAUSSIAN, rows([3.0, -1.0]))
    )


def test_gaussian_entropy_is_that_of_the_table():
    # ln 2 + ln 1 + 2 * ln(2 pi e) / 2
    assert_table([math.log(2) + math.log(2 * math.pi * math.e)], DiagonalGaussian((2,)).entropy(GAUSSIAN))


def test_gaussian_kl_is_that_of_the_table():
    # from N(1, 2), N(-1, 1) to N(0, 1) twice: (-ln 2 + (4 + 1) / 2 - 1/2) + (0 + (1 + 1) / 2 - 1/2)
    expected = (-math.log(2) + 2.5 - 0.5) + 0.5
    assert_table([expected], DiagonalGaussian((2,)).kl(GAUSSIAN, rows([0.0, 0.0, 0.0, 0.0])))


def test_gaussian_with_a_tanh_behind_its_means_is_that_without_it_at_their_tanh():
    # tanh(1) = 0.7615941559557649
    plain, bounded = DiagonalGaussian((2,)), DiagonalGaussian((2,), tanh_mean=True)
    same = rows([0.7615941559557649, -0.7615941559557649, math.log(2), 0.0])
    action, uniforms, other = rows([3.0, -1.0]), rows([0.3, 0.6]), rows([0.0, 0.0, 0.0, 0.0])

    assert_table([[0.7615941559557649, -0.7615941559557649]], bounded.mode(GAUSSIAN))
    assert_table(plain.log_prob(same, action).tolist(), bounded.log_prob(GAUSSIAN, action))
    assert_table(plain.sample(same, uniforms).tolist(), bounded.sample(GAUSSIAN, uniforms))
    assert_table(plain.kl(same, other).tolist(), bounded.kl(GAUSSIAN, other))
    assert_table(plain.entropy(GAUSSIAN).tolist(), bounded.entropy(GAUSSIAN))


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_gaussian_actions_have_the_spaces_shape(shape):
    distribution = DiagonalGaussian(shape)
    params = torch.randn(5, 2 * distribution.n_uniforms)

    action = distribution.sample(params, torch.rand(5, distribution.n_uniforms, dtype=F64))

    assert action.shape == (5, *shape)
    assert distribution.log_prob(params, action).shape == (5,)
    assert action.dtype == torch.float32


def test_gaussian_draws_have_their_mean_and_deviation():
    uniforms = torch.from_numpy(np.random.default_rng(0).random((20_000, 2)))

    action = DiagonalGaussian((2,)).sample(GAUSSIAN.expand(20_000, 4), uniforms)

    np.testing.assert_allclose(action.mean(0), [1, -1], atol=0.05)
    np.testing.assert_allclose(action.std(0), [2, 1], atol=0.03)


# composite


SPACE = spaces.Dict({"go": spaces.Discrete(3), "turn": spaces.Box(-1, 1, (2,)), "pair": spaces.MultiDiscrete([2, 2])})


def test_composite_log_prob_entropy_and_kl_are_the_sums_of_all_parts():
    distribution = Composite({"a": Categorical(2), "b": DiagonalGaussian((1,)), "c": Categorical(2)})
    params = torch.cat([logs([0.4, 0.6]), rows([1.0]), logs([0.1, 0.9]), rows([math.log(2)])], dim=-1)
    other = torch.cat([logs([0.5, 0.5]), rows([0.0]), logs([0.1, 0.9]), rows([0.0])], dim=-1)
    action = {"a": torch.tensor([1]), "b": rows([3.0]), "c": torch.tensor([0])}

    normal = -0.5 - math.log(2) - 0.5 * math.log(2 * math.pi)
    assert_table([math.log(0.6) + normal + math.log(0.1)], distribution.log_prob(params, action))
    gaussian_entropy = math.log(2) + 0.5 * math.log(2 * math.pi * math.e)
    assert_table(
        [gaussian_entropy - sum(p * math.log(p) for p in (0.4, 0.6, 0.1, 0.9))],
        distribution.entropy(params),
    )
    kl = 0.4 * math.log(0.8) + 0.6 * math.log(1.2) + (-math.log(2) + (4 + 1) / 2 - 0.5)
    assert_table([kl], distribution.kl(params, other))


def test_composite_parts_draw_from_uniforms_of_their_own():
    distribution = Composite({"a": Categorical(2), "b": DiagonalGaussian((1,)), "c": Categorical(2)})
    params = torch.cat([logs([0.4, 0.6]), rows([1.0]), logs([0.1, 0.9]), rows([math.log(2)])], dim=-1)

    action = distribution.sample(params, rows([0.5, 0.841344746068543, 0.05]))

    assert (3, [1], [0]) == (distribution.n_uniforms, action["a"].tolist(), action["c"].tolist())
    assert_table([[3.0]], action["b"].double(), rtol=1e-6)
    assert_table([[1.0]], distribution.mode(params)["b"].double(), rtol=1e-6)


@pytest.mark.parametrize("tanh_mean", [False, True])
@pytest.mark.parametrize("state_dependent_std", [False, True])
@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(4, start=2),
        spaces.MultiDiscrete([[2, 3], [4, 5]]),
        spaces.MultiBinary(3),
        spaces.Box(-2, 2, (3,)),
        SPACE,
        spaces.Tuple([spaces.Discrete(2), spaces.Dict({"x": spaces.Box(-1, 1, ())})]),
    ],
    ids=str,
)
def test_log_prob_of_a_part_of_any_space_integrates_with_its_entropy(space, state_dependent_std, tanh_mean):
    """The mean of -log_prob over many draws is the entropy."""
    torch.manual_seed(0)
    distribution = distribution_for(space, state_dependent_std=state_dependent_std, tanh_mean=tanh_mean)
    params = (0.5 * torch.randn(distribution.n_outputs + distribution.n_constants, dtype=F64)).expand(20_000, -1)
    uniforms = torch.from_numpy(np.random.default_rng(0).random((20_000, distribution.n_uniforms)))

    log_prob = distribution.log_prob(params, distribution.sample(params, uniforms))

    assert -log_prob.mean().item() == pytest.approx(distribution.entropy(params)[0].item(), abs=0.03)
    assert distribution.kl(params, params).abs().max() < 1e-12


@pytest.mark.parametrize("space", [spaces.Box(0, 5, (2,), np.int64), spaces.Text(3)], ids=["integers", "text"])
def test_other_spaces_are_refused(space):
    with pytest.raises(ConfigError, match="no distribution for actions of"):
        distribution_for(space)
