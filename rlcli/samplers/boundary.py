"""Where one batch ends and the next begins."""

from __future__ import annotations

import numpy as np

from rlcli.core.samples import Samples
from rlcli.core.tree import Tree, as_numpy, index, map_tree, write


class Boundary:
    """The observations after the last whole batch; a batch that was given up half-way leaves them as they are.

    Args:
        samples: The memory of the batches.
    """

    def __init__(self, samples: Samples) -> None:
        self._last_row: Tree = index(as_numpy(samples.obs), -1)
        self._obs: Tree = None
        self.note()

    @property
    def obs(self) -> Tree:
        """[B, ...] numpy."""
        return self._obs

    def note(self) -> None:
        """A batch is whole."""
        self._obs = map_tree(np.copy, self._last_row)

    def put(self, obs: Tree) -> None:
        """Let the next batch follow these observations of another process; None: those in memory."""
        if obs is not None:
            write(self._last_row, ..., obs)
        self.note()
