"""The squashed scale of values, and targets on it, against numbers worked out by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlcli.losses.checks import ShapeError
from rlcli.losses.value_rescale import rescale, rescaled_n_step_target, unscale

EPS = pytest.mark.parametrize("eps", [0.0, 1e-3, 0.1, 1.0])


def column(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)[:, None]


def flags(letters, which):
    return torch.tensor([letter in which for letter in letters])[:, None]


def target(word, reward, value, discount=0.5, n=2, eps=0.0):
    """One environment; a word has . a step, T terminated, U truncated, B both, _ filler."""
    stream = (flags(word, "TB"), flags(word, "UB"), flags(word, ".TUB"))
    return rescaled_n_step_target(column(*reward), column(*value), *stream, discount, n, eps)[:, 0]


# sqrt(3 + 1) - 1 = 1, sqrt(99 + 1) - 1 = 9, sqrt(0.21 + 1) - 1 = 0.1
@pytest.mark.parametrize(
    ("x", "eps", "y"),
    [
        ([3, -3, 0, 99], 0, [1, -1, 0, 9]),
        ([3], 0.1, [1.3]),
        ([-99], 0.01, [-9.99]),
        ([0.21, 0], 1e-3, [0.10021, 0]),
        ([0, 3], 1, [0, 4]),
    ],
)
def test_the_scale_and_its_inverse_are_the_table_worked_out_by_hand(assert_table, x, eps, y):
    x, y = column(*x), column(*y)
    assert_table(y, rescale(x, eps))
    assert_table(x, unscale(y, eps))


@given(st.floats(-1e9, 1e9), st.sampled_from([0.0, 1e-6, 1e-3, 0.1, 1.0]))
def test_there_and_back_is_where_it_began(x, eps):
    x = torch.tensor([x], dtype=torch.float64)
    torch.testing.assert_close(x, unscale(rescale(x, eps), eps), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(x, rescale(unscale(x, eps), eps), rtol=1e-12, atol=1e-14)


@EPS
def test_float32_loses_no_more_than_its_own_digits(eps):
    x = torch.logspace(-6, 6, 200)
    x = torch.cat([-x, torch.zeros(1), x])
    torch.testing.assert_close(x, unscale(rescale(x, eps), eps), rtol=1e-5, atol=1e-6)
    assert torch.equal(-unscale(x, eps), unscale(-x, eps))


@EPS
def test_the_scale_rises_and_its_slope_at_0_is_a_half_and_eps(eps):
    x = torch.linspace(-50, 50, 1001, dtype=torch.float64)
    assert (rescale(x, eps).diff() > 0).all()
    at_zero = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    rescale(at_zero, eps).backward()
    assert [pytest.approx(0.5 + eps)] == at_zero.grad.tolist()


# eps 0: h(x) = sign(x) (sqrt(|x| + 1) - 1), h^-1(y) = sign(y) ((|y| + 1)^2 - 1); discount 0.5, n 2.
# Values 1, 2, 3 are 3, 8, 15 on the rewards' scale.
@pytest.mark.parametrize(
    ("word", "reward", "value", "returns"),
    [
        ("...", [1, 2, 4], [9, 9, 2, 3], [1 + 1 + 8 / 4, 2 + 2 + 15 / 4, 4 + 15 / 2]),
        (".T_", [1, 2, 4], [9, 9, 2, 3], [1 + 1, 2, 0]),
        (".U_", [1, 2, 4], [9, 9, 2, 3], [1 + 1 + 8 / 4, 2 + 8 / 2, 0]),
        (".B_", [1, 2, 4], [9, 9, 2, 3], [1 + 1, 2, 0]),
        ("T_.", [1, 2, 4], [9, 9, 2, 3], [1, 0, 4 + 15 / 2]),
        ("T..", [1, 2, 4], [9, 9, 2, 3], [1, 2 + 2 + 15 / 4, 4 + 15 / 2]),  # a lost life
        ("._.", [1, 2, 4], [9, 1, 2, 3], [1 + 3 / 2, 0, 4 + 15 / 2]),  # a cut
        (".", [-5], [9, -2], [-5 - 8 / 2]),
    ],
    ids=["runs_on", "terminated", "truncated", "both", "filler_then_new", "lost_life", "cut", "n_exceeds_T"],
)
def test_targets_are_the_table_worked_out_by_hand(assert_table, word, reward, value, returns):
    expected = [math.copysign(math.sqrt(abs(g) + 1) - 1, g) if g else 0.0 for g in returns]
    assert_table(expected, target(word, reward, value))


@pytest.mark.parametrize(
    ("n", "returns"), [(1, [1, 1, 1, 2]), (2, [2, 2, 3, 2]), (3, [3, 4, 3, 2]), (4, [5, 4, 3, 2]), (9, [5, 4, 3, 2])]
)
def test_windows_have_n_rewards(assert_table, n, returns):
    assert_table(returns, target("....", [1, 1, 1, 1], [0, 0, 0, 0, 1], discount=1.0, n=n, eps=None))


def test_what_needs_an_unknown_value_is_unknown():
    found = target(".T_...", [1] * 6, [0, 0, 0, 0, 0, 0, math.nan])
    assert [False, False, False, False, True, True] == found.isnan().tolist()


def test_gradient_does_not_flow_through_targets():
    value = column(1, 2).requires_grad_()
    stream = (flags(".", "T"), flags(".", "U"), flags(".", "."))
    assert not rescaled_n_step_target(column(1), value, *stream, 0.9, 1, 1e-3).requires_grad


def test_wrong_arguments_are_refused_by_name():
    with pytest.raises(ValueError, match="eps: expected at least 0, got -1"):
        rescale(column(1), -1)
    with pytest.raises(ShapeError, match="value"):
        target("..", [1, 1], [1, 1])
    with pytest.raises(ShapeError, match="x: expected a floating dtype"):
        unscale(torch.ones(2, dtype=torch.int64), 0.1)
