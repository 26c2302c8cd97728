"""Distributions of returns on fixed atoms: projection, target, divergence; per transition, nothing reduced.

z are the atoms: M evenly spaced returns, rising.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlcli.losses.checks import ShapeError, check_dtype, check_float, check_rank, check_shape


@torch.no_grad()
def project(z_from: Tensor, p: Tensor, z: Tensor) -> Tensor:
    """Move probabilities to the atoms: each to its two neighbours, the nearer the more, ends beyond to the last atom.

    m_i = sum_j [1 - |clip(z_from_j, z_1, z_M) - z_i| / dz]_0^1 p_j

    Source: Bellemare 2017 (arXiv 1707.06887), eq. 7, which is algorithm 1 without its split into floor and ceiling:
    what falls on an atom keeps its mass.

    Args:
        z_from: [N, K] float, where the probabilities are.
        p: [N, K] float, the probabilities.
        z: [M] float, the atoms, M at least 2.

    Returns:
        [N, M] float, of the same sum as ``p``.

    Raises:
        ShapeError: if ranks, shapes or dtypes do not fit.
    """
    check_rank(2, z_from=z_from)
    check_shape(z_from.shape, p=p)
    _check_atoms(z)
    check_float(z_from=z_from)
    check_dtype(z_from.dtype, p=p, z=z)
    dz = (z[-1] - z[0]) / (len(z) - 1)
    distance = (z_from.clamp(z[0], z[-1])[:, None, :] - z[:, None]).abs() / dz  # [N, M, K]
    return ((1 - distance).clamp(0, 1) @ p[..., None]).squeeze(-1)


@torch.no_grad()
def categorical_q_target(r: Tensor, discount_n: Tensor, p_next: Tensor, q_next: Tensor, z: Tensor) -> Tensor:
    """Distributional Q-learning target: that of r + discount_n Z'(s', argmax_a q_next(a)), projected to the atoms.

    Source: Bellemare 2017, algorithm 1; for a double target (van Hasselt 2016) let ``q_next`` be the online network's.

    Args:
        r: [N] float, (n-step) return from s to s'.
        discount_n: [N] float, discount from s to s'; 0 where the task terminated: all mass then lies at r.
        p_next: [N, A, M] float, target network's probabilities in s'.
        q_next: [N, A] float, the action values that choose.
        z: [M] float, the atoms.

    Returns:
        [N, M] float.

    Raises:
        ShapeError: if ranks, shapes or dtypes do not fit.
    """
    check_rank(1, r=r)
    check_rank(3, p_next=p_next)
    check_shape(r.shape, discount_n=discount_n)
    check_shape((len(r), p_next.shape[1], len(z)), p_next=p_next)
    check_shape(p_next.shape[:2], q_next=q_next)
    check_float(r=r)
    check_dtype(r.dtype, discount_n=discount_n, p_next=p_next, q_next=q_next)
    greedy = q_next.argmax(dim=1)
    chosen = p_next[torch.arange(len(r), device=r.device), greedy]
    return project(r[:, None] + discount_n[:, None] * z, chosen, z)


def cross_entropy(logits: Tensor, action: Tensor, m: Tensor) -> Tensor:
    """Cross-entropy -sum_i m_i log p_i(s, a); the gradient flows through the logits alone.

    Source: Bellemare 2017, algorithm 1, last line.

    Args:
        logits: [N, A, M] float, unnormalised, in s.
        action: [N] int64, index of the action taken.
        m: [N, M] float, target probabilities.

    Returns:
        [N] float.

    Raises:
        ShapeError: if ranks, shapes or dtypes do not fit.
    """
    check_rank(3, logits=logits)
    check_shape(logits.shape[:1], action=action)
    check_shape((logits.shape[0], logits.shape[2]), m=m)
    check_float(logits=logits)
    check_dtype(logits.dtype, m=m)
    check_dtype(torch.int64, action=action)
    log_p = logits[torch.arange(len(action), device=logits.device), action].log_softmax(dim=-1)
    return -(m.detach() * log_p).sum(dim=-1)


def entropy_of(m: Tensor) -> Tensor:
    """Entropy -sum_i m_i log m_i, nats; 0 log 0 is 0. The cross-entropy less it is the divergence KL(m, p).

    Args:
        m: [..., M] float, probabilities.

    Returns:
        [...] float.

    Raises:
        ShapeError: if the dtype does not fit.
    """
    check_float(m=m)
    return -torch.xlogy(m, m).sum(dim=-1)


def _check_atoms(z: Tensor) -> None:
    check_rank(1, z=z)
    if len(z) < 2:
        raise ShapeError(f"z: expected at least 2 atoms, got {len(z)}")
