"""How to pick transitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from rlcli.replay.ring import Index, Mask, Ring

Eligible: TypeAlias = Callable[[Index, Index], Mask]
"""Whether each (row, env) may be drawn, vectorised."""

_ROUNDS = 4
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Drawn:
    """What was drawn, every array [N]."""

    row: Index
    env: Index
    weight: npt.NDArray[np.float32]
    """Importance weights, at most 1."""


class Selector(Protocol):
    """Decides what is drawn."""

    kind: str
    """Whose state `state` gives; one of another kind cannot be loaded."""
    every: int
    """Only rows whose absolute number is a multiple of it are drawn."""

    @property
    def n_bytes(self) -> int:
        """Bytes of its arrays."""

    def select(self, n: int, ring: Ring, eligible: Eligible, step: int) -> Drawn:
        """Draw n eligible transitions after ``step`` environment steps.

        Raises:
            LookupError: if there is none to draw.
        """

    def appended(self, ring: Ring, eligible: Eligible, row: Index, first_new: int) -> None:
        """Hear that the ring has new rows, from ``first_new`` on.

        Args:
            ring: With the new rows.
            eligible: As it is now.
            row: [M] different stored rows: all new ones, and all others that may have become or ceased to be eligible.
            first_new: The first new row, stored or not.
        """

    def update(self, ring: Ring, row: Index, env: Index, priority: npt.NDArray[np.floating[Any]]) -> None:
        """Hear how much transitions [N] matter; those that cannot be drawn any more are left out.

        Raises:
            ValueError: if a priority is not a finite number of at least 0.
        """

    def state(self) -> dict[str, Any]:
        """All that the next draws depend on, the ring aside: a plain tree, whose arrays are copies."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave; if it fails, nothing has changed."""


class Uniform:
    """Every eligible transition with the same probability, with replacement.

    Args:
        rng: The only source of randomness.
        every: Only rows whose absolute number is a multiple of it are drawn.
    """

    kind = "uniform"
    """See `Selector`."""

    n_bytes = 0
    """See `Selector`."""

    def __init__(self, rng: np.random.Generator, every: int = 1) -> None:
        self._rng, self.every = rng, every

    def select(self, n: int, ring: Ring, eligible: Eligible, step: int) -> Drawn:
        """See `Selector`.

        Tries stored places at random and keeps the eligible ones; where that finds too few, it lists them all.
        """
        found: list[Index] = []
        missing = n
        n_tries = n + n // 4 + 4
        low, high = -(-ring.oldest // self.every), -(-max(ring.head, 1) // self.every)
        for _ in range(_ROUNDS):
            places = self._rng.integers(low * ring.n_envs, high * ring.n_envs, n_tries)
            kept = places[eligible(*self._row_env(places, ring))][:missing]
            found.append(kept)
            missing -= len(kept)
            if not missing:
                break
            n_tries *= 2
        else:
            found.append(self._rng.choice(self._listed(ring, eligible), missing))
        return Drawn(*self._row_env(np.concatenate(found), ring), np.ones(n, np.float32))

    def appended(self, ring: Ring, eligible: Eligible, row: Index, first_new: int) -> None:
        """See `Selector`."""

    def update(self, ring: Ring, row: Index, env: Index, priority: npt.NDArray[np.floating[Any]]) -> None:
        """See `Selector`."""

    def state(self) -> dict[str, Any]:
        """See `Selector`."""
        return {"rng": self._rng.bit_generator.state}

    def load_state(self, state: dict[str, Any]) -> None:
        """See `Selector`."""
        self._rng.bit_generator.state = state["rng"]

    def _listed(self, ring: Ring, eligible: Eligible) -> Index:
        row, env = eligible_places(ring, eligible, self.every)
        if not len(row):
            raise LookupError("nothing to sample: no transition is stored with its whole window yet")
        return row // self.every * ring.n_envs + env

    def _row_env(self, places: Index, ring: Ring) -> tuple[Index, Index]:
        start, env = np.divmod(places, ring.n_envs)
        return start * self.every, env


def eligible_places(ring: Ring, eligible: Eligible, every: int, at_least: int | None = None) -> tuple[Index, Index]:
    """All eligible (row, env), newest first, of rows that are multiples of ``every``.

    The search stops once it has ``at_least`` of them.
    """
    low, high = -(-ring.oldest // every) * ring.n_envs, -(-ring.head // every) * ring.n_envs
    found: list[Index] = [np.empty(0, np.int64)]
    n_found, chunk = 0, _CHUNK if at_least is None else 2 * at_least + 4 * ring.n_envs
    while high > low and (at_least is None or n_found < at_least):
        places = np.arange(high - 1, max(low, high - chunk) - 1, -1, dtype=np.int64)
        start, env = np.divmod(places, ring.n_envs)
        kept = places[eligible(start * every, env)]
        found.append(kept)
        n_found += len(kept)
        high -= chunk
        chunk = min(2 * chunk, _CHUNK)
    start, env = np.divmod(np.concatenate(found), ring.n_envs)
    return start * every, env
