"""Terms of policy gradients; one number per decision, nothing reduced."""

from __future__ import annotations

import torch
from torch import Tensor

from rlcli.losses.checks import ShapeError, check_dtype, check_float, check_shape


def policy_gradient(log_prob: Tensor, advantage: Tensor) -> Tensor:
    """Loss -log pi(a|s) A(s, a): descending it climbs the expected return. The advantage is a constant.

    Source: Sutton & Barto 2018, section 13.5.

    Args:
        log_prob: Float of any shape, of the actions taken.
        advantage: The same shape and dtype.

    Returns:
        Float of that shape.

    Raises:
        ShapeError: if shapes or dtypes do not fit.
    """
    check_shape(log_prob.shape, advantage=advantage)
    check_float(log_prob=log_prob)
    check_dtype(log_prob.dtype, advantage=advantage)
    return -log_prob * advantage.detach()


def log_prob(logits: Tensor, action: Tensor) -> Tensor:
    """Logarithm of pi(a|s) of a categorical policy.

    Args:
        logits: [..., A] float, unnormalised.
        action: [...] int64, index of the action taken.

    Returns:
        [...] float.

    Raises:
        ShapeError: if ranks, shapes or dtypes do not fit.
    """
    _check_logits(logits)
    check_shape(logits.shape[:-1], action=action)
    check_dtype(torch.int64, action=action)
    return logits.log_softmax(dim=-1).gather(-1, action[..., None]).squeeze(-1)


def entropy(logits: Tensor) -> Tensor:
    """Entropy -sum_a pi(a|s) log pi(a|s) of a categorical policy, nats. A logit of -inf (a forbidden one) adds 0.

    Args:
        logits: [..., A] float, unnormalised.

    Returns:
        [...] float.

    Raises:
        ShapeError: if the rank or dtype does not fit.
    """
    _check_logits(logits)
    log_p = logits.log_softmax(dim=-1)
    finite = log_p.clamp(min=torch.finfo(log_p.dtype).min)  # 0 * -inf would be nan
    return -(log_p.exp() * finite).sum(dim=-1)


def _check_logits(logits: Tensor) -> None:
    if logits.dim() < 1:
        raise ShapeError(f"logits: expected at least 1 dimension, got shape {tuple(logits.shape)}")
    check_float(logits=logits)
