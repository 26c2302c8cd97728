"""Targets and losses of actors and critics for continuous actions; one number per transition, nothing reduced.

Actions are in normalised units here: each dimension of the action box is [-1, 1].
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlcli.losses.checks import check_dtype, check_float, check_rank, check_shape


@torch.no_grad()
def bootstrap_target(r: Tensor, discount_n: Tensor, v_next: Tensor) -> Tensor:
    """Target of a critic, y = r + discount_n V(s'). No gradient flows through it.

    V is Q'(s', mu'(s')) in DDPG (Lillicrap et al. 2016, arXiv 1509.02971, algorithm 1), and the target network of V
    in the first SAC (Haarnoja et al. 2018, arXiv 1801.01290, eq. 8).

    Args:
        r: [N] float, (n-step) return from s to s'.
        discount_n: [N] float, discount from s to s'; 0 where the task terminated.
        v_next: [N] float, value of s'.

    Returns:
        [N] float.

    Raises:
        ShapeError: if ranks, shapes or dtypes do not fit.
    """
    _check_numbers(r=r, discount_n=discount_n, v_next=v_next)
    return r + discount_n * v_next


@torch.no_grad()
def clipped_double_target(r: Tensor, discount_n: Tensor, q1_next: Tensor, q2_next: Tensor) -> Tensor:
    """Target of both critics, y = r + discount_n min(Q1'(s', a'), Q2'(s', a')). No gradient flows through it.

    Source: Fujimoto et al. 2018 (TD3, arXiv 1802.09477), eq. 10.

    Args:
        r: [N] float, (n-step) return from s to s'.
        discount_n: [N] float, discount from s to s'; 0 where the task terminated.
        q1_next: [N] float, first target critic in s'.
        q2_next: [N] float, second target critic in s'.

    Returns:
        [N] float.

    Raises:
        ShapeError: if ranks, shapes or dtypes do not fit.
    """
    _check_numbers(r=r, discount_n=discount_n, q1_next=q1_next, q2_next=q2_next)
    return r + discount_n * torch.minimum(q1_next, q2_next)


@torch.no_grad()
def smoothed_action(action: Tensor, noise: Tensor, noise_clip: float) -> Tensor:
    """Target policy smoothing: the action plus clipped noise, clipped to the box. No gradient flows through it.

    Source: Fujimoto et al. 2018 (TD3), eq. 14.

    Args:
        action: [N, D] float in [-1, 1], of the target actor.
        noise: [N, D] float, normalised units.
        noise_clip: Largest size of the noise, at least 0.

    Returns:
        [N, D] float in [-1, 1].

    Raises:
        ShapeError: if ranks, shapes or dtypes do not fit.
        ValueError: if noise_clip is below 0.
    """
    check_rank(2, action=action)
    check_shape(action.shape, noise=noise)
    check_float(action=action)
    check_dtype(action.dtype, noise=noise)
    if not noise_clip >= 0:
        raise ValueError(f"noise_clip: expected at least 0, got {noise_clip}")
    return (action + noise.clamp(-noise_clip, noise_clip)).clamp(-1.0, 1.0)


@torch.no_grad()
def soft_value(q1: Tensor, q2: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
    """Soft value of a state by one sampled action, min(Q1, Q2) - alpha log pi(a|s). No gradient flows through it.

    Source: Haarnoja et al. 2018 (arXiv 1812.05905), eq. 3, with the smaller of two critics.

    Args:
        q1: [N] float, first critic at the sampled action.
        q2: [N] float, second critic there.
        log_prob: [N] float, of the sampled action.
        alpha: [] float, entropy coefficient.

    Returns:
        [N] float.

    Raises:
        ShapeError: if ranks, shapes or dtypes do not fit.
    """
    _check_numbers(q1=q1, q2=q2, log_prob=log_prob)
    _check_alpha(q1, alpha)
    return torch.minimum(q1, q2) - alpha * log_prob


@torch.no_grad()
def soft_target(
    r: Tensor, discount_n: Tensor, q1_next: Tensor, q2_next: Tensor, log_prob_next: Tensor, alpha: Tensor
) -> Tensor:
    """Target of both critics, y = r + discount_n (min(Q1', Q2')(s', a') - alpha log pi(a'|s')), a' ~ pi(.|s').

    After a termination neither value nor entropy is added. No gradient flows through it.

    Source: Haarnoja et al. 2018 (arXiv 1812.05905), eq. 5 and section 5 (two critics).

    Args:
        r: [N] float, (n-step) return from s to s'.
        discount_n: [N] float, discount from s to s'; 0 where the task terminated.
        q1_next: [N] float, first target critic at (s', a').
        q2_next: [N] float, second target critic there.
        log_prob_next: [N] float, log pi(a'|s').
        alpha: [] float, entropy coefficient.

    Returns:
        [N] float.

    Raises:
        ShapeError: if ranks, shapes or dtypes do not fit.
    """
    _check_numbers(r=r, discount_n=discount_n, q1_next=q1_next)
    return r + discount_n * soft_value(q1_next, q2_next, log_prob_next, alpha)


def squared_error(x: Tensor, target: Tensor) -> Tensor:
    """Half the square, 1/2 (x - y)^2; the gradient flows through ``x`` alone.

    Source: Haarnoja et al. 2018 (arXiv 1801.01290), eq. 5 and 7.

    Args:
        x: [N] float, a critic's or a value's output.
        target: [N] float.

    Returns:
        [N] float.

    Raises:
        ShapeError: if ranks, shapes or dtypes do not fit.
    """
    _check_numbers(x=x, target=target)
    return 0.5 * (x - target.detach()).square()


def deterministic_policy_loss(q: Tensor) -> Tensor:
    """Loss -Q(s, mu(s)): descending it moves the action up the critic.

    Source: Silver et al. 2014, Deterministic policy gradient algorithms, eq. 9; Lillicrap et al. 2016, eq. 6.

    Args:
        q: [N] float, the critic at the actor's own actions.

    Returns:
        [N] float.

    Raises:
        ShapeError: if the rank or dtype does not fit.
    """
    _check_numbers(q=q)
    return -q


def soft_policy_loss(log_prob: Tensor, q1: Tensor, q2: Tensor, alpha: Tensor) -> Tensor:
    """Loss alpha log pi(a|s) - min(Q1, Q2)(s, a) of a reparameterised action; alpha is a constant.

    Source: Haarnoja et al. 2018 (arXiv 1812.05905), eq. 9, with the smaller of two critics.

    Args:
        log_prob: [N] float, of an action that the gradient can flow through.
        q1: [N] float, first critic at that action.
        q2: [N] float, second critic there.
        alpha: [] float, entropy coefficient.

    Returns:
        [N] float.

    Raises:
        ShapeError: if ranks, shapes or dtypes do not fit.
    """
    _check_numbers(log_prob=log_prob, q1=q1, q2=q2)
    _check_alpha(q1, alpha)
    return alpha.detach() * log_prob - torch.minimum(q1, q2)


def temperature_loss(log_alpha: Tensor, log_prob: Tensor, target_entropy: float) -> Tensor:
    """Loss -log(alpha) (log pi(a|s) + H): alpha rises while the entropy is below H. The policy is a constant.

    Source: Haarnoja et al. 2018 (arXiv 1812.05905), eq. 18, there with alpha instead of its logarithm: the sign of the
    gradient is the same, and a small alpha does not slow itself down.

    Args:
        log_alpha: [] float, what is learned.
        log_prob: [N] float, of actions drawn from the policy.
        target_entropy: H, nats.

    Returns:
        [N] float.

    Raises:
        ShapeError: if ranks, shapes or dtypes do not fit.
    """
    _check_numbers(log_prob=log_prob)
    _check_alpha(log_prob, log_alpha)
    return -log_alpha * (log_prob.detach() + target_entropy)


def _check_numbers(**tensors: Tensor) -> None:
    first = next(iter(tensors.values()))
    check_rank(1, **tensors)
    check_shape(first.shape, **tensors)
    check_float(**tensors)
    check_dtype(first.dtype, **tensors)


def _check_alpha(like: Tensor, alpha: Tensor) -> None:
    check_rank(0, alpha=alpha)
    check_dtype(like.dtype, alpha=alpha)
