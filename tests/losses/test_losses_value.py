"""Targets and errors of action values."""

import pytest
import torch

from rlcli.losses.checks import ShapeError
from rlcli.losses.value import double_q_target, huber, q_target, td_error


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


R, DISCOUNT = f64(1, 2, 3), f64(0.5, 0.25, 0)
Q_TARGET = f64([2, 8], [4, -4], [100, 200])
Q_ONLINE = f64([3, 1], [1, 3], [5, 6])


def test_q_target_takes_the_best_next_action_and_none_after_termination(assert_table):
    # 1 + 0.5 * 8 = 5;  2 + 0.25 * 4 = 3;  3 + 0 = 3
    assert_table([5.0, 3.0, 3.0], q_target(R, DISCOUNT, Q_TARGET))


def test_double_q_target_lets_the_online_net_choose_and_the_target_net_judge(assert_table):
    # online picks 0, 1, 1:  1 + 0.5 * 2 = 2;  2 + 0.25 * -4 = 1;  3 + 0 = 3
    assert_table([2.0, 1.0, 3.0], double_q_target(R, DISCOUNT, Q_TARGET, Q_ONLINE))


def test_td_error_is_target_less_the_taken_actions_value(assert_table):
    # 10 - 8 = 2;  0 - 4 = -4;  1 - 200 = -199
    assert_table([2.0, -4.0, -199.0], td_error(Q_TARGET, torch.tensor([1, 0, 1]), f64(10, 0, 1)))


def test_a_batch_of_one(assert_table):
    # 2 + 0.25 * 4 = 3;  online picks 1: 2 + 0.25 * -4 = 1;  0 - 4 = -4
    r, discount, q, online = R[1:2], DISCOUNT[1:2], Q_TARGET[1:2], Q_ONLINE[1:2]

    assert_table([3.0], q_target(r, discount, q))
    assert_table([1.0], double_q_target(r, discount, q, online))
    assert_table([-4.0], td_error(q, torch.tensor([0]), f64(0)))


def test_td_error_sends_its_gradient_through_the_taken_action_alone():
    q, target = Q_TARGET.clone().requires_grad_(), f64(10, 0, 1).requires_grad_()

    td_error(q, torch.tensor([1, 0, 1]), target).sum().backward()

    assert q.grad.tolist() == [[0, -1], [-1, 0], [0, -1]]
    assert target.grad is None


def test_targets_carry_no_gradient():
    q = Q_TARGET.clone().requires_grad_()

    assert not q_target(R, DISCOUNT, q).requires_grad
    assert not double_q_target(R, DISCOUNT, q, q).requires_grad


def test_huber_is_a_parabola_inside_and_a_line_outside(assert_table):
    # delta 2:  0.5 * 1;  0.5 * 4;  2 * (3 - 1) = 4;  2 * (5 - 1) = 8
    assert_table([0.5, 2.0, 4.0, 8.0], huber(f64(1, 2, -3, 5), 2.0))


def test_huber_without_delta_is_half_the_square(assert_table):
    assert_table([0.5, 2.0, 4.5, 12.5], huber(f64(1, 2, -3, 5), None))


def test_huber_gradient_is_clipped_at_delta():
    x = f64(0.5, -0.5, 2, -3, 0).requires_grad_()

    huber(x, 1.0).sum().backward()

    assert x.grad.tolist() == [0.5, -0.5, 1, -1, 0]


@pytest.mark.parametrize("delta", [0.0, -1.0, float("nan")])
def test_huber_refuses_a_delta_not_above_0(delta):
    with pytest.raises(ValueError, match="delta: expected above 0"):
        huber(f64(1), delta)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("r", torch.zeros(3, 1, dtype=torch.float64)),
        ("discount_n", torch.zeros(3, 1, dtype=torch.float64)),
        ("discount_n", torch.zeros(3, dtype=torch.float32)),
        ("q_target_next", torch.zeros(3, dtype=torch.float64)),
        ("q_target_next", torch.zeros(1, 2, dtype=torch.float64)),
        ("q_online_next", torch.zeros(3, 4, dtype=torch.float64)),
    ],
)
def test_wrong_argument_of_a_target_is_named(name, bad):
    arguments = {"r": R, "discount_n": DISCOUNT, "q_target_next": Q_TARGET, "q_online_next": Q_ONLINE}

    with pytest.raises(ShapeError, match=f"^{name}: expected"):
        double_q_target(**(arguments | {name: bad}))


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("q", torch.zeros(3, dtype=torch.float64)),
        ("action", torch.zeros(3, 1, dtype=torch.int64)),
        ("action", torch.zeros(3, dtype=torch.int32)),
        ("target", torch.zeros(3, 1, dtype=torch.float64)),
    ],
)
def test_wrong_argument_of_td_error_is_named(name, bad):
    arguments = {"q": Q_TARGET, "action": torch.tensor([1, 0, 1]), "target": R}

    with pytest.raises(ShapeError, match=f"^{name}: expected"):
        td_error(**(arguments | {name: bad}))
