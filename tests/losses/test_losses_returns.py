"""Returns and advantages: tables worked out by hand, and a slow reference in plain Python."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcli.losses.checks import ShapeError
from rlcli.losses.returns import gae, lambda_return, n_step_return


def stream(flags, reward, value):
    """One environment (B = 1) from a word: . step, T terminated, U truncated, B both, _ filler, C cut."""
    return SimpleNamespace(
        reward=torch.tensor(reward, dtype=torch.float64)[:, None],
        value=torch.tensor(value, dtype=torch.float64)[:, None],
        terminated=torch.tensor([f in "TB" for f in flags])[:, None],
        truncated=torch.tensor([f in "UBC" for f in flags])[:, None],
        valid=torch.tensor([f not in "_C" for f in flags])[:, None],
    )


def run(function, s, *args):
    return function(s.reward, s.value, s.terminated, s.truncated, s.valid, *args)


def advantages(flags, reward, value, discount, lambda_):
    return run(gae, stream(flags, reward, value), discount, lambda_)[:, 0]


def n_steps(flags, reward, value, discount, n):
    return run(n_step_return, stream(flags, reward, value), discount, n)[:, 0]


# discount 0.5, lambda 0.5, so each later delta counts a quarter.


def test_batch_end_bootstraps_from_the_last_value(assert_table):
    # delta_1 = 2 + 0.5 * 8 - 4 = 2      A_1 = 2
    # delta_0 = 1 + 0.5 * 4 - 2 = 1      A_0 = 1 + 0.25 * 2 = 1.5
    assert_table([1.5, 2.0], advantages("..", [1, 2], [2, 4, 8], 0.5, 0.5))


def test_terminated_step_does_not_bootstrap_and_cuts(assert_table):
    # delta_2 = 3 + 0.5 * 6 - 5 = 1      A_2 = 1
    # delta_1 = 2 + 0 - 4 = -2           A_1 = -2, the row after it is another life
    # delta_0 = 1 + 0.5 * 4 - 2 = 1      A_0 = 1 + 0.25 * -2 = 0.5
    assert_table([0.5, -2.0, 1.0], advantages(".T.", [1, 2, 3], [2, 4, 5, 6], 0.5, 0.5))


def test_truncated_step_bootstraps_from_its_successor_and_cuts(assert_table):
    # row 2 is the filler: its value 8 is V(final observation), its own advantage 0
    # delta_3 = 3 + 0.5 * 6 - 5 = 1      A_3 = 1
    # delta_1 = 2 + 0.5 * 8 - 4 = 2      A_1 = 2
    # delta_0 = 1 + 0.5 * 4 - 2 = 1      A_0 = 1 + 0.25 * 2 = 1.5
    assert_table([1.5, 2.0, 0.0, 1.0], advantages(".U_.", [1, 2, 99, 3], [2, 4, 8, 5, 6], 0.5, 0.5))


def test_both_flags_mean_terminated(assert_table):
    # delta_1 = 2 - 4 = -2               A_0 = 1 + 0.25 * -2 = 0.5
    assert_table([0.5, -2.0, 0.0, 1.0], advantages(".B_.", [1, 2, 99, 3], [2, 4, 8, 5, 6], 0.5, 0.5))


def test_idle_rows_give_zero_whatever_they_hold(assert_table):
    nan, inf = float("nan"), float("inf")
    # delta_0 = 1 - 2 = -1; delta_3 = 3 + 0.5 * 6 - 5 = 1
    assert_table([-1.0, 0.0, 0.0, 1.0], advantages("T__.", [1, nan, inf, 3], [2, nan, inf, 5, 6], 0.5, 0.5))


def test_life_loss_without_filler_cuts_the_recursion(assert_table):
    # delta_1 = 2 + 0.5 * 8 - 4 = 2      A_1 = 2
    # delta_0 = 1 - 2 = -1               A_0 = -1 although row 1 is valid
    assert_table([-1.0, 2.0], advantages("T.", [1, 2], [2, 4, 8], 0.5, 0.5))


def test_lambda_0_gives_the_one_step_error(assert_table):
    # 1 + 0.5 * 4 - 2 = 1;  2 + 0.5 * 8 - 4 = 2
    assert_table([1.0, 2.0], advantages("..", [1, 2], [2, 4, 8], 0.5, 0.0))


def test_lambda_1_gives_the_whole_return_less_the_value(assert_table):
    # 1 + 0.5 * 2 + 0.25 * 8 - 2 = 2;  2 + 0.5 * 8 - 4 = 2
    assert_table([2.0, 2.0], advantages("..", [1, 2], [2, 4, 8], 0.5, 1.0))


def test_factors_keep_the_precision_of_the_rewards(assert_table):
    # delta 1 twice; 0.9 * 0.7 = 0.63, which float32 does not hold to 1e-8
    assert_table([1.63, 1.0], advantages("..", [1, 1], [0, 0, 0], 0.9, 0.7))


def test_environments_do_not_mix(assert_table):
    a, b = stream(".T", [1, 2], [2, 4, 8]), stream("..", [1, 2], [2, 4, 8])
    both = SimpleNamespace(**{k: torch.cat([getattr(a, k), getattr(b, k)], 1) for k in vars(a)})

    # first column: delta_1 = 2 - 4 = -2, A_0 = 1 + 0.25 * -2 = 0.5; second as in the first test
    assert_table([[0.5, 1.5], [-2.0, 2.0]], run(gae, both, 0.5, 0.5))


def test_lambda_return_is_advantage_plus_value_and_zero_on_fillers(assert_table):
    # advantages 1.5, 2, 0, 1 of the truncation table, plus values 2, 4, -, 5
    s = stream(".U_.", [1, 2, 99, 3], [2, 4, 8, 5, 6])

    assert_table([3.5, 6.0, 0.0, 6.0], run(lambda_return, s, 0.5, 0.5)[:, 0])


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        # 1: r + 0.5 V(next); row 2 terminated: 4; rows 3 and 4: 8 + 0.5 * 32 = 24, 16 + 0.5 * 64 = 48
        (1, [1 + 4, 2 + 8, 4, 8 + 16, 16 + 32]),
        # 2: row 0: 1 + 1 + 0.25 * 16 = 6; row 1: 2 + 2 = 4; row 3: 8 + 8 + 0.25 * 64 = 32; row 4 meets the batch end
        (2, [6, 4, 4, 32, 48]),
        # 3: row 0: 1 + 1 + 1 = 3
        (3, [3, 4, 4, 32, 48]),
        (99, [3, 4, 4, 32, 48]),
    ],
)
def test_n_step_windows_stop_at_life_loss_and_batch_end(assert_table, n, expected):
    assert_table(expected, n_steps("..T..", [1, 2, 4, 8, 16], [4, 8, 16, 16, 32, 64], 0.5, n))


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        # value of the filler row 2 is V(final observation) = 16
        (1, [1 + 4, 2 + 8, 0, 8 + 16]),
        # 2: row 0: 1 + 1 + 0.25 * 16 = 6; row 1: the window of one row bootstraps from row 2
        (2, [6, 10, 0, 24]),
        (5, [6, 10, 0, 24]),
    ],
)
def test_n_step_windows_bootstrap_from_the_row_after_a_truncation(assert_table, n, expected):
    assert_table(expected, n_steps(".U_.", [1, 2, 99, 8], [4, 8, 16, 5, 32], 0.5, n))


def test_n_step_with_both_flags_does_not_bootstrap(assert_table):
    # row 0: 1 + 0.5 * 2 = 2; row 1: 2
    assert_table([2.0, 2.0, 0.0, 24.0], n_steps(".B_.", [1, 2, 99, 8], [4, 8, 16, 5, 32], 0.5, 3))


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        # row 2 is the cut, its value 16 is V(last observation); the new game begins in row 3
        (1, [1 + 4, 2 + 8, 0, 8 + 16]),
        # 2: row 0: 1 + 1 + 0.25 * 16 = 6; row 1: the window of one row bootstraps from row 2
        (2, [6, 10, 0, 24]),
        (5, [6, 10, 0, 24]),
    ],
)
def test_n_step_windows_bootstrap_from_the_cut_that_ends_them(assert_table, n, expected):
    assert_table(expected, n_steps("..C.", [1, 2, 99, 8], [4, 8, 16, 5, 32], 0.5, n))


def test_step_before_a_cut_bootstraps_from_the_cut_and_is_the_last_of_its_recursion(assert_table):
    # row 2 is the cut: its value 8 is V(last observation), its own advantage 0
    # delta_3 = 3 + 0.5 * 6 - 5 = 1      A_3 = 1
    # delta_1 = 2 + 0.5 * 8 - 4 = 2      A_1 = 2
    # delta_0 = 1 + 0.5 * 4 - 2 = 1      A_0 = 1 + 0.25 * 2 = 1.5
    assert_table([1.5, 2.0, 0.0, 1.0], advantages("..C.", [1, 2, 99, 3], [2, 4, 8, 5, 6], 0.5, 0.5))


def test_cut_behind_an_end_changes_nothing(assert_table):
    # row 0: terminated, 1 - 2 = -1; row 2: truncated, 3 + 0.5 * 6 - 5 = 1; row 4: 2 + 0.5 * 8 - 4 = 2
    assert_table([-1.0, 0.0, 1.0, 0.0, 2.0], advantages("TCUC.", [1, 99, 3, 99, 2], [2, 9, 5, 6, 4, 8], 0.5, 0.5))
    assert_table([1.0, 0.0, 6.0, 0.0, 6.0], n_steps("TCUC.", [1, 99, 3, 99, 2], [2, 9, 5, 6, 4, 8], 0.5, 3))


def test_lost_rows_behind_a_cut_give_zero_whatever_they_hold(assert_table):
    nan = float("nan")
    # row 0: 1 + 0.5 * 4 - 2 = 1; row 3: 3 + 0.5 * 6 - 5 = 1
    assert_table([1.0, 0.0, 0.0, 1.0], advantages(".C_.", [1, nan, nan, 3], [2, 4, nan, 5, 6], 0.5, 1.0))
    assert_table([3.0, 0.0, 0.0, 6.0], n_steps(".C_.", [1, nan, nan, 3], [2, 4, nan, 5, 6], 0.5, 3))


def reference_ends(s, t, b):
    """(ended, bootstrap value) of row t: how its successor counts."""
    if s.terminated[t, b]:
        return True, 0.0
    if s.truncated[t, b]:
        return True, float(s.value[t + 1, b])
    at_edge = t + 1 == len(s.reward) or not s.valid[t + 1, b]
    return at_edge, float(s.value[t + 1, b])


def reference_lambda(s, t, b, discount, lambda_):
    """G_t = r_t + discount ((1 - lambda) V(s_{t+1}) + lambda G_{t+1})."""
    if not s.valid[t, b]:
        return 0.0
    ended, value = reference_ends(s, t, b)
    later = value if ended else (1 - lambda_) * value + lambda_ * reference_lambda(s, t + 1, b, discount, lambda_)
    return float(s.reward[t, b]) + discount * later


def reference_n_step(s, t, b, discount, n):
    if not s.valid[t, b]:
        return 0.0
    total, factor = 0.0, 1.0
    for k in range(n):
        total += factor * float(s.reward[t + k, b])
        factor *= discount
        ended, value = reference_ends(s, t + k, b)
        if ended or k == n - 1:
            return total + factor * value
    raise AssertionError


@st.composite
def streams(draw):
    T, B = draw(st.integers(1, 9)), draw(st.integers(1, 3))
    words = [draw(st.text("...TUBLC_", min_size=T, max_size=T)) for _ in range(B)]
    numbers = st.floats(-10, 10, allow_subnormal=False)
    columns = []
    for word in words:
        legal = "".join(f if f != "_" or i == 0 or word[i - 1] in "TUBC_" else "." for i, f in enumerate(word))
        reward = draw(st.lists(numbers, min_size=T, max_size=T))
        value = draw(st.lists(numbers, min_size=T + 1, max_size=T + 1))
        columns.append(stream(legal.replace("L", "T"), reward, value))
    return SimpleNamespace(**{k: torch.cat([getattr(c, k) for c in columns], 1) for k in vars(columns[0])})


def each(s, f):
    T, B = s.reward.shape
    return torch.tensor([[f(t, b) for b in range(B)] for t in range(T)], dtype=torch.float64)


@settings(max_examples=150, deadline=None)
@given(streams(), st.sampled_from([0.0, 0.5, 0.99, 1.0]), st.sampled_from([0.0, 0.3, 0.95, 1.0]))
def test_lambda_return_equals_its_definition_on_any_stream(s, discount, lambda_):
    expected = each(s, lambda t, b: reference_lambda(s, t, b, discount, lambda_))

    torch.testing.assert_close(run(lambda_return, s, discount, lambda_), expected, rtol=1e-12, atol=1e-12)


@settings(max_examples=150, deadline=None)
@given(streams(), st.sampled_from([0.0, 0.5, 0.99, 1.0]), st.integers(1, 11))
def test_n_step_return_equals_its_definition_on_any_stream(s, discount, n):
    expected = each(s, lambda t, b: reference_n_step(s, t, b, discount, n))

    torch.testing.assert_close(run(n_step_return, s, discount, n), expected, rtol=1e-12, atol=1e-12)


def test_returns_carry_no_gradient():
    s = stream("..", [1, 2], [2, 4, 8])
    s.value.requires_grad_()

    assert not run(lambda_return, s, 0.5, 0.5).requires_grad
    assert not run(n_step_return, s, 0.5, 2).requires_grad


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("reward", torch.zeros(2, dtype=torch.float64)),
        ("reward", torch.zeros(2, 1, dtype=torch.int64)),
        ("value", torch.zeros(2, 1, dtype=torch.float64)),
        ("value", torch.zeros(3, 1, dtype=torch.float32)),
        ("terminated", torch.zeros(2, 1)),
        ("truncated", torch.zeros(2, dtype=torch.bool)),
        ("valid", torch.zeros(1, 1, dtype=torch.bool)),
    ],
)
def test_wrong_argument_is_named(name, bad):
    s = stream("..", [1, 2], [2, 4, 8])
    setattr(s, name, bad)

    with pytest.raises(ShapeError, match=f"^{name}: expected"):
        run(gae, s, 0.5, 0.5)
    with pytest.raises(ShapeError, match=f"^{name}: expected"):
        run(n_step_return, s, 0.5, 1)


def test_window_of_no_rows_is_refused():
    with pytest.raises(ValueError, match="n: expected at least 1, got 0"):
        run(n_step_return, stream("..", [1, 2], [2, 4, 8]), 0.5, 0)
