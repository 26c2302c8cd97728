"""IQN (implicit quantile network): the quantile function of the return, by quantile regression at random tau.

Source: Dabney 2018b (arXiv 1806.06923), section 3. Departures: see docs/algos/iqn.md.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from rlcli.algos.draws import Draws
from rlcli.algos.q_learning import Judged, draw_noise
from rlcli.core.tree import Tree
from rlcli.losses.quantile import quantile_huber, quantile_q_target
from rlcli.replay.replay import ReplayBatch


class ImplicitNetwork(Protocol):
    """What the loss needs of a network."""

    @property
    def midpoints(self) -> Tensor:
        """[K] probabilities whose quantiles' mean is the action's value."""

    def quantiles(self, obs: Tree, tau: Tensor, noise: Tensor | None = None) -> Tensor:
        """[N, K, A] at the probabilities tau [N, K]."""

    def __call__(self, obs: Tree, noise: Tensor | None = None, /) -> Tensor:
        """Action values [N, A]."""


class QuantileLoss:
    """Quantile Huber loss between quantiles at random probabilities and random samples of the target.

    Args:
        double: Whether the online network chooses the next action.
        n_tau: N, quantiles of the online network.
        n_tau_target: N', samples of the target.
        kappa: Where Huber's parabola ends.
    """

    def __init__(self, double: bool, n_tau: int, n_tau_target: int, kappa: float) -> None:
        self._double, self._n_tau, self._n_tau_target, self._kappa = double, n_tau, n_tau_target, kappa

    def __call__(self, online: ImplicitNetwork, target: ImplicitNetwork, batch: ReplayBatch, draws: Draws) -> Judged:
        """See `Loss`."""
        y = self._target(online, target, batch, draws)
        tau = draws.uniform(len(y), self._n_tau)
        theta = online.quantiles(batch.obs, tau, draw_noise(online, draws))
        chosen = theta[torch.arange(len(y), device=y.device), :, batch.action]
        loss = quantile_huber(chosen, tau, y, self._kappa)
        q = chosen.detach().mean(dim=1)
        return Judged(loss, priority=loss.detach(), delta=y.mean(dim=1) - q, q=q)

    @torch.no_grad()
    def _target(self, online: ImplicitNetwork, target: ImplicitNetwork, batch: ReplayBatch, draws: Draws) -> Tensor:
        tau = draws.uniform(len(batch.return_), self._n_tau_target)
        k = 0 if self._double else len(target.midpoints)  # one pass for the values that choose and for the samples
        asked = torch.cat([target.midpoints[:k].expand(len(tau), -1), tau], dim=1)
        theta = target.quantiles(batch.next_obs, asked, draw_noise(target, draws))
        chooses = online(batch.next_obs, draw_noise(online, draws)) if self._double else theta[:, :k].mean(dim=1)
        return quantile_q_target(batch.return_, batch.discount_n, theta[:, k:], chooses)
