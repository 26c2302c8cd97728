"""A normal distribution squashed into (-1, 1) by tanh: the policy of SAC.

Source: Haarnoja et al. 2018 (arXiv 1801.01290), appendix C. Everything is in normalised units: a density over the box
[-1, 1]^D, whatever the environment's bounds are.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
"""Bounds of the logarithm of the deviation (Haarnoja's code, rlpyt, stable-baselines3)."""


def normals(uniforms: Tensor) -> Tensor:
    """Standard normals by the inverse of the cumulative distribution; finite for every uniform in [0, 1).

    Args:
        uniforms: float64 of any shape, in [0, 1).
    """
    # the nearest doubles inside (0, 1); the smallest that is drawn beside 0 is 2 ** -53
    z: Tensor = torch.special.ndtri(uniforms.clamp(2.0**-54, 1.0 - 2.0**-53))
    return z


def log_prob(mean: Tensor, log_std: Tensor, u: Tensor) -> Tensor:
    """Log density of a = tanh(u) where u ~ Normal(mean, exp(log_std)), summed over the dimensions.

    ``log p(a) = sum_i log N(u_i) - log(1 - tanh(u_i)^2)``, the second term as 2 (log 2 - u - softplus(-2 u)), which
    neither overflows nor loses its digits where tanh is flat.

    Args:
        mean: [N, D] float.
        log_std: [N, D] float.
        u: [N, D] float, before the tanh.

    Returns:
        [N] float, nats.
    """
    z = (u - mean) * torch.exp(-log_std)
    gaussian = -0.5 * z.square() - log_std - 0.5 * math.log(2.0 * math.pi)
    correction = 2.0 * (math.log(2.0) - u - F.softplus(-2.0 * u))
    return (gaussian - correction).sum(dim=-1)


def sample(mean: Tensor, log_std: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """A reparameterised action and its log density: gradients flow through both into ``mean`` and ``log_std``.

    Args:
        mean: [N, D] float.
        log_std: [N, D] float.
        z: [N, D] float, standard normals.

    Returns:
        Actions [N, D] in [-1, 1] and log densities [N].
    """
    u = mean + log_std.exp() * z
    return torch.tanh(u), log_prob(mean, log_std, u)
