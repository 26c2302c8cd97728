"""Targets and losses of DDPG, TD3 and SAC against values worked out by hand.

Three transitions: the first goes on (discount 0.9), the second terminated (0), the third is a window of three (0.729).
"""

import pytest
import torch

from rlcli.losses.actor_critic import (
    bootstrap_target,
    clipped_double_target,
    deterministic_policy_loss,
    smoothed_action,
    soft_policy_loss,
    soft_target,
    soft_value,
    squared_error,
    temperature_loss,
)
from rlcli.losses.checks import ShapeError


def t(*values):
    return torch.tensor(values, dtype=torch.float64)


R, DISCOUNT = t(1.0, -2.0, 3.0), t(0.9, 0.0, 0.729)
Q1, Q2 = t(10.0, 7.0, -4.0), t(8.0, 9.0, -2.0)
LOG_PROB = t(-1.0, 2.0, 0.5)
ALPHA = torch.tensor(0.2, dtype=torch.float64)


def test_bootstrap_target_adds_the_discounted_value_unless_terminated(assert_table):
    # 1 + 0.9 * 10; -2; 3 + 0.729 * -4
    assert_table([10.0, -2.0, 0.084], bootstrap_target(R, DISCOUNT, Q1))


def test_clipped_double_target_takes_the_smaller_critic(assert_table):
    # 1 + 0.9 * 8; -2; 3 + 0.729 * -4
    assert_table([8.2, -2.0, 0.084], clipped_double_target(R, DISCOUNT, Q1, Q2))


def test_soft_value_is_the_smaller_critic_less_alpha_log_prob(assert_table):
    # 8 + 0.2; 7 - 0.4; -4 - 0.1
    assert_table([8.2, 6.6, -4.1], soft_value(Q1, Q2, LOG_PROB, ALPHA))


def test_soft_target_counts_neither_value_nor_entropy_after_a_termination(assert_table):
    # 1 + 0.9 * 8.2; -2; 3 + 0.729 * -4.1
    assert_table([8.38, -2.0, 0.0111], soft_target(R, DISCOUNT, Q1, Q2, LOG_PROB, ALPHA))


def test_squared_error_is_half_the_square(assert_table):
    # differences 2, -2 and -2; with a fourth of 3
    assert_table([2.0, 2.0, 2.0, 4.5], squared_error(torch.cat([Q1, t(1.0)]), torch.cat([Q2, t(-2.0)])))


def test_deterministic_policy_loss_is_minus_the_value(assert_table):
    assert_table([-10.0, -7.0, 4.0], deterministic_policy_loss(Q1))


def test_soft_policy_loss_weighs_log_prob_by_alpha_against_the_smaller_critic(assert_table):
    # -0.2 - 8; 0.4 - 7; 0.1 + 4
    assert_table([-8.2, -6.6, 4.1], soft_policy_loss(LOG_PROB, Q1, Q2, ALPHA))


def test_temperature_loss_table(assert_table):
    # -log_alpha (log_prob + H) at log_alpha -1.5, H -2: 1.5 * (-3, 0, -1.5); the zero as 1e-3 to be seen by the table
    log_alpha = torch.tensor(-1.5, dtype=torch.float64)

    assert_table([-4.5, 1.5e-3, -2.25], temperature_loss(log_alpha, LOG_PROB + t(0.0, 1e-3, 0.0), -2.0))


@pytest.mark.parametrize(("log_prob", "moves"), [(3.0, "up"), (1.0, "down")])
def test_alpha_rises_while_the_entropy_is_below_its_target_and_falls_above(log_prob, moves):
    # entropies -3 and -1, target -2
    log_alpha = torch.zeros((), dtype=torch.float64, requires_grad=True)

    temperature_loss(log_alpha, t(log_prob), -2.0).sum().backward()

    assert {"up": -1.0, "down": 1.0}[moves] == log_alpha.grad.item()


def test_smoothed_action_clips_the_noise_and_then_the_action(assert_table):
    # noise clipped to 0.5, then actions to [-1, 1]
    action, noise = t(0.1, 0.9, -0.8, 0.0)[None], t(0.2, 0.3, -7.0, 0.6)[None]

    assert_table([[0.3, 1.0, -1.0, 0.5]], smoothed_action(action, noise, 0.5))


