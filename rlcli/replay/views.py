"""What to return for a picked row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlcli.core.samples import Samples
from rlcli.core.tree import Tree, as_torch, index
from rlcli.replay.ring import Index, Mask, Ring
from rlcli.replay.store import Store

Batch_co = TypeVar("Batch_co", covariant=True)


class View(Protocol[Batch_co]):
    """Decides what is made of a drawn row and those behind it."""

    n_ahead: int
    """How many rows behind its own may be needed."""

    def leaves_of(self, samples: Samples, priority: Tensor | None) -> dict[str, Tree]:
        """Leaves [T, B, ...] for the ring beside those of the samples.

        Raises:
            ValueError: if there is a priority, and nobody takes notice of it, or it is not what it should be.
        """

    def eligible(self, ring: Ring, row: Index, env: Index) -> Mask:
        """Whether everything needed of rows [N] but their frames is stored, and they are worth drawing."""

    def batch(self, store: Store, row: Index, env: Index, weight: npt.NDArray[np.float32]) -> Batch_co:
        """What begins at eligible rows [N]."""

    def layout(self) -> Iterator[tuple[str, Any]]:
        """What must be the same where a save is loaded."""


@dataclass(frozen=True, slots=True)
class ReplayBatch:
    """N transitions in fresh CPU memory."""

    obs: Tree
    """[N, ...]."""
    action: Tree
    """[N, ...]."""
    return_: Tensor
    """[N] float32, discounted sum of up to n rewards, stopping at an end."""
    discount_n: Tensor
    """[N] float32, discount of the value of ``next_obs``; 0 where the task terminated."""
    next_obs: Tree
    """[N, ...], the observation after the window, an episode's last one included."""
    row: Tensor
    """[N] int64, absolute row: names the transition also after it is overwritten."""
    env: Tensor
    """[N] int64, position of the environment in B."""
    weight: Tensor
    """[N] float32, importance weights, at most 1; ones where all transitions are drawn alike."""


@dataclass(frozen=True, slots=True)
class Window:
    """N n-step windows, every array [N]."""

    return_: npt.NDArray[np.float64]
    """Discounted sum of the rewards up to and including the first end."""
    discount: npt.NDArray[np.float64]
    """Discount from the first row to the bootstrap row; 0 if the task terminated in between."""
    n_used: Index
    """Rows summed: the bootstrap observation lies so many rows later."""


def n_step_window(reward: npt.NDArray[Any], terminated: Mask, truncated: Mask, discount: float) -> Window:
    """Sum up to n rewards, stopping at the first end.

    G = r_0 + discount r_1 + ... + discount^{m-1} r_{m-1}, to which the learner adds discount^m V(s_m); m is n, or
    smaller if an end comes first. Where both flags are set the task terminated. What lies behind the first end
    changes nothing, whatever it is.

    Source: Sutton & Barto 2018, eq. 7.1.

    Args:
        reward: [N, n] float, from the window's first row on.
        terminated: [N, n] bool.
        truncated: [N, n] bool.
        discount: Per step, in [0, 1].
    """
    within = np.ones(reward.shape, np.bool_)
    within[:, 1:] = np.logical_and.accumulate(~(terminated | truncated), axis=1)[:, :-1]
    n_used = within.sum(axis=1)
    return Window(
        return_=np.where(within, reward, 0.0) @ discount ** np.arange(reward.shape[1]),
        discount=np.where((within & terminated).any(axis=1), 0.0, discount**n_used),
        n_used=n_used,
    )


class NStep:
    """n-step transitions: from a valid row to the row after its window.

    Args:
        n: Longest window, rows, at least 1.
        discount: Per step, in [0, 1].
    """

    def __init__(self, n: int, discount: float) -> None:
        self.n_ahead = n
        """How many rows behind its own a transition may need."""
        self._discount = discount
        self._steps = np.arange(n, dtype=np.int64)

    def window(self, ring: Ring, row: Index, env: Index) -> Window:
        """The windows that begin at eligible rows [N]."""
        rows, envs = row[:, None] + self._steps, env[:, None]
        return n_step_window(
            ring.take("reward", rows, envs),
            ring.take("terminated", rows, envs),
            ring.take("truncated", rows, envs),
            self._discount,
        )

    def eligible(self, ring: Ring, row: Index, env: Index) -> Mask:
        """Whether rows [N] are valid and stored with their whole window and the bootstrap row."""
        rows, envs = row[:, None] + self._steps, env[:, None]
        ended = ring.take("terminated", rows, envs) | ring.take("truncated", rows, envs)
        goes_on = np.logical_and.accumulate(~ended, axis=1)  # what lies behind the head changes nothing below
        n_used = np.minimum(goes_on.sum(axis=1) + 1, len(self._steps))
        eligible: Mask = ring.take("valid", row, env) & ring.has(row) & (row + n_used < ring.head)
        return eligible

    def batch(self, store: Store, row: Index, env: Index, weight: npt.NDArray[np.float32]) -> ReplayBatch:
        """See `View`."""
        ring, window = store.ring, self.window(store.ring, row, env)
        # Both ends in one gather: the allocator gives memory in one piece back to the next call, but two pieces of
        # half the size to the system, and faulting the pages in again takes longer than the copy.
        ends = np.concatenate([row, row + window.n_used]), np.concatenate([env, env])
        obs = as_torch(store.observations.rebuild(ring, *ends))
        return ReplayBatch(
            obs=index(obs, slice(None, len(row))),
            action=as_torch(ring.take("action", row, env)),
            return_=torch.from_numpy(window.return_.astype(np.float32)),
            discount_n=torch.from_numpy(window.discount.astype(np.float32)),
            next_obs=index(obs, slice(len(row), None)),
            row=torch.from_numpy(row),
            env=torch.from_numpy(env),
            weight=torch.from_numpy(weight),
        )

    def leaves_of(self, samples: Samples, priority: Tensor | None) -> dict[str, Tree]:
        """See `View`."""
        if priority is not None:
            raise ValueError("priority: a replay of transitions takes none with new rows")
        return {}

    def layout(self) -> Iterator[tuple[str, Any]]:
        """See `View`."""
        yield from ()
