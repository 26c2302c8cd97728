"""Draws what surprised the learner more often.

Source: Schaul et al. 2016, Prioritized experience replay (arXiv 1511.05952), section 3.3 and algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rlcli.core.schedules import Schedule
from rlcli.replay.ring import Index, Ring
from rlcli.replay.selectors import Drawn, Eligible
from rlcli.replay.sum_tree import SumTree, Values

Initial: TypeAlias = Callable[[Ring, Index, Index], Values]
"""Priority [M] of eligible (row, env), nan where nothing is known."""


class Prioritized:
    """Eligible transitions with probability P(i) = p_i^alpha / sum_k p_k^alpha, weighted by (N P(i))^-beta.

    The tree holds p_i^alpha of what is eligible, 0 of everything else. What becomes eligible begins with the highest
    priority so far, 1 at first. Draws are stratified: one from each of n ranges of equal probability.

    Args:
        rng: The only source of randomness.
        n_rows: Of the ring.
        n_envs: B.
        alpha: How much priorities count; 0: uniform.
        beta: How much of the bias the weights take back, as a function of env steps; 1: all of it.
        eps: Added to each priority, so that nothing is never drawn again; above 0.
        unique: Whether a batch holds no transition twice.
        every: Only rows whose absolute number is a multiple of it are drawn.
        initial: Gives what becomes eligible a priority, nan where it knows none; None: never knows one.
    """

    kind = "prioritized"
    """See `Selector`."""

    def __init__(
        self,
        rng: np.random.Generator,
        n_rows: int,
        n_envs: int,
        *,
        alpha: float,
        beta: Schedule,
        eps: float,
        unique: bool,
        every: int = 1,
        initial: Initial | None = None,
    ) -> None:
        self._rng, self._n_envs, self.every, self._initial = rng, n_envs, every, initial
        self._alpha, self._beta, self._eps, self._unique = alpha, beta, eps, unique
        self._n_starts = -(-n_rows // every)  # as many drawable rows may be stored at the same time
        self._tree = SumTree(self._n_starts * n_envs)
        self._max_priority = 1.0

    @property
    def n_bytes(self) -> int:
        """See `Selector`."""
        return self._tree.n_bytes

    def select(self, n: int, ring: Ring, eligible: Eligible, step: int) -> Drawn:
        """See `Selector`."""
        if not self._tree.total:
            raise LookupError("nothing to sample: no transition is stored with its whole window yet")
        place = self._draw_once(n) if self._unique else self._draw(n)
        p = self._tree.get(place)
        # N and the sum of all p fall out of (N P)^-beta where it is divided by its maximum, that of the smallest p.
        weight = (p.min() / p) ** self._beta(step)
        start_in_tree, env = np.divmod(place, self._n_envs)
        newest = (ring.head - 1) // self.every
        row = (newest - (newest - start_in_tree) % self._n_starts) * self.every
        return Drawn(row, env, weight.astype(np.float32))

    def appended(self, ring: Ring, eligible: Eligible, row: Index, first_new: int) -> None:
        """See `Selector`."""
        gone = np.arange(max(0, first_new - ring.n_rows), ring.oldest)  # overwritten, their places not taken over yet
        gone = gone[(gone % self.every == 0) & (gone + self._n_starts * self.every >= ring.head)]
        row, env = self._grid(row[row % self.every == 0])
        place = self._place(row, env)
        before = np.where(row < first_new, self._tree.get(place), 0.0)  # in a new row's place lies an older row's
        drawable = eligible(row, env)
        now = np.where(drawable, before, 0.0)
        newly = drawable & (before == 0)
        now[newly] = self._first_priority(ring, row[newly], env[newly]) ** self._alpha
        gone_place = self._place(*self._grid(gone))
        self._tree.set(np.concatenate([gone_place, place]), np.concatenate([np.zeros(len(gone_place)), now]))

    def update(self, ring: Ring, row: Index, env: Index, priority: npt.NDArray[np.floating[Any]]) -> None:
        """See `Selector`."""
        p = priority.astype(np.float64) + self._eps
        if not (np.isfinite(p) & (p > 0)).all():
            raise ValueError(f"priority: {priority[~(np.isfinite(p) & (p > 0))][0]} is not a finite number >= 0")
        place = self._place(row, env)
        kept = ring.has(row) & (self._tree.get(place) > 0)  # the others may not be drawn any more
        self._tree.set(place[kept], p[kept] ** self._alpha)
        self._max_priority = float(p[kept].max(initial=self._max_priority))

    def state(self) -> dict[str, Any]:
        """See `Selector`."""
        return {
            "rng": self._rng.bit_generator.state,
            "leaves": self._tree.leaves(),
            "max_priority": self._max_priority,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """See `Selector`."""
        leaves, max_priority = np.asarray(state["leaves"]), float(state["max_priority"])
        sound = leaves.shape == (self._tree.n_leaves,) and leaves.dtype == np.float64 and np.isfinite(leaves).all()
        if not sound or leaves.min() < 0:
            raise ValueError(f"priorities: {leaves.dtype} {leaves.shape}, need {self._tree.n_leaves} float64 >= 0")
        self._rng.bit_generator.state = state["rng"]
        self._max_priority = max_priority
        self._tree.load_leaves(leaves)

    def _first_priority(self, ring: Ring, row: Index, env: Index) -> Values:
        """Of what becomes eligible, [M]: what is known of it, else the highest so far."""
        if self._initial is None or not len(row):
            return np.full(len(row), self._max_priority)
        known = self._initial(ring, row, env) + self._eps
        self._max_priority = float(np.nanmax(known, initial=self._max_priority))
        return np.where(np.isnan(known), self._max_priority, known)

    def _grid(self, row: Index) -> tuple[Index, Index]:
        """Each row in each environment."""
        return row.repeat(self._n_envs), np.tile(np.arange(self._n_envs), len(row))

    def _place(self, row: Index, env: Index) -> Index:
        return (row // self.every % self._n_starts) * self._n_envs + env

    def _draw(self, n: int) -> Index:
        return self._tree.find(strata(self._rng.random(n)) * self._tree.total)

    def _draw_once(self, n: int) -> Index:
        """Draw n different places: what was drawn is taken out of the tree until all are there."""
        places, values, missing = [np.empty(0, np.int64)], [np.empty(0)], n
        while missing and self._tree.total:
            places.append(np.unique(self._draw(missing)))
            values.append(self._tree.get(places[-1]))
            self._tree.set(places[-1], np.zeros(len(places[-1])))
            missing -= len(places[-1])
        place = np.concatenate(places)
        self._tree.set(place, np.concatenate(values))
        if missing:
            raise LookupError(f"{n} different transitions were asked for, {n - missing} can be drawn")
        return place


def strata(uniforms: Values) -> Values:
    """One number from each of n equal parts of [0, 1), from uniforms [n] in [0, 1)."""
    return (np.arange(len(uniforms)) + uniforms) / len(uniforms)
