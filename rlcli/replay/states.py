"""Recurrent states beside the rows, one for every so many rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlcli.core.errors import SnapshotError
from rlcli.core.samples import Samples
from rlcli.core.tree import Tree, as_numpy, index, leaves, map_tree
from rlcli.replay.log import RowLog
from rlcli.replay.ring import Allocate, Index, Ring

RECORDED = "state"
"""Key of `Samples.record` under which a recurrent agent notes the state before each row, [T, B, ...]."""


class States:
    """The state before each row whose absolute number is a multiple of the interval.

    It is that of `Samples.state` for the first row of a batch, and what the agent noted for the others.

    Args:
        example: State of one environment, a tree of numpy arrays.
        interval: Rows from one stored state to the next, at least 1.
        n_rows: Of the ring of rows: a state is kept as long as its row.
        n_envs: B.
        allocate: See `Ring`.
    """

    def __init__(self, example: Tree, interval: int, n_rows: int, n_envs: int, allocate: Allocate) -> None:
        self._interval = interval
        self._ring = Ring({"state": example}, -(-n_rows // interval), n_envs, allocate)
        self._log = RowLog(self._ring, "states")

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays."""
        return self._ring.n_bytes

    def check(self, samples: Samples, first: int) -> None:
        """Raise ValueError if a state of the batch that begins at row ``first`` is missing; before it is stored."""
        if samples.state is None:
            raise ValueError("state: the samples have no recurrent state")
        inside = self._rows_inside(samples, first)
        if inside.any() and not _noted(samples):
            row = first + int(inside[inside > 0][0])
            raise ValueError(f"record.{RECORDED}: the agent must note the state before each row, row {row} needs it")

    def append(self, samples: Samples, first: int) -> None:
        """Store the states of the batch that begins at row ``first``; copies."""
        rows = self._rows_inside(samples, first)
        for start in range(0, len(rows), self._ring.n_rows):
            piece = rows[start : start + self._ring.n_rows]
            self._ring.append({"state": map_tree(lambda *states: np.stack(states), *self._states(samples, piece))})

    def take(self, row: Index, env: Index) -> Tree:
        """Fresh states [N, ...] before stored rows [N], multiples of the interval."""
        return self._ring.take("state", row // self._interval, env)

    def save(self, folder: Path) -> list[dict[str, Any]]:
        """See `RowLog.save`."""
        return self._log.save(folder)

    def read(self, folder: Path, segments: Iterable[Mapping[str, Any]], head: int) -> None:
        """See `RowLog.load`; ``head`` is that of the rows."""
        self._log.load(folder, segments, self._n_states(head))

    def accept(self, head: int) -> None:
        """Let what was read count, that of ``head`` rows in all."""
        self._ring.head = self._n_states(head)

    def layout(self) -> Iterator[tuple[str, Any]]:
        """What must be the same where a save is loaded."""
        yield "rows between recurrent states", self._interval
        for path, dtype, shape in self._ring.layout:
            yield f"leaf {path}", f"{dtype} {shape}"

    def release(self) -> None:
        """Let go of the memory."""
        self._ring.release()

    def _n_states(self, head: int) -> int:
        return -(-head // self._interval)

    def _rows_inside(self, samples: Samples, first: int) -> Index:
        """Rows of the batch, from 0, whose states are stored."""
        return np.arange(-first % self._interval, samples.reward.shape[0], self._interval)

    def _states(self, samples: Samples, rows: Index) -> Iterator[Tree]:
        """Of each of these rows the [B, ...] state before it."""
        before_batch = as_numpy(samples.state)
        noted = as_numpy(samples.record[RECORDED]) if _noted(samples) else None
        yield from (index(noted, t) if t else before_batch for t in rows.tolist())


class NoStates:
    """Stores nothing: every sequence begins with the same state.

    Args:
        initial: State of one environment, a tree of numpy arrays; None if there is none.
    """

    n_bytes = 0

    def __init__(self, initial: Tree = None) -> None:
        self._initial = initial

    def check(self, samples: Samples, first: int) -> None:
        """See `States`."""

    def append(self, samples: Samples, first: int) -> None:
        """See `States`."""

    def take(self, row: Index, env: Index) -> Tree:
        """See `States`."""
        return map_tree(lambda leaf: np.repeat(leaf[None], len(row), axis=0), self._initial)

    def save(self, folder: Path) -> list[dict[str, Any]]:
        """See `States`."""
        return []

    def read(self, folder: Path, segments: Iterable[Mapping[str, Any]], head: int) -> None:
        """See `States`."""
        if list(segments):
            raise SnapshotError(f"{folder}: the checkpoint has recurrent states, this run stores none")

    def accept(self, head: int) -> None:
        """See `States`."""

    def layout(self) -> Iterator[tuple[str, Any]]:
        """See `States`."""
        yield from ()

    def release(self) -> None:
        """See `States`."""


def example_of(state: Tree) -> Tree:
    """State of one environment as numpy arrays, from an agent's initial state [B, ...]."""
    return map_tree(lambda leaf: leaf[0].detach().cpu().numpy().copy(), state)


def state_bytes(example: Tree) -> int:
    """Bytes of a state of one environment."""
    return sum(leaf.nbytes for _, leaf in leaves(example))


def _noted(samples: Samples) -> bool:
    return isinstance(samples.record, Mapping) and samples.record.get(RECORDED) is not None
