"""DQN: regression of action values on a one-number target.

Source: Mnih 2015 (doi 10.1038/nature14236); double: van Hasselt 2016 (arXiv 1509.06461); n-step: Sutton & Barto 2018,
section 7.1; priority |delta|: Schaul 2016 (arXiv 1511.05952). Departures: see docs/algos/dqn.md.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from rlcli.algos.draws import Draws
from rlcli.algos.q_learning import Judged, draw_noise
from rlcli.core.tree import Tree
from rlcli.losses.value import double_q_target, huber, q_target, td_error
from rlcli.replay.replay import ReplayBatch


class ValueNetwork(Protocol):
    """What the loss needs of a network."""

    def __call__(self, obs: Tree, noise: Tensor | None = ..., /) -> Tensor:
        """Action values [N, A]."""


class ExpectedLoss:
    """Huber's loss of the TD error.

    Args:
        double: Whether the online network chooses the next action.
        delta_clip: Where Huber's parabola ends; None: never.
    """

    def __init__(self, double: bool, delta_clip: float | None) -> None:
        self._double, self._delta_clip = double, delta_clip

    def __call__(self, online: ValueNetwork, target: ValueNetwork, batch: ReplayBatch, draws: Draws) -> Judged:
        """See `Loss`."""
        y = self._target(online, target, batch, draws)
        q = _values(online, batch.obs, draws)
        delta = td_error(q, batch.action, y)
        chosen = q.detach().gather(1, batch.action[:, None]).squeeze(1)
        error = delta.detach()
        return Judged(huber(delta, self._delta_clip), priority=error.abs(), delta=error, q=chosen)

    @torch.no_grad()
    def _target(self, online: ValueNetwork, target: ValueNetwork, batch: ReplayBatch, draws: Draws) -> Tensor:
        q_next = _values(target, batch.next_obs, draws)
        if not self._double:
            return q_target(batch.return_, batch.discount_n, q_next)
        return double_q_target(batch.return_, batch.discount_n, q_next, _values(online, batch.next_obs, draws))


def _values(network: ValueNetwork, obs: Tree, draws: Draws) -> Tensor:
    noise = draw_noise(network, draws)
    return network(obs) if noise is None else network(obs, noise)
