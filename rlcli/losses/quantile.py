"""Quantile regression of returns; one number per transition, nothing reduced."""

from __future__ import annotations

import torch
from torch import Tensor

from rlcli.losses.checks import check_dtype, check_float, check_rank, check_shape
from rlcli.losses.value import huber


@torch.no_grad()
def quantile_q_target(r: Tensor, discount_n: Tensor, theta_next: Tensor, q_next: Tensor) -> Tensor:
    """Samples of the target, r + discount_n Z'_tau(s', argmax_a q_next(a)). No gradient flows through them.

    Source: Dabney 2018b (arXiv 1806.06923), eq. 2; for a double target let ``q_next`` be the online network's.

    Args:
        r: [N] float, (n-step) return from s to s'.
        discount_n: [N] float, discount from s to s'; 0 where the task terminated.
        theta_next: [N, K', A] float, target network's quantiles in s'.
        q_next: [N, A] float, the action values that choose.

    Returns:
        [N, K'] float.

    Raises:
        ShapeError: if ranks, shapes or dtypes do not fit.
    """
    check_rank(1, r=r)
    check_rank(3, theta_next=theta_next)
    check_shape(r.shape, discount_n=discount_n)
    check_shape((len(r), theta_next.shape[1], q_next.shape[-1]), theta_next=theta_next)
    check_shape((len(r), theta_next.shape[2]), q_next=q_next)
    check_float(r=r)
    check_dtype(r.dtype, discount_n=discount_n, theta_next=theta_next, q_next=q_next)
    greedy = q_next.argmax(dim=1)
    chosen = theta_next[torch.arange(len(r), device=r.device), :, greedy]
    return r[:, None] + discount_n[:, None] * chosen


def quantile_huber(theta: Tensor, tau: Tensor, target: Tensor, kappa: float) -> Tensor:
    """Quantile Huber loss, sum_i mean_j |tau_i - 1{d_ij < 0}| L_kappa(d_ij) / kappa with d_ij = target_j - theta_i.

    The gradient flows through ``theta`` alone. Source: Dabney 2018b (arXiv 1806.06923), eq. 3 (the sum over the K
    quantiles, the mean over the K' samples of the target) and the equation before it.

    Args:
        theta: [N, K] float, quantiles of the action taken in s.
        tau: [N, K] float, their probabilities.
        target: [N, K'] float.
        kappa: Where the parabola ends, above 0.

    Returns:
        [N] float.

    Raises:
        ShapeError: if ranks, shapes or dtypes do not fit.
        ValueError: if kappa is not above 0.
    """
    check_rank(2, theta=theta, target=target)
    check_shape(theta.shape, tau=tau)
    check_shape((theta.shape[0], target.shape[1]), target=target)
    check_float(theta=theta)
    check_dtype(theta.dtype, tau=tau, target=target)
    delta = target.detach()[:, None, :] - theta[:, :, None]  # [N, K, K']
    weight = (tau[:, :, None] - (delta.detach() < 0).to(delta.dtype)).abs()
    return (weight * huber(delta, kappa) / kappa).mean(dim=2).sum(dim=1)
