"""Whether a batch of experience holds numbers that nothing can be learned from."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcli.core.tree import Tree, leaves


class NonFinite(NamedTuple):
    """The first NaN or infinity of a batch."""

    row: int
    """Row of the leaf it was found in: row t of ``obs`` is what step t saw, row t of ``reward`` what it earned."""
    position: int
    """Which environment of the batch, from 0."""
    path: str
    """Dotted: ``reward``, ``obs`` or ``obs.camera``."""
    value: float

    def __str__(self) -> str:
        return f"{self.path} is {self.value}"


def non_finite(obs: Tree, reward: npt.NDArray[np.floating[Any]]) -> NonFinite | None:
    """The first NaN or infinity in row order, in a row ``obs`` before ``reward``; None if there is none.

    Declared bounds do not matter: an infinity counts also where a space allows it.

    Args:
        obs: numpy leaves [R, B, ...], R being T + 1 as a rule; leaves of integers are skipped.
        reward: [R, B].
    """
    found = [
        _first(leaf, path)
        for path, leaf in (*leaves(obs, "obs"), ("reward", reward))
        if leaf.dtype.kind == "f" and not np.isfinite(leaf).all()
    ]
    return min(found, key=lambda at: (at.row, at.path == "reward", at.position), default=None)


def _first(leaf: npt.NDArray[Any], path: str) -> NonFinite:
    place = tuple(int(i) for i in np.argwhere(~np.isfinite(leaf))[0])
    return NonFinite(place[0], place[1], path, float(leaf[place]))
