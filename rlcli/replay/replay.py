"""Replay: ring, observations, selector and view put together."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcli.core.errors import SnapshotError
from rlcli.core.samples import Samples
from rlcli.core.tree import Tree, as_numpy, as_torch, index
from rlcli.replay.frames import Observations
from rlcli.replay.log import RowLog, prune
from rlcli.replay.ring import Index, Mask, Ring
from rlcli.replay.selectors import Uniform, eligible_places
from rlcli.replay.storage import InMemory, OnDisk
from rlcli.replay.views import NStep

_FORMAT = 1
"""Version of what `Replay.save` leaves; `Replay.load` refuses any other."""


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


class Replay:
    """Stores the newest transitions and draws from them.

    A row is drawn if it is no filler, and if its whole window, the observation after it and all frames of both stacks
    are stored. So the newest rows of an unfinished episode wait for their successors, the oldest k - 1 rows may only
    complete stacks, and so may the first k - 1 rows ever, whose earlier frames were not seen.

    A cut (see `Samples`) is stored as a plain filler, and the row before it, if it went on, as truncated: the
    observation of the cut row is its successor.

    Args:
        ring: Storage, empty.
        observations: How observations lie in it.
        selector: What is drawn.
        view: What is returned.
        storage: The memory under the ring, closed with it.
    """

    def __init__(
        self, ring: Ring, observations: Observations, selector: Uniform, view: NStep, storage: InMemory | OnDisk
    ) -> None:
        self._ring, self._observations, self._selector, self._view = ring, observations, selector, view
        self._storage = storage
        self._log = RowLog(ring)
        self._n_valid = 0
        self._must_go_on = np.zeros(ring.n_envs, np.bool_)

    def append(self, samples: Samples) -> None:
        """Store the rows of the batch that follows the last one appended; copies.

        Raises:
            ValueError: if a leaf has the wrong shape or dtype, or the rows break the contract of `Samples`.
        """
        n_new = samples.reward.shape[0]
        rows = {name: as_numpy(getattr(samples, name)) for name in ("action", "reward", "valid")}
        rows |= {name: as_numpy(getattr(samples, name)) for name in ("terminated", "truncated")}
        obs = as_numpy(samples.obs)
        for start in range(0, n_new, self._ring.n_rows):
            piece = slice(start, min(n_new, start + self._ring.n_rows))
            self._append({name: index(leaf, piece) for name, leaf in rows.items()}, index(obs, piece))

    def sample(self, n: int) -> ReplayBatch:
        """Draw n transitions.

        Raises:
            LookupError: if there is none to draw.
        """
        return self.batch_at(*self._selector.select(n, self._ring, self._eligible))

    def batch_at(self, row: Index, env: Index) -> ReplayBatch:
        """The transitions of eligible places, [N] each."""
        window = self._view.window(self._ring, row, env)
        # Both ends in one gather: the allocator gives memory in one piece back to the next call, but two pieces of
        # half the size to the system, and faulting the pages in again takes longer than the copy.
        ends = np.concatenate([row, row + window.n_used]), np.concatenate([env, env])
        obs = as_torch(self._observations.rebuild(self._ring, *ends))
        return ReplayBatch(
            obs=index(obs, slice(None, len(row))),
            action=as_torch(self._ring.take("action", row, env)),
            return_=torch.from_numpy(window.return_.astype(np.float32)),
            discount_n=torch.from_numpy(window.discount.astype(np.float32)),
            next_obs=index(obs, slice(len(row), None)),
            row=torch.from_numpy(row),
            env=torch.from_numpy(env),
        )

    def can_sample(self, n: int) -> bool:
        """Whether at least n different transitions can be drawn."""
        return len(eligible_places(self._ring, self._eligible, at_least=n)[0]) >= n

    def eligible(self) -> tuple[Index, Index]:
        """All (row, env) that can be drawn, newest first; searches the whole ring."""
        return eligible_places(self._ring, self._eligible)

    def __len__(self) -> int:
        """Transitions stored, whether they can be drawn yet or not."""
        return self._n_valid

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays."""
        return self._ring.n_bytes

    def save(self, folder: Path) -> dict[str, Any]:
        """Append what is new since the last save to files in ``folder``, which may be missing; fsynced.

        Costs what is new; the first save, one to another folder and one whose earlier files are gone cost everything.
        A save that fails takes nothing away from what was saved before, and may be tried again.

        Returns:
            A plain tree for `load`, which names the files. It stays good until `prune` is called without it.

        Raises:
            SnapshotError: if a file cannot be written; names it.
        """
        return {
            "format": _FORMAT,
            "layout": dict(self._layout()),
            "segments": self._log.save(folder),
            "head": self._ring.head,
            "n_valid": self._n_valid,
            "must_go_on": self._must_go_on.copy(),
            "observations": self._observations.state(),
            "selector": self._selector.state(),
        }

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
            self._check_layout(folder, state)
            self._log.load(folder, state["segments"], state["head"])
            self._selector.load_state(state["selector"])
            self._observations.load_state(state["observations"])
            must_go_on, n_valid, head = state["must_go_on"].copy(), int(state["n_valid"]), int(state["head"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SnapshotError(
                f"{folder}: the checkpoint's words about the replay make no sense: {error!r}"
            ) from error
        self._must_go_on, self._n_valid, self._ring.head = must_go_on, n_valid, head

    @staticmethod
    def prune(folder: Path, states: Sequence[Any]) -> None:
        """Delete the files of saves in ``folder`` that none of the states (`save`) needs; other files stay.

        Raises:
            SnapshotError: if one cannot be deleted; names it.
        """
        prune(folder, [state["segments"] for state in states])

    def close(self) -> None:
        """Free memory and disk; safe to call twice, and nothing else may be called afterwards."""
        self._ring.release()
        self._storage.close()
        self._n_valid = 0

    def _layout(self) -> Iterator[tuple[str, Any]]:
        """What must be the same where a save is loaded."""
        yield "environments", self._ring.n_envs
        yield "frame stack", self._observations.n_frames
        yield "selector", self._selector.kind
        yield "byte order", sys.byteorder
        for path, dtype, shape in self._ring.layout:
            yield f"leaf {path}", f"{dtype} {shape}"
        yield "order of the leaves", ", ".join(path for path, _, _ in self._ring.layout)
        yield "rows for each environment", self._ring.n_rows

    def _check_layout(self, folder: Path, state: dict[str, Any]) -> None:
        if state["format"] != _FORMAT:
            raise SnapshotError(f"{folder}: replay format {state['format']!r}, this rlcli reads format {_FORMAT}")
        saved, own = state["layout"], dict(self._layout())
        for name in {**own, **saved}:
            if saved.get(name) != own.get(name):
                there, here = saved.get(name, "nothing"), own.get(name, "nothing")
                raise SnapshotError(f"{folder}: replay of another layout: {name}: saved {there}, this run has {here}")

    def _append(self, rows: dict[str, Tree], obs: Tree) -> None:
        valid = rows["valid"]
        rows = rows | {"truncated": self._truncated_by_cuts(valid, rows["terminated"], rows["truncated"])}
        overwritten = np.arange(self._ring.oldest, self._ring.head + len(valid) - self._ring.n_rows)[:, None]
        gone = self._ring.take("valid", overwritten, np.arange(self._ring.n_envs))
        self._ring.append(rows | self._observations.store(obs, valid))
        self._n_valid += int(valid.sum()) - int(gone.sum())

    def _truncated_by_cuts(self, valid: Mask, terminated: Mask, truncated: Mask) -> Mask:
        """What to store as truncated: a fresh [T, B] array; marks the newest stored row where row 0 cuts it off.

        A window that ran into a filler row unannounced would mix two episodes, so that is refused.
        """
        goes_on = valid & ~(terminated | truncated)
        cut_off = np.concatenate([self._must_go_on[None], goes_on[:-1]]) & ~valid  # by the filler in this row
        if (cut_off & ~truncated).any():
            raise ValueError("valid: a filler row follows a valid row that was neither terminated nor truncated")
        (envs,) = np.nonzero(cut_off[0])
        self._ring.put("truncated", np.full(len(envs), self._ring.head - 1), envs, True)
        self._must_go_on = goes_on[-1]
        stored = truncated & valid
        stored[:-1] |= cut_off[1:]
        return stored

    def _eligible(self, row: Index, env: Index) -> Mask:
        return self._view.eligible(self._ring, row, env) & self._observations.complete(self._ring, row, env)
