"""Implicit quantile network: the quantile function of the return, at any probability that is asked for."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from rlcli.core.tree import Tree
from rlcli.models.heads import action_heads, through_heads
from rlcli.models.noisy import count_noise


class QuantileNetwork(nn.Module):
    """Quantiles of the return for each action, ``Z_tau(s, a) = f(psi(s) * phi(tau))_a`` (Dabney 2018b, section 3).

    psi is the trunk, f the head, and phi a dense layer on cosines of the probability tau (eq. 4).

    Args:
        trunk: Observation to features; has ``n_features``, ``head_hidden`` and ``activation`` (see
            `AutoModelConfig.build_for_streams`: the product comes before the last dense layer).
        n_actions: Number of discrete actions.
        n_cosines: Width of the embedding of tau.
        n_midpoints: Quantiles whose mean is an action's value.
        dueling: Whether the head is a `DuelingHead`, quantile by quantile.
        noisy: Whether the layers of the head are noisy.

    Attributes:
        midpoints: [n_midpoints] the probabilities (i + 1/2) / n_midpoints.
        n_noise: Normals that a draw of its noise takes; 0 if it is not noisy.
    """

    midpoints: Tensor
    _frequencies: Tensor

    def __init__(
        self,
        trunk: nn.Module,
        n_actions: int,
        *,
        n_cosines: int = 64,
        n_midpoints: int = 32,
        dueling: bool = False,
        noisy: bool = False,
    ) -> None:
        super().__init__()
        self.trunk = trunk
        self.phi = nn.Sequential(nn.Linear(n_cosines, int(trunk.n_features)), nn.ReLU())  # type: ignore[arg-type]
        self.advantage, self.streams = action_heads(trunk, n_actions, dueling, noisy)
        self.n_noise = count_noise(self)
        self.register_buffer("midpoints", (torch.arange(n_midpoints) + 0.5) / n_midpoints, persistent=False)
        self.register_buffer("_frequencies", math.pi * torch.arange(n_cosines), persistent=False)

    def quantiles(self, obs: Tree, tau: Tensor, noise: Tensor | None = None) -> Tensor:
        """[N, K, n_actions].

        Args:
            obs: Leaves [N, ...].
            tau: [N, K] probabilities in [0, 1], or [1, K] for all.
            noise: Normals [N, n_noise], of each sample its own, or [1, n_noise] for all; None: the mean weights.
        """
        features = self.trunk(obs)
        embedding = self.phi(torch.cos(tau[..., None] * self._frequencies))
        product = features[:, None] * embedding  # [N, K, n_features]
        n, k = product.shape[:2]
        if noise is not None and len(noise) > 1:  # each sample's is that of all its quantiles
            noise = noise.repeat_interleave(k, dim=0)
        return through_heads(self.advantage, self.streams, product.flatten(0, 1), noise).view(n, k, -1)

    def forward(self, obs: Tree, noise: Tensor | None = None) -> Tensor:
        """Action values [N, n_actions]: means over evenly spaced quantiles, the same ones each time."""
        return self.quantiles(obs, self.midpoints[None], noise).mean(dim=1)
