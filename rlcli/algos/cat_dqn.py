"""C51 (categorical DQN): the distribution of the return on fixed atoms, by cross-entropy.

Source: Bellemare 2017 (arXiv 1707.06887), algorithm 1; priority KL: Hessel 2018 (arXiv 1710.02298). Departures: see
docs/algos/cat_dqn.md.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from rlcli.algos.draws import Draws
from rlcli.algos.q_learning import Judged, draw_noise
from rlcli.core.tree import Tree
from rlcli.losses.categorical_value import categorical_q_target, cross_entropy, entropy_of
from rlcli.replay.replay import ReplayBatch


class CategoricalNetwork(Protocol):
    """What the loss needs of a network."""

    @property
    def atoms(self) -> Tensor:
        """[M] the returns that have a probability."""

    def logits(self, obs: Tree, noise: Tensor | None = None) -> Tensor:
        """[N, A, M]."""


class CategoricalLoss:
    """Cross-entropy of the projected target distribution and the predicted one.

    Args:
        double: Whether the online network chooses the next action.
    """

    def __init__(self, double: bool) -> None:
        self._double = double

    def __call__(
        self, online: CategoricalNetwork, target: CategoricalNetwork, batch: ReplayBatch, draws: Draws
    ) -> Judged:
        """See `Loss`."""
        m = self._target(online, target, batch, draws)
        logits = online.logits(batch.obs, draw_noise(online, draws))
        loss = cross_entropy(logits, batch.action, m)
        chosen = logits.detach().softmax(dim=-1)[torch.arange(len(m), device=m.device), batch.action] @ online.atoms
        divergence = (loss.detach() - entropy_of(m)).clamp(min=0)  # by rounding it may be a little below
        return Judged(loss, priority=divergence, delta=m @ online.atoms - chosen, q=chosen)

    @torch.no_grad()
    def _target(
        self, online: CategoricalNetwork, target: CategoricalNetwork, batch: ReplayBatch, draws: Draws
    ) -> Tensor:
        p_next = target.logits(batch.next_obs, draw_noise(target, draws)).softmax(dim=-1)
        chooser = p_next
        if self._double:
            chooser = online.logits(batch.next_obs, draw_noise(online, draws)).softmax(dim=-1)
        q_next = chooser @ online.atoms
        return categorical_q_target(batch.return_, batch.discount_n, p_next, q_next, online.atoms)
