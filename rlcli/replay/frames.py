"""How observations are kept: whole, or one frame of each stack.

The stack of a row is the frames of its game up to that row, zeros before the game's first. A game begins on the
first valid row after a filler row, and nowhere else: a life lost is an end for learning, but the frames go on. They
go on up to the first filler row, a cut included, whose stack is the last observation of the game.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rlcli.core.tree import Tree
from rlcli.replay.ring import Index, Mask, Ring


class Observations(Protocol):
    """Which part of an observation is stored, and how it is made whole again."""

    n_frames: int
    """Stored frames that make one observation."""

    def store(self, obs: Tree, valid: Mask) -> dict[str, Tree]:
        """Leaves for the ring from the next [T, B, ...] observations, which follow the last ones stored.

        Raises:
            ValueError: if they could not be rebuilt from that.
        """

    def complete(self, ring: Ring, row: Index, env: Index) -> Mask:
        """Whether everything that the observations [N] are made of is stored."""

    def rebuild(self, ring: Ring, row: Index, env: Index) -> Tree:
        """Fresh observations [N, ...] of complete rows."""

    def state(self) -> dict[str, Any]:
        """What the next `store` depends on: a plain tree, whose arrays are copies."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave."""


class Whole:
    """Every observation as it came."""

    n_frames = 1

    def store(self, obs: Tree, valid: Mask) -> dict[str, Tree]:
        """See `Observations`."""
        return {"obs": obs, "n_earlier": np.zeros(valid.shape, np.uint8)}

    def complete(self, ring: Ring, row: Index, env: Index) -> Mask:
        """See `Observations`."""
        return ring.has(row)

    def rebuild(self, ring: Ring, row: Index, env: Index) -> Tree:
        """See `Observations`."""
        return ring.take("obs", row, env)

    def state(self) -> dict[str, Any]:
        """See `Observations`."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """See `Observations`."""


class Frames:
    """Only the newest frame of each stack.

    Args:
        k: Frames in a stack, oldest first along the first axis, at least 2.
        n_envs: B.
        key: Which leaf of a Dict observation is a stack, the others are kept whole; None: the observation is one.
    """

    def __init__(self, k: int, n_envs: int, key: str | None = None) -> None:
        self._k = self.n_frames = k
        self._key, self._leaf = key, frames_leaf(key)
        self._dtype = np.min_scalar_type(k - 1)
        self._back = np.arange(k - 1, -1, -1, dtype=np.int64)
        # The frames before the first row ever were not seen, so that row counts as deep inside a game.
        self._n_earlier = np.full(n_envs, k - 1, self._dtype)
        self._was_valid = np.ones(n_envs, np.bool_)

    def store(self, obs: Tree, valid: Mask) -> dict[str, Tree]:
        """See `Observations`."""
        if self._key is None:
            return self._store(obs, valid)
        return self._store(obs[self._key], valid) | {"obs": without(obs, self._key)}

    def _store(self, obs: npt.NDArray[Any], valid: Mask) -> dict[str, Tree]:
        begins = valid & ~np.concatenate([self._was_valid[None], valid[:-1]])
        chunk = obs.shape[2] // self._k
        if begins.any() and obs[begins][:, :-chunk].any():
            raise ValueError(f"{self._leaf}: the stack at a game's start has frames other than zeros before its first")
        n_earlier = np.empty(valid.shape, self._dtype)
        count = self._n_earlier
        for t in range(len(valid)):
            count = np.where(begins[t], 0, np.minimum(count, self._k - 2) + 1).astype(self._dtype)
            n_earlier[t] = count
        self._n_earlier, self._was_valid = count, valid[-1].copy()
        return {self._leaf: obs[:, :, -chunk:], "n_earlier": n_earlier}

    def complete(self, ring: Ring, row: Index, env: Index) -> Mask:
        """See `Observations`."""
        oldest_frame: Index = row - ring.take("n_earlier", row, env)
        return (oldest_frame >= ring.oldest) & (row < ring.head)

    def rebuild(self, ring: Ring, row: Index, env: Index) -> Tree:
        """See `Observations`."""
        n_earlier = ring.take("n_earlier", row, env)
        frames = ring.take(self._leaf, row[:, None] - self._back, env[:, None])
        frames[self._back > n_earlier[:, None]] = 0
        stack = frames.reshape(len(row), self._k * frames.shape[2], *frames.shape[3:])
        return stack if self._key is None else {self._key: stack, **ring.take("obs", row, env)}

    def state(self) -> dict[str, Any]:
        """See `Observations`."""
        return {"n_earlier": self._n_earlier.copy(), "was_valid": self._was_valid.copy()}

    def load_state(self, state: dict[str, Any]) -> None:
        """See `Observations`."""
        self._n_earlier, self._was_valid = state["n_earlier"].copy(), state["was_valid"].copy()


def frames_leaf(key: str | None) -> str:
    """Leaf of the ring that holds the frames of the stack under ``key`` of an observation."""
    return "obs" if key is None else f"obs.{key}"


def without(obs: Mapping[str, Tree], key: str) -> dict[str, Tree]:
    """A Dict observation but for one key."""
    return {name: leaf for name, leaf in obs.items() if name != key}
