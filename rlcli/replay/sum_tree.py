"""Sums over parts of a list of numbers, kept up to date as they change, to draw places in proportion to them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rlcli.replay.ring import Index

Values = npt.NDArray[np.float64]


class SumTree:
    """A binary tree whose nodes hold the sums of their two children, of any number of leaves.

    In float64: at a million leaves float32 sums are off by more than a leaf, so that leaves of 0 would be drawn. Each
    sum is worked out anew from its children and never counted up, so that the tree is a function of its leaves and
    errors do not pile up.

    Source: Schaul et al. 2016, Prioritized experience replay, appendix B.2.1.

    Args:
        n_leaves: At least 1; all 0 at first.
    """

    def __init__(self, n_leaves: int) -> None:
        self.n_leaves = n_leaves
        self._levels: list[Values] = []  # leaves first, root last; each but the root has an even number of nodes
        n = n_leaves
        while n > 1:
            self._levels.append(np.zeros(n + n % 2))
            n = (n + 1) // 2
        self._levels.append(np.zeros(1))

    @staticmethod
    def bytes_for(n_leaves: int) -> int:
        """Bytes that a tree takes, up to a few for each level."""
        return 2 * 8 * n_leaves

    @property
    def n_bytes(self) -> int:
        """Bytes of all levels."""
        return sum(level.nbytes for level in self._levels)

    @property
    def total(self) -> float:
        """Sum of all leaves."""
        return float(self._levels[-1][0])

    def get(self, place: Index) -> Values:
        """The leaves at places [M]."""
        return self._levels[0].take(place)

    def set(self, place: Index, value: Values) -> None:
        """Replace leaves at places [M] by values [M], at least 0; the last value counts where a place comes twice."""
        self._levels[0][place] = value
        for below, above in pairwise(self._levels):
            place = place >> 1
            above[place] = below.take(place << 1) + below.take((place << 1) + 1)

    def find(self, target: Values) -> Index:
        """For each target [M] in [0, total) the place at which the sum of the leaves from the first on exceeds it.

        The total must not be 0. A place whose leaf is 0 is never found, whatever rounding does to the sums.
        """
        target, place = target.copy(), np.zeros(len(target), np.int64)
        for level in self._levels[-2::-1]:
            place <<= 1
            left = level.take(place)
            right = (target >= left) & (level.take(place + 1) > 0)
            target -= left * right
            place += right
        return place

    def leaves(self) -> Values:
        """A copy of all leaves."""
        return self._levels[0][: self.n_leaves].copy()

    def load_leaves(self, leaves: Values) -> None:
        """Replace all leaves; where fewer are given, the others become 0."""
        self._levels[0][:] = 0
        self._levels[0][: len(leaves)] = leaves
        for below, above in pairwise(self._levels):
            above[: len(below) // 2] = below[::2] + below[1::2]
