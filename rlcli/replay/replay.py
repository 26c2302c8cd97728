"""Replay: store, selector and view put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
import numpy.typing as npt
from torch import Tensor

from rlcli.core.errors import SnapshotError
from rlcli.core.samples import Samples
from rlcli.replay.log import prune
from rlcli.replay.ring import Index, Mask
from rlcli.replay.selectors import Selector, eligible_places
from rlcli.replay.store import Store
from rlcli.replay.views import ReplayBatch, View

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Batch = TypeVar("Batch", default=ReplayBatch)
else:
    from typing import TypeVar

    Batch = TypeVar("Batch")

__all__ = ["Replay", "ReplayBatch"]

_CHUNK = 1 << 13


class Replay(Generic[Batch]):
    """Stores the newest rows and draws from them: transitions (``Replay``), or what else the view makes of them.

    A row is drawn if everything that the view needs of it and of the rows behind it is stored, and all frames of its
    stack. So the newest rows of an unfinished episode wait for their successors, the oldest k - 1 rows may only
    complete stacks, and so may the first k - 1 rows ever, whose earlier frames were not seen.

    Args:
        store: The rows, empty.
        selector: What is drawn.
        view: What is returned.
    """

    def __init__(self, store: Store, selector: Selector, view: View[Batch]) -> None:
        self._store, self._selector, self._view = store, selector, view
        self._ring = store.ring

    def append(self, samples: Samples, priority: Tensor | None = None) -> None:
        """Store the rows of the batch that follows the last one appended; copies.

        Args:
            samples: The batch.
            priority: [T, B] float, size of each row's TD error, nan where it is not known, for replays that begin with
                it; None: nothing is known.

        Raises:
            ValueError: if a leaf has the wrong shape or dtype, or the rows break the contract of `Samples`.
        """
        first_new = self._store.append(samples, self._view.leaves_of(samples, priority))
        row = self._store.touched(first_new, self._view.n_ahead)
        self._selector.appended(self._ring, self._eligible, row, first_new)

    def sample(self, n: int, step: int = 0) -> Batch:
        """Draw n transitions, or sequences, after ``step`` environment steps, on which the weights' exponent hangs.

        Raises:
            LookupError: if there is none to draw.
        """
        drawn = self._selector.select(n, self._ring, self._eligible, step)
        return self.batch_at(drawn.row, drawn.env, drawn.weight)

    def update_priorities(self, row: Tensor, env: Tensor, priority: Tensor) -> None:
        """Say how much transitions matter, the size of their TD error; does nothing if all are drawn alike.

        Transitions that were overwritten since they were drawn are left out.

        Args:
            row: [N] int64, of a batch.
            env: [N] int64, of the same batch.
            priority: [N] float, at least 0, on any device.

        Raises:
            ValueError: if the shapes differ, or a priority is negative or not finite.
        """
        if not row.shape == env.shape == priority.shape:
            raise ValueError(f"priority: expected {tuple(row.shape)}, got {tuple(priority.shape)}")
        arrays = (tensor.detach().cpu().numpy() for tensor in (row, env, priority))
        self._selector.update(self._ring, *arrays)

    def batch_at(self, row: Index, env: Index, weight: npt.NDArray[np.float32] | None = None) -> Batch:
        """What begins at eligible places, [N] each; weights are ones if none are given."""
        weight = np.ones(len(row), np.float32) if weight is None else weight
        return self._view.batch(self._store, row, env, weight)

    def can_sample(self, n: int) -> bool:
        """Whether at least n different transitions, or sequences, can be drawn."""
        places = eligible_places(self._ring, self._eligible, self._selector.every, at_least=n)
        return len(places[0]) >= n

    def eligible(self) -> tuple[Index, Index]:
        """All (row, env) that can be drawn, newest first; searches the whole ring."""
        return eligible_places(self._ring, self._eligible, self._selector.every)

    def __len__(self) -> int:
        """Transitions stored, whether they can be drawn yet or not."""
        return self._store.n_valid

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays."""
        return self._store.n_bytes + self._selector.n_bytes

    def save(self, folder: Path) -> dict[str, Any]:
        """Append what is new since the last save to files in ``folder``, which may be missing; fsynced.

        Costs what is new; the first save, one to another folder and one whose earlier files are gone cost everything.
        A save that fails takes nothing away from what was saved before, and may be tried again.

        Returns:
            A plain tree for `load`, which names the files. It stays good until `prune` is called without it.

        Raises:
            SnapshotError: if a file cannot be written; names it.
        """
        return self._store.save(folder) | {"layout": dict(self._layout()), "selector": self._selector.state()}

    def load(self, folder: Path, state: dict[str, Any]) -> None:
        """Become what was saved; the next save goes on from there, in new files.

        If it fails, the replay is still empty, and another state may be loaded.

        Args:
            folder: Where the files lie.
            state: What `save` returned.

        Raises:
            ValueError: if this replay is not empty.
            SnapshotError: if a file is missing or damaged, or the layout is another; names the file or the difference.
        """
        if self._ring.head:
            raise ValueError("only an empty replay can be loaded")
        try:
            self._store.check_format(folder, state)
            self._check_layout(folder, state)
            head = int(state["head"])
            self._store.read(folder, state)
            self._selector.load_state(state["selector"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SnapshotError(
                f"{folder}: the checkpoint's words about the replay make no sense: {error!r}"
            ) from error
        self._store.accept(head)
        self._fit_to_window()

    @staticmethod
    def prune(folder: Path, states: Sequence[Any]) -> None:
        """Delete the files of saves in ``folder`` that none of the states (`save`) needs; other files stay.

        Raises:
            SnapshotError: if one cannot be deleted; names it.
        """
        prune(folder, [[*state["segments"], *state.get("state_segments", [])] for state in states])

    def close(self) -> None:
        """Free memory and disk; safe to call twice, and nothing else may be called afterwards."""
        self._store.close()

    def _fit_to_window(self) -> None:
        """Let the selector hear of all rows: the window of what was saved may have been longer or shorter than now."""
        head = self._ring.head
        for start in range(self._ring.oldest, head, _CHUNK):
            row = np.arange(start, min(start + _CHUNK, head))
            self._selector.appended(self._ring, self._eligible, row, head)

    def _layout(self) -> Iterator[tuple[str, Any]]:
        """What must be the same where a save is loaded."""
        yield from self._store.layout(self._selector.kind)
        yield from self._view.layout()

    def _check_layout(self, folder: Path, state: dict[str, Any]) -> None:
        saved, own = state["layout"], dict(self._layout())
        for name in {**own, **saved}:
            if saved.get(name) != own.get(name):
                there, here = saved.get(name, "nothing"), own.get(name, "nothing")
                raise SnapshotError(f"{folder}: replay of another layout: {name}: saved {there}, this run has {here}")

    def _eligible(self, row: Index, env: Index) -> Mask:
        complete: Mask = self._store.observations.complete(self._ring, row, env)
        return self._view.eligible(self._ring, row, env) & complete
