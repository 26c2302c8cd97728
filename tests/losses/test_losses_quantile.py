"""Quantile regression."""

import pytest
import torch

from rlcli.losses.checks import ShapeError
from rlcli.losses.quantile import quantile_huber, quantile_q_target


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


THETA_NEXT = f64([[1, 10], [2, 20], [3, 30]], [[4, 40], [5, 50], [6, 60]])  # 2 transitions, 3 samples, 2 actions


def test_target_samples_are_those_of_the_chosen_action(assert_table):
    # action 1: 1 + 0.5 * {10, 20, 30};  action 0, but the task terminated: 7 each
    target = quantile_q_target(f64(1, 7), f64(0.5, 0), THETA_NEXT, f64([0, 1], [1, 0]))

    assert_table([[6, 11, 16], [7, 7, 7]], target)


def test_target_of_one_transition_takes_the_first_of_equal_actions(assert_table):
    assert_table([[2, 3, 4]], quantile_q_target(f64(1), f64(1), THETA_NEXT[:1], f64([5, 5])))


THETA, TAU, TARGET = f64([0, 2]), f64([0.25, 0.75]), f64([1, -3])  # one transition


def test_errors_below_a_high_quantile_and_above_a_low_one_cost_little(assert_table):
    # theta 0, tau 1/4: d = 1: 0.25 * 0.5;  d = -3: 0.75 * 2.5;  mean 1
    # theta 2, tau 3/4: d = -1: 0.25 * 0.5;  d = -5: 0.25 * 4.5;  mean 0.625
    assert_table([1.625], quantile_huber(THETA, TAU, TARGET, 1.0))


def test_loss_is_divided_by_kappa(assert_table):
    # d = 1: 0.25 * 0.5 / 2;  d = -3: 0.75 * 2 (3 - 1) / 2;  mean 0.78125
    # d = -1: 0.25 * 0.5 / 2;  d = -5: 0.25 * 2 (5 - 1) / 2;  mean 0.53125
    assert_table([1.3125], quantile_huber(THETA, TAU, TARGET, 2.0))


def test_quantiles_may_be_more_or_fewer_than_samples(assert_table):
    # d = 1 alone, for three quantiles at 0: 0.5 * (0.1 + 0.5 + 0.9)
    assert_table([0.75], quantile_huber(f64([0, 0, 0]), f64([0.1, 0.5, 0.9]), f64([1]), 1.0))


def test_gradient_is_the_clipped_error_weighted_and_none_reaches_the_target():
    theta, target = THETA.clone().requires_grad_(), TARGET.clone().requires_grad_()

    quantile_huber(theta, TAU, target, 1.0).sum().backward()

    # minus the means of 0.25 * 1, 0.75 * -1 and of 0.25 * -1, 0.25 * -1
    torch.testing.assert_close(theta.grad, f64([0.25, 0.25]))
    assert target.grad is None


def test_descent_finds_the_quantiles_of_the_samples():
    target = torch.arange(101, dtype=torch.float64)[None]
    tau = f64([0.1, 0.5, 0.9])
    theta = torch.full((1, 3), 40.0, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([theta], lr=2.0)
    for _ in range(600):
        optimizer.zero_grad()
        quantile_huber(theta, tau, target, 0.1).sum().backward()
        optimizer.step()

    torch.testing.assert_close(theta.detach(), f64([10, 50, 90]), atol=1.0, rtol=0)


@pytest.mark.parametrize("kappa", [0.0, -1.0])
def test_kappa_not_above_0_is_refused(kappa):
    with pytest.raises(ValueError, match="delta: expected above 0"):
        quantile_huber(THETA, TAU, TARGET, kappa)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("theta", torch.zeros(2, dtype=torch.float64)),
        ("tau", torch.zeros(1, 3, dtype=torch.float64)),
        ("tau", torch.zeros(1, 2, dtype=torch.float32)),
        ("target", torch.zeros(2, 2, dtype=torch.float64)),
        ("target", torch.zeros(2, dtype=torch.float64)),
    ],
)
def test_wrong_argument_of_the_loss_is_named(name, bad):
    with pytest.raises(ShapeError, match=f"^{name}: expected"):
        quantile_huber(**({"theta": THETA, "tau": TAU, "target": TARGET, "kappa": 1.0} | {name: bad}))


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("r", torch.zeros(2, 1, dtype=torch.float64)),
        ("discount_n", torch.zeros(1, dtype=torch.float64)),
        ("theta_next", torch.zeros(2, 2, dtype=torch.float64)),
        ("q_next", torch.zeros(1, 2, dtype=torch.float64)),
        ("q_next", torch.zeros(2, 2, dtype=torch.float32)),
    ],
)
def test_wrong_argument_of_the_target_is_named(name, bad):
    zeros = torch.zeros(2, dtype=torch.float64)
    arguments = {"r": zeros, "discount_n": zeros, "theta_next": THETA_NEXT, "q_next": THETA_NEXT[:, 0]}

    with pytest.raises(ShapeError, match=f"^{name}: expected"):
        quantile_q_target(**(arguments | {name: bad}))
