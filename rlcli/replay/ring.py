"""A ring of rows: the newest ``n_rows`` rows of B environments, on numpy memory or on disk.

Rows carry absolute numbers from 0, never reused, so that an index stays meaningful after its row is overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rlcli.core.tree import Tree, leaves, map_tree, write

Index: TypeAlias = npt.NDArray[np.int64]
"""Absolute rows or environment numbers, of any shape."""
Mask: TypeAlias = npt.NDArray[np.bool_]
Allocate: TypeAlias = Callable[[tuple[int, ...], np.dtype[Any]], npt.NDArray[Any]]


class Ring:
    """Keeps the newest rows.

    Args:
        example: One row of one environment, a tree of numpy arrays that fixes shapes and dtypes.
        n_rows: Rows kept per environment.
        n_envs: B.
        allocate: Gives an array of the asked shape and dtype.
    """

    def __init__(self, example: dict[str, Tree], n_rows: int, n_envs: int, allocate: Allocate) -> None:
        self.n_rows, self.n_envs = n_rows, n_envs
        self.head = 0
        """Rows appended so far: the absolute number of the next."""

        def allocate_leaf(leaf: Any) -> npt.NDArray[Any]:
            array = np.asarray(leaf)
            return allocate((n_rows, n_envs, *array.shape), array.dtype)

        self._data: dict[str, Tree] = map_tree(allocate_leaf, example)
        self._flat: dict[str, Tree] = map_tree(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), self._data)

    @property
    def oldest(self) -> int:
        """Absolute number of the oldest row still stored."""
        return max(0, self.head - self.n_rows)

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(leaf.nbytes for _, leaf in leaves(self._data))

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of all environments."""
        return self.n_bytes // self.n_rows

    @property
    def layout(self) -> list[tuple[str, np.dtype[Any], tuple[int, ...]]]:
        """(Dotted path, dtype, shape for one environment) of each leaf, in their order in `memory`."""
        return [(path, leaf.dtype, leaf.shape[2:]) for path, leaf in leaves(self._data)]

    def memory(self, first: int, end: int) -> Iterator[npt.NDArray[Any]]:
        """The memory of rows ``first`` to ``end``, at most ``n_rows``: views [n, B, ...] leaf by leaf, in time order.

        A leaf comes in two pieces where the ring wraps around. They may be written to.
        """
        start, n = first % self.n_rows, end - first
        before_wrap = min(n, self.n_rows - start)
        for _, leaf in leaves(self._data):
            yield leaf[start : start + before_wrap]
            if n > before_wrap:
                yield leaf[: n - before_wrap]

    def append(self, rows: dict[str, Tree]) -> None:
        """Write rows behind the newest, over the oldest.

        Args:
            rows: [T, B, ...] numpy leaves under the names of the example, T at most ``n_rows``.

        Raises:
            ValueError: if a leaf has another shape or dtype than the example; the message names it.
        """
        n_new = len(next(leaf for _, leaf in leaves(rows)))
        self._check(rows, n_new)
        start = self.head % self.n_rows
        before_wrap = min(n_new, self.n_rows - start)

        def put(stored: npt.NDArray[Any], new: npt.NDArray[Any]) -> None:
            stored[start : start + before_wrap] = new[:before_wrap]
            stored[: n_new - before_wrap] = new[before_wrap:]

        map_tree(put, self._data, rows)
        self.head += n_new

    def take(self, name: str, row: Index, env: Index) -> Tree:
        """Fresh copies of what is stored under ``name``, leaves [*index shape, ...].

        Rows that are not stored give whatever lies in their place: mask them.
        """
        place = self._place(row, env)
        return map_tree(lambda leaf: leaf.take(place, axis=0), self._flat[name])

    def put(self, name: str, row: Index, env: Index, values: Tree) -> None:
        """Replace what is stored under ``name`` at stored rows; leaves [*index shape, ...] or what broadcasts to it."""
        write(self._flat[name], self._place(row, env), values)

    def has(self, row: Index) -> Mask:
        """Whether rows are stored."""
        return (row >= self.oldest) & (row < self.head)

    def release(self) -> None:
        """Let go of the memory; nothing works afterwards."""
        self._data, self._flat = {}, {}

    def _place(self, row: Index, env: Index) -> Index:
        return (row % self.n_rows) * self.n_envs + env

    def _check(self, rows: dict[str, Tree], n_new: int) -> None:
        stored = dict(leaves(self._data))
        for path, new in leaves(rows):
            shape = (n_new, *stored[path].shape[1:])
            if new.shape != shape or new.dtype != stored[path].dtype:
                got, expected = f"{new.dtype} {new.shape}", f"{stored[path].dtype} {shape}"
                raise ValueError(f"{path}: expected {expected}, got {got}")
