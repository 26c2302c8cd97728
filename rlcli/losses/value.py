"""Targets and errors of action values; one number per transition, nothing reduced."""

from __future__ import annotations

import torch
from torch import Tensor

from rlcli.losses.checks import check_dtype, check_float, check_rank, check_shape


@torch.no_grad()
def q_target(r: Tensor, discount_n: Tensor, q_target_next: Tensor) -> Tensor:
    """Q-learning target, y = r + discount_n max_a Q'(s', a). No gradient flows through it.

    Source: Mnih et al. 2015, Human-level control through deep reinforcement learning, algorithm 1.

    Args:
        r: [N] float, (n-step) return from s to s'.
        discount_n: [N] float, discount from s to s'; 0 where the task terminated.
        q_target_next: [N, A] float, target network's values in s'.

    Returns:
        [N] float.

    Raises:
        ShapeError: if ranks, shapes or dtypes do not fit.
    """
    _check_transition(r, discount_n, q_target_next=q_target_next)
    return r + discount_n * q_target_next.amax(dim=1)


@torch.no_grad()
def double_q_target(r: Tensor, discount_n: Tensor, q_target_next: Tensor, q_online_next: Tensor) -> Tensor:
    """Double-DQN target, y = r + discount_n Q'(s', argmax_a Q(s', a)). No gradient flows through it.

    Source: van Hasselt et al. 2016, Deep reinforcement learning with double Q-learning, eq. 4.

    Args:
        r: [N] float, (n-step) return from s to s'.
        discount_n: [N] float, discount from s to s'; 0 where the task terminated.
        q_target_next: [N, A] float, target network's values in s': they are used.
        q_online_next: [N, A] float, online network's values in s': they choose.

    Returns:
        [N] float.

    Raises:
        ShapeError: if ranks, shapes or dtypes do not fit.
    """
    _check_transition(r, discount_n, q_target_next=q_target_next, q_online_next=q_online_next)
    greedy = q_online_next.argmax(dim=1, keepdim=True)
    return r + discount_n * q_target_next.gather(1, greedy).squeeze(1)


def td_error(q: Tensor, action: Tensor, target: Tensor) -> Tensor:
    """Temporal-difference error, target - Q(s, a); the gradient flows through Q alone.

    Args:
        q: [N, A] float, values in s.
        action: [N] int64, index of the action taken.
        target: [N] float.

    Returns:
        [N] float.

    Raises:
        ShapeError: if ranks, shapes or dtypes do not fit.
    """
    check_rank(2, q=q)
    check_shape(q.shape[:1], action=action, target=target)
    check_float(q=q)
    check_dtype(q.dtype, target=target)
    check_dtype(torch.int64, action=action)
    return target.detach() - q.gather(1, action[:, None]).squeeze(1)


def huber(x: Tensor, delta: float | None) -> Tensor:
    """Huber loss: x^2 / 2 up to |x| = delta, from there on the straight line delta (|x| - delta / 2).

    Source: Huber 1964, Robust estimation of a location parameter.

    Args:
        x: Float of any shape.
        delta: Where the parabola ends, above 0; None for a parabola without end.

    Returns:
        Float of the shape of ``x``.

    Raises:
        ShapeError: if ``x`` is not floating.
        ValueError: if delta is not above 0.
    """
    check_float(x=x)
    if delta is None:
        return 0.5 * x.square()
    if not delta > 0:
        raise ValueError(f"delta: expected above 0 or None, got {delta}")
    size = x.abs()
    inside = size.clamp(max=delta)
    return 0.5 * inside.square() + delta * (size - inside)


def _check_transition(r: Tensor, discount_n: Tensor, **q: Tensor) -> None:
    check_rank(1, r=r)
    check_shape(r.shape, discount_n=discount_n)
    check_rank(2, **q)
    n_actions = next(iter(q.values())).shape[1]
    check_shape((r.shape[0], n_actions), **q)
    check_float(r=r)
    check_dtype(r.dtype, discount_n=discount_n, **q)