def test_smoothing_without_clip_room_is_the_action_itself():
    assert torch.equal(t(0.1, 0.9)[None], smoothed_action(t(0.1, 0.9)[None], t(3.0, -3.0)[None], 0.0))
    with pytest.raises(ValueError, match="noise_clip"):
        smoothed_action(t(0.1)[None], t(0.1)[None], -0.1)


@pytest.mark.parametrize(
    "target",
    [
        lambda r, q: bootstrap_target(r, DISCOUNT, q),
        lambda r, q: clipped_double_target(r, DISCOUNT, q, q),
        lambda r, q: soft_target(r, DISCOUNT, q, q, q, ALPHA),
        lambda r, q: soft_value(q, q, r, ALPHA),
    ],
)
def test_no_gradient_flows_through_a_target(target):
    assert not target(R.clone().requires_grad_(), Q1.clone().requires_grad_()).requires_grad


def test_gradients_flow_into_what_is_trained_and_into_nothing_else():
    q, y = Q1.clone().requires_grad_(), Q2.clone().requires_grad_()
    squared_error(q, y).sum().backward()
    assert torch.equal(Q1 - Q2, q.grad)
    assert y.grad is None

    alpha, log_prob = ALPHA.clone().requires_grad_(), LOG_PROB.clone().requires_grad_()
    soft_policy_loss(log_prob, Q1, Q2, alpha).sum().backward()
    assert alpha.grad is None
    torch.testing.assert_close(torch.full_like(LOG_PROB, 0.2), log_prob.grad)

    log_alpha, log_prob = ALPHA.clone().requires_grad_(), LOG_PROB.clone().requires_grad_()
    temperature_loss(log_alpha, log_prob, -2.0).sum().backward()
    assert log_prob.grad is None
    assert log_alpha.grad is not None


def test_a_batch_of_one(assert_table):
    r, discount, q1, q2, log_prob = (x[:1] for x in (R, DISCOUNT, Q1, Q2, LOG_PROB))

    assert_table([10.0], bootstrap_target(r, discount, q1))  # 1 + 0.9 * 10
    assert_table([8.2], clipped_double_target(r, discount, q1, q2))  # 1 + 0.9 * 8
    assert_table([8.2], soft_value(q1, q2, log_prob, ALPHA))  # 8 + 0.2
    assert_table([8.38], soft_target(r, discount, q1, q2, log_prob, ALPHA))  # 1 + 0.9 * 8.2
    assert_table([2.0], squared_error(q1, q2))  # 2^2 / 2
    assert_table([-10.0], deterministic_policy_loss(q1))
    assert_table([-8.2], soft_policy_loss(log_prob, q1, q2, ALPHA))  # -0.2 - 8
    # 1.5 times -1 - 2
    assert_table([-4.5], temperature_loss(torch.tensor(-1.5, dtype=torch.float64), log_prob, -2.0))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("v_next", lambda: bootstrap_target(R, DISCOUNT, Q1[:2])),
        ("v_next", lambda: bootstrap_target(R, DISCOUNT, Q1[:, None])),
        ("discount_n", lambda: clipped_double_target(R, DISCOUNT.float(), Q1, Q2)),
        ("q2_next", lambda: clipped_double_target(R, DISCOUNT, Q1, Q2[:1])),
        ("log_prob", lambda: soft_value(Q1, Q2, LOG_PROB[:, None], ALPHA)),
        ("alpha", lambda: soft_value(Q1, Q2, LOG_PROB, ALPHA[None])),
        ("alpha", lambda: temperature_loss(ALPHA.float(), LOG_PROB, -1.0)),
        ("noise", lambda: smoothed_action(Q1[None], Q1, 0.5)),
        ("target", lambda: squared_error(Q1, Q2[:2])),
        ("q", lambda: deterministic_policy_loss(torch.ones(3, dtype=torch.int64))),
    ],
)
def test_wrong_shapes_and_dtypes_are_named(name, call):
    with pytest.raises(ShapeError, match=name):
        call()
