"""Terms of policy gradients."""

import math

import pytest
import torch

from rlcli.losses.checks import ShapeError
from rlcli.losses.policy import entropy, log_prob, policy_gradient


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


# softmax of (ln 1, ln 3) is (1/4, 3/4)
LOGITS = f64([0, math.log(3)], [math.log(3), 0])


def test_log_prob_is_the_taken_actions(assert_table):
    assert_table([math.log(0.75), math.log(0.75)], log_prob(LOGITS, torch.tensor([1, 0])))


def test_log_prob_takes_a_batch_in_time_order(assert_table):
    expected = [[math.log(0.25)], [math.log(0.25)]]

    assert_table(expected, log_prob(LOGITS[:, None], torch.tensor([[0], [1]])))


def test_entropy_is_in_nats(assert_table):
    # (1/4) ln 4 + (3/4) ln (4/3), and ln 2 for the fair coin
    mixed = 0.25 * math.log(4) + 0.75 * math.log(4 / 3)

    assert_table([mixed, math.log(2)], entropy(f64([0, math.log(3)], [7, 7])))


def test_forbidden_action_adds_neither_entropy_nor_nan():
    logits = f64(1, 1, -math.inf).requires_grad_()

    value = entropy(logits)
    value.backward()

    assert value.item() == pytest.approx(math.log(2))
    assert logits.grad.isfinite().all()


def test_policy_gradient_is_minus_log_prob_times_advantage(assert_table):
    assert_table([1.0, -6.0], policy_gradient(f64(-0.5, -2), f64(2, -3)))


def test_policy_gradient_takes_the_advantage_for_a_constant():
    log_p, advantage = f64(-0.5, -2).requires_grad_(), f64(2, -3).requires_grad_()

    policy_gradient(log_p, advantage).sum().backward()

    assert log_p.grad.tolist() == [-2, 3]
    assert advantage.grad is None


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: policy_gradient(f64(1, 2), f64([1], [2])), "advantage"),
        (lambda: policy_gradient(torch.tensor([1]), torch.tensor([1])), "log_prob"),
        (lambda: policy_gradient(f64(1), torch.ones(1)), "advantage"),
        (lambda: log_prob(LOGITS, torch.tensor([[1], [0]])), "action"),
        (lambda: log_prob(LOGITS, f64(1, 0)), "action"),
        (lambda: log_prob(torch.tensor([[1, 2]]), torch.tensor([0])), "logits"),
        (lambda: entropy(torch.tensor(1.0)), "logits"),
    ],
)
def test_wrong_argument_is_named(call, name):
    with pytest.raises(ShapeError, match=f"^{name}: expected"):
        call()
