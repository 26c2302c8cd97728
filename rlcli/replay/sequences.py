"""Sequences for recurrent learners: burn-in, training rows, and what their n-step targets need.

Source: Kapturowski et al. 2019, Recurrent experience replay in distributed reinforcement learning, section 2.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlcli.core.samples import Samples
from rlcli.core.tree import Tree, as_torch, map_tree
from rlcli.replay.replay import Replay
from rlcli.replay.ring import Index, Mask, Ring
from rlcli.replay.store import Store
from rlcli.replay.sum_tree import Values

PRIORITY = "priority"
"""Leaf of the ring with what the learner said of new rows, nan where it said nothing."""


@dataclass(frozen=True, slots=True)
class SequenceBatch:
    """N sequences of L = burn_in_T + train_T + n_step rows in fresh CPU memory, in time order.

    A sequence may run across the ends of episodes, with filler rows in it: mask what is not ``valid``, and let the
    recurrent state begin anew where an episode does. On a valid row ``obs[t + 1]`` is the true successor of ``obs[t]``.
    """

    obs: Tree
    """[L + 1, N, ...]."""
    action: Tree
    """[L, N, ...]."""
    reward: Tensor
    """[L, N] float32."""
    terminated: Tensor
    """[L, N] bool."""
    truncated: Tensor
    """[L, N] bool; also where the next row is a cut (see `Samples`)."""
    valid: Tensor
    """[L, N] bool: False on filler rows."""
    state: Tree
    """[N, ...] recurrent state before row 0 as the acting agent had it; None if there is none."""
    weight: Tensor
    """[N] float32, importance weights, at most 1; ones where all sequences are drawn alike."""
    row: Tensor
    """[N] int64, absolute row of row 0: names the sequence also after it is overwritten."""
    env: Tensor
    """[N] int64, position of the environment in B."""


SequenceReplay: TypeAlias = Replay[SequenceBatch]


def mixed_priority(error: Tensor, known: Tensor, eta: float) -> Tensor:
    """Priority of each sequence, eta max_t |delta_t| + (1 - eta) mean_t |delta_t|; [N], nan where nothing is known.

    Source: Kapturowski et al. 2019, section 2.3.

    Args:
        error: [T, N] float, TD errors of the training rows.
        known: [T, N] bool: the rows that count, those that are no filler.
        eta: Share of the largest, in [0, 1].
    """
    size = torch.where(known, error.abs(), torch.zeros_like(error))
    n_known = known.sum(dim=0)
    return torch.where(n_known > 0, eta * size.amax(dim=0) + (1 - eta) * size.sum(dim=0) / n_known, torch.nan)


class Sequences:
    """Sequences that begin where a recurrent state is stored.

    Args:
        burn_in_T: Rows before the training rows.
        train_T: Training rows, at least 1.
        n_step: Rows behind them.
        every: Rows between the starts of two sequences, at least 1.
        eta: Of the priority of new sequences, see `mixed_priority`; None: priorities are not kept.
    """

    def __init__(self, burn_in_T: int, train_T: int, n_step: int, every: int, eta: float | None) -> None:
        self.n_ahead = burn_in_T + train_T + n_step
        """See `View`: L, for the last observation lies L rows behind the first."""
        self._every, self._eta = every, eta
        self._rows = np.arange(self.n_ahead + 1, dtype=np.int64)[:, None]
        self._trained = self._rows[burn_in_T : burn_in_T + train_T]

    def leaves_of(self, samples: Samples, priority: Tensor | None) -> dict[str, Tree]:
        """See `View`."""
        shape = tuple(samples.reward.shape)
        if self._eta is None:
            if priority is not None:
                raise ValueError("priority: this replay draws all sequences alike and takes none")
            return {}
        if priority is None:
            return {PRIORITY: np.full(shape, np.nan, np.float32)}
        given = priority.detach().cpu().numpy().astype(np.float32)
        if given.shape != shape:
            raise ValueError(f"priority: expected {shape}, got {given.shape}")
        if (bad := np.isinf(given) | (given < 0)).any():
            raise ValueError(f"priority: {given[bad][0]} is not a finite number >= 0, nor nan")
        return {PRIORITY: given}

    def eligible(self, ring: Ring, row: Index, env: Index) -> Mask:
        """See `View`: some training row is valid."""
        whole: Mask = ring.has(row) & (row + self.n_ahead < ring.head)
        whole[whole] = ring.take("valid", row[whole] + self._trained, env[whole]).any(axis=0)
        return whole

    def initial_priority(self, ring: Ring, row: Index, env: Index) -> Values:
        """Priority of new sequences [N] from what the learner said of their training rows; nan if it said nothing."""
        rows = row + self._trained
        said = torch.from_numpy(ring.take(PRIORITY, rows, env).astype(np.float64))
        known = torch.from_numpy(ring.take("valid", rows, env)) & ~said.isnan()
        assert self._eta is not None
        return mixed_priority(said, known, self._eta).numpy()

    def batch(self, store: Store, row: Index, env: Index, weight: npt.NDArray[np.float32]) -> SequenceBatch:
        """See `View`."""
        ring, rows = store.ring, row + self._rows
        obs = store.observations.rebuild(ring, rows.reshape(-1), np.broadcast_to(env, rows.shape).reshape(-1))
        stored = {
            name: as_torch(ring.take(name, rows[:-1], env))
            for name in ("action", "reward", "terminated", "truncated", "valid")
        }
        return SequenceBatch(
            obs=as_torch(map_tree(lambda leaf: leaf.reshape(*rows.shape, *leaf.shape[1:]), obs)),
            **stored,
            state=as_torch(store.states.take(row, env)),
            weight=torch.from_numpy(weight),
            row=torch.from_numpy(row),
            env=torch.from_numpy(env),
        )

    def layout(self) -> Iterator[tuple[str, Any]]:
        """See `View`."""
        yield "rows between sequences", self._every
        yield "rows of a sequence", self.n_ahead
        yield "rows before the trained ones", int(self._trained[0, 0])
