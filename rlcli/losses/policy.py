"""Terms of policy gradients; one number per decision, nothing reduced."""

from __future__ import annotations

import torch
from torch import Tensor

from rlcli.losses.checks import ShapeError, check_dtype, check_float, check_shape
from rlcli.losses.reduce import masked_mean


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


def clipped_surrogate(log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """Loss -min(r A, clip(r, 1 - clip, 1 + clip) A) with r = pi(a|s) / pi_old(a|s). The advantage is a constant.

    Source: Schulman et al. 2017, Proximal policy optimization algorithms, eq. 7.

    Args:
        log_prob: Float of any shape, of the actions taken.
        old_log_prob: The same shape and dtype, noted when acting; no gradient flows through it.
        advantage: The same shape and dtype.
        clip: At least 0.

    Returns:
        Float of that shape.

    Raises:
        ShapeError: if shapes or dtypes do not fit.
    """
    _check_same(log_prob, old_log_prob=old_log_prob, advantage=advantage)
    advantage = advantage.detach()
    ratio = (log_prob - old_log_prob.detach()).exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)


def value_error(value: Tensor, return_: Tensor) -> Tensor:
    """Loss (V - R)^2 / 2. The return is a constant.

    Args:
        value: Float of any shape.
        return_: The same shape and dtype.

    Returns:
        Float of that shape.

    Raises:
        ShapeError: if shapes or dtypes do not fit.
    """
    _check_same(value, return_=return_)
    return 0.5 * (value - return_.detach()) ** 2


def clipped_value_error(value: Tensor, old_value: Tensor, return_: Tensor, clip: float) -> Tensor:
    """Loss max((V - R)^2, (clip(V, V_old - clip, V_old + clip) - R)^2) / 2. The return is a constant.

    The larger of the two: a value that moved away from the old one by more than ``clip`` is not moved further.

    Source: Huang et al. 2022, The 37 implementation details of PPO, detail 9 (OpenAI's ppo2).

    Args:
        value: Float of any shape.
        old_value: The same shape and dtype, noted when acting; no gradient flows through it.
        return_: The same shape and dtype.
        clip: At least 0.

    Returns:
        Float of that shape.

    Raises:
        ShapeError: if shapes or dtypes do not fit.
    """
    _check_same(value, old_value=old_value, return_=return_)
    near = old_value.detach() + (value - old_value.detach()).clamp(-clip, clip)
    return torch.maximum(value_error(value, return_), value_error(near, return_))


@torch.no_grad()
def approximate_kl(log_prob: Tensor, old_log_prob: Tensor) -> Tensor:
    """Estimate of KL(pi_old, pi) from actions of pi_old, (r - 1) - log r with r = pi / pi_old; never negative.

    Source: Schulman 2020, Approximating KL divergence (k3).

    Args:
        log_prob: Float of any shape, of the actions taken.
        old_log_prob: The same shape and dtype.

    Returns:
        Float of that shape.

    Raises:
        ShapeError: if shapes or dtypes do not fit.
    """
    _check_same(log_prob, old_log_prob=old_log_prob)
    log_ratio = log_prob - old_log_prob
    return torch.expm1(log_ratio) - log_ratio


@torch.no_grad()
def is_clipped(log_prob: Tensor, old_log_prob: Tensor, clip: float) -> Tensor:
    """1 where the ratio of the probabilities lies outside 1 - clip to 1 + clip, else 0, as floats.

    Args:
        log_prob: Float of any shape, of the actions taken.
        old_log_prob: The same shape and dtype.
        clip: At least 0.

    Returns:
        Float of that shape.

    Raises:
        ShapeError: if shapes or dtypes do not fit.
    """
    _check_same(log_prob, old_log_prob=old_log_prob)
    return (((log_prob - old_log_prob).exp() - 1).abs() > clip).to(log_prob.dtype)


@torch.no_grad()
def normalized_advantage(advantage: Tensor, valid: Tensor) -> Tensor:
    """Advantages brought to mean 0 and deviation 1 over the valid elements; the others mean nothing.

    Args:
        advantage: Float of any shape.
        valid: Bool of the same shape.

    Returns:
        Float of that shape.

    Raises:
        ShapeError: if shapes or dtypes do not fit.
    """
    mean = masked_mean(advantage, valid)
    std = masked_mean((advantage - mean) ** 2, valid).sqrt()
    return (advantage - mean) / (std + 1e-8)


@torch.no_grad()
def explained_variance(value: Tensor, return_: Tensor, valid: Tensor) -> Tensor:
    """Share of the returns' variance that the values explain, 1 - Var(R - V) / Var(R), over the valid elements.

    1 is perfect, 0 no better than a constant; nan if the returns do not vary.

    Args:
        value: Float of any shape.
        return_: The same shape and dtype.
        valid: Bool of that shape.

    Returns:
        [] float.

    Raises:
        ShapeError: if shapes or dtypes do not fit.
    """
    _check_same(value, return_=return_)
    variance = _variance(return_, valid)
    return torch.where(variance > 0, 1 - _variance(return_ - value, valid) / variance, torch.nan)


def _variance(x: Tensor, valid: Tensor) -> Tensor:
    return masked_mean((x - masked_mean(x, valid)) ** 2, valid)


def _check_same(first: Tensor, **others: Tensor) -> None:
    check_float(first=first)
    check_shape(first.shape, **others)
    check_dtype(first.dtype, **others)


def _check_logits(logits: Tensor) -> None:
    if logits.dim() < 1:
        raise ShapeError(f"logits: expected at least 1 dimension, got shape {tuple(logits.shape)}")
    check_float(logits=logits)
