"""The rows of a replay: ring, observations and recurrent states, appended to, saved and loaded together."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlcli.core.errors import SnapshotError
from rlcli.core.samples import Samples
from rlcli.core.tree import Tree, as_numpy, index
from rlcli.replay.frames import Observations
from rlcli.replay.log import RowLog
from rlcli.replay.ring import Index, Mask, Ring
from rlcli.replay.states import NoStates, States
from rlcli.replay.storage import InMemory, OnDisk

_FORMAT = 1
"""Version of what a replay's save leaves; any other is refused."""


class Store:
    """Keeps the newest rows.

    A cut (see `Samples`) is stored as a plain filler, and the row before it, if it went on, as truncated: the
    observation of the cut row is its successor.

    Args:
        ring: For the rows, empty.
        observations: How observations lie in it.
        states: Recurrent states.
        storage: The memory under them, closed with the store.
    """

    def __init__(
        self, ring: Ring, observations: Observations, states: States | NoStates, storage: InMemory | OnDisk
    ) -> None:
        self.ring, self.observations, self.states = ring, observations, states
        self._storage = storage
        self._log = RowLog(ring)
        self._must_go_on = np.zeros(ring.n_envs, np.bool_)
        self.n_valid = 0
        """Rows that are no filler."""

    def append(self, samples: Samples, more: Mapping[str, Tree]) -> int:
        """Store the rows of the batch that follows the last one appended; copies.

        Args:
            samples: The batch.
            more: [T, B, ...] numpy leaves of the ring beside those of the samples.

        Returns:
            Absolute number of its first row.

        Raises:
            ValueError: if a leaf has the wrong shape or dtype, or the rows break the contract of `Samples`.
        """
        first, n_new = self.ring.head, samples.reward.shape[0]
        names = ("action", "reward", "terminated", "truncated", "valid")
        rows = {name: as_numpy(getattr(samples, name)) for name in names} | dict(more)
        obs = as_numpy(samples.obs)
        self.states.check(samples, first)
        for start in range(0, n_new, self.ring.n_rows):
            piece = slice(start, min(n_new, start + self.ring.n_rows))
            self._append({name: index(leaf, piece) for name, leaf in rows.items()}, index(obs, piece))
        self.states.append(samples, first)
        return first

    def touched(self, first_new: int, n_ahead: int) -> Index:
        """Stored rows that rows from ``first_new`` on may have made drawable, or the other way round; those included.

        Before the new rows wait those that need up to ``n_ahead`` rows behind their own; behind the oldest are those
        whose frame stack is no longer all there.
        """
        oldest = self.ring.oldest
        waiting = max(oldest, first_new - n_ahead)
        no_longer = np.arange(oldest, min(oldest + self.observations.n_frames - 1, waiting))
        return np.concatenate([no_longer, np.arange(waiting, self.ring.head)])

    def save(self, folder: Path) -> dict[str, Any]:
        """Append what is new since the last save to files in ``folder``; a plain tree for `read`, which names them.

        Raises:
            SnapshotError: if a file cannot be written; names it.
        """
        return {
            "format": _FORMAT,
            "segments": self._log.save(folder),
            "state_segments": self.states.save(folder),
            "head": self.ring.head,
            "n_valid": self.n_valid,
            "must_go_on": self._must_go_on.copy(),
            "observations": self.observations.state(),
        }

    def read(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Fill the memory with what was saved; it does not count before `accept`.

        Raises:
            SnapshotError: if a file is missing or damaged; names it.
            KeyError, TypeError, ValueError, AttributeError: if the state makes no sense.
        """
        self._log.load(folder, state["segments"], state["head"])
        self.states.read(folder, state.get("state_segments", []), state["head"])
        self.observations.load_state(state["observations"])
        self._must_go_on, self.n_valid = state["must_go_on"].copy(), int(state["n_valid"])

    def accept(self, head: int) -> None:
        """Let what `read` read count, ``head`` rows in all."""
        self.ring.head = head
        self.states.accept(head)

    def check_format(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Raise SnapshotError if this version did not write the state."""
        if state["format"] != _FORMAT:
            raise SnapshotError(f"{folder}: replay format {state['format']!r}, this rlcli reads format {_FORMAT}")

    def layout(self, selector: str) -> Iterator[tuple[str, Any]]:
        """What must be the same where a save is loaded."""
        yield "environments", self.ring.n_envs
        yield "frame stack", self.observations.n_frames
        yield "selector", selector
        yield "byte order", sys.byteorder
        for path, dtype, shape in self.ring.layout:
            yield f"leaf {path}", f"{dtype} {shape}"
        yield "order of the leaves", ", ".join(path for path, _, _ in self.ring.layout)
        yield "rows for each environment", self.ring.n_rows
        yield from self.states.layout()

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays."""
        return self.ring.n_bytes + self.states.n_bytes

    def close(self) -> None:
        """Free memory and disk; safe to call twice, and nothing else may be called afterwards."""
        self.ring.release()
        self.states.release()
        self._storage.close()
        self.n_valid = 0

    def _append(self, rows: dict[str, Tree], obs: Tree) -> None:
        valid = rows["valid"]
        rows = rows | {"truncated": self._truncated_by_cuts(valid, rows["terminated"], rows["truncated"])}
        overwritten = np.arange(self.ring.oldest, self.ring.head + len(valid) - self.ring.n_rows)[:, None]
        gone = self.ring.take("valid", overwritten, np.arange(self.ring.n_envs))
        self.ring.append(rows | self.observations.store(obs, valid))
        self.n_valid += int(valid.sum()) - int(gone.sum())

    def _truncated_by_cuts(self, valid: Mask, terminated: Mask, truncated: Mask) -> Mask:
        """What to store as truncated: a fresh [T, B] array; marks the newest stored row where row 0 cuts it off.

        A window that ran into a filler row unannounced would mix two episodes, so that is refused.
        """
        goes_on = valid & ~(terminated | truncated)
        cut_off = np.concatenate([self._must_go_on[None], goes_on[:-1]]) & ~valid  # by the filler in this row
        if (cut_off & ~truncated).any():
            raise ValueError("valid: a filler row follows a valid row that was neither terminated nor truncated")
        (envs,) = np.nonzero(cut_off[0])
        self.ring.put("truncated", np.full(len(envs), self.ring.head - 1), envs, True)
        self._must_go_on = goes_on[-1]
        stored = truncated & valid
        stored[:-1] |= cut_off[1:]
        return stored
