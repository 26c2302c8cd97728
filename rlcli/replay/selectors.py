"""How to pick transitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from rlcli.replay.ring import Index, Mask, Ring

Eligible: TypeAlias = Callable[[Index, Index], Mask]
"""Whether each (row, env) may be drawn, vectorised."""

_ROUNDS = 4
_CHUNK = 1 << 16


class Uniform:
    """Every eligible transition with the same probability, with replacement.

    Args:
        rng: The only source of randomness.
    """

    kind = "uniform"
    """Whose state `state` gives; one of another kind cannot be loaded."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def select(self, n: int, ring: Ring, eligible: Eligible) -> tuple[Index, Index]:
        """Draw rows and environments, [n] each.

        Tries stored places at random and keeps the eligible ones; where that finds too few, it lists them all.

        Raises:
            LookupError: if nothing is eligible.
        """
        found: list[Index] = []
        missing = n
        n_tries = n + n // 4 + 4
        for _ in range(_ROUNDS):
            places = self._rng.integers(ring.oldest * ring.n_envs, max(ring.head, 1) * ring.n_envs, n_tries)
            kept = places[eligible(*np.divmod(places, ring.n_envs))][:missing]
            found.append(kept)
            missing -= len(kept)
            if not missing:
                break
            n_tries *= 2
        else:
            found.append(self._rng.choice(self._listed(ring, eligible), missing))
        row, env = np.divmod(np.concatenate(found), ring.n_envs)
        return row, env

    def state(self) -> dict[str, Any]:
        """All that the next draws depend on, the ring aside: a plain tree, whose arrays are copies."""
        return {"rng": self._rng.bit_generator.state}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        self._rng.bit_generator.state = state["rng"]

    def _listed(self, ring: Ring, eligible: Eligible) -> Index:
        row, env = eligible_places(ring, eligible)
        if not len(row):
            raise LookupError("nothing to sample: no transition is stored with its whole window yet")
        return row * ring.n_envs + env


def eligible_places(ring: Ring, eligible: Eligible, at_least: int | None = None) -> tuple[Index, Index]:
    """All eligible (row, env), newest first; the search stops once it has ``at_least`` of them."""
    low, high = ring.oldest * ring.n_envs, ring.head * ring.n_envs
    found: list[Index] = [np.empty(0, np.int64)]
    n_found, chunk = 0, _CHUNK if at_least is None else 2 * at_least + 4 * ring.n_envs
    while high > low and (at_least is None or n_found < at_least):
        places = np.arange(high - 1, max(low, high - chunk) - 1, -1, dtype=np.int64)
        kept = places[eligible(*np.divmod(places, ring.n_envs))]
        found.append(kept)
        n_found += len(kept)
        high -= chunk
        chunk = min(2 * chunk, _CHUNK)
    row, env = np.divmod(np.concatenate(found), ring.n_envs)
    return row, env
