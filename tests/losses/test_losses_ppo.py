"""Terms of PPO; each table has its working beside it."""

import math

import pytest
import torch

from rlcli.losses.checks import ShapeError
from rlcli.losses.policy import (
    approximate_kl,
    clipped_surrogate,
    clipped_value_error,
    explained_variance,
    is_clipped,
    normalized_advantage,
    value_error,
)


def t(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("expected", "ratio", "advantage"),
    [
        (-2.0, 1.0, 2.0),
        (-2.2, 1.1, 2.0),  # inside
        (-2.4, 1.5, 2.0),  # clipped at 1.2: -1.2 * 2
        (-1.0, 0.5, 2.0),  # a good action made unlikely is not clipped: -0.5 * 2
        (1.6, 0.5, -2.0),  # a bad one, clipped at 0.8: 0.8 * 2
        (3.0, 1.5, -2.0),  # a bad action made likely is not clipped: 1.5 * 2
    ],
)
def test_clipped_surrogate_is_that_of_the_table(assert_table, expected, ratio, advantage):
    old = t(-0.7)

    assert_table([expected], clipped_surrogate(old + math.log(ratio), old, t(advantage), 0.2))


def test_clipped_surrogate_has_no_gradient_where_it_is_clipped(assert_table):
    log_prob = t(math.log(1.5), math.log(1.5), math.log(0.9)).requires_grad_()

    clipped_surrogate(log_prob, t(0.0, 0.0, 0.0), t(1.0, -1.0, 1.0), 0.2).sum().backward()

    assert_table([0.0, 1.5, -0.9], log_prob.grad)


def test_no_gradient_reaches_old_log_probs_advantages_or_old_values():
    constants = [t(0.1).requires_grad_() for _ in range(5)]
    x = t(0.3).requires_grad_()

    (clipped_surrogate(x, constants[0], constants[1], 0.2) + clipped_value_error(x, *constants[2:4], 0.2)).backward()
    value_error(x, constants[4]).backward()

    assert [None] * 5 == [c.grad for c in constants]


@pytest.mark.parametrize(
    ("expected", "value", "old", "target"),
    [
        (0.5, 1.0, 1.0, 2.0),  # (1 - 2)^2 / 2
        (0.845, 1.5, 0.5, 2.0),  # moved to 0.7 at most: max(0.25, 1.69) / 2
        (0.845, 0.5, 1.5, 0.0),  # the same downwards: to 1.3, max(0.25, 1.69) / 2
        (2.0, 4.0, 2.0, 2.0),  # too far past the target: max(4, 0.04) / 2
    ],
)
def test_clipped_value_error_is_the_larger_of_both(assert_table, expected, value, old, target):
    assert_table([expected], clipped_value_error(t(value), t(old), t(target), 0.2))


def test_value_error_is_half_the_square(assert_table):
    assert_table([0.5, 4.5], value_error(t(1.0, 5.0), t(2.0, 2.0)))
    assert_table([4.5], value_error(t(5.0), t(2.0)))


def test_approximate_kl_is_that_of_the_table(assert_table):
    # r = 2: 2 - 1 - ln 2; r = 1/2: 1/2 - 1 + ln 2
    ln2 = math.log(2)

    assert_table([1 - ln2, -0.5 + ln2, 0.0], approximate_kl(t(ln2, -ln2, 0.0), t(0.0, 0.0, 0.0)))
    assert_table([1 - ln2], approximate_kl(t(ln2), t(0.0)))


def test_approximate_kl_is_that_of_the_distributions_on_average(assert_table):
    p, q = t(0.2, 0.5, 0.3), t(0.3, 0.3, 0.4)

    kl = (p * approximate_kl(q.log(), p.log())).sum()

    assert_table((p * (p / q).log()).sum(), kl)


def test_a_ratio_counts_as_clipped_beyond_the_bounds(assert_table):
    assert_table([0.0, 1.0, 1.0, 0.0], is_clipped(t(1.19, 1.21, 0.79, 0.81).log(), t(1.0, 1.0, 1.0, 1.0).log(), 0.2))


def test_normalised_advantages_leave_fillers_out(assert_table):
    advantage, valid = t(1.0, 3.0, 5.0, 1e6), torch.tensor([True, True, True, False])

    # mean 3, deviation sqrt(8 / 3), to which 1e-8 is added
    assert_table(t(-2.0, 0.0, 2.0) / (math.sqrt(8 / 3) + 1e-8), normalized_advantage(advantage, valid)[:3])


def test_normalised_advantage_of_one_row_is_zero():
    assert [0.0] == normalized_advantage(t(7.0), torch.tensor([True])).tolist()


def test_explained_variance_is_that_of_the_table(assert_table):
    valid = torch.tensor([True, True, True, False])
    returns = t(1.0, 2.0, 3.0, 99.0)

    # errors 0, 0, 1.5: variance 1/2; that of the returns 2/3
    assert_table(0.25, explained_variance(t(1.0, 2.0, 1.5, 0.0), returns, valid))
    assert_table(1.0, explained_variance(returns + 5, returns, valid))
    assert 0.0 == explained_variance(t(0.0, 0.0, 0.0, 0.0), returns, valid).item()
    assert math.isnan(explained_variance(returns, t(1.0, 1.0, 1.0, 5.0), valid))


@pytest.mark.parametrize("function", [value_error, approximate_kl])
def test_other_shapes_or_dtypes_are_refused(function):
    with pytest.raises(ShapeError):
        function(t(1.0, 2.0), t(1.0))
    with pytest.raises(ShapeError):
        function(t(1.0), torch.tensor([1.0]))
