"""Samples: the data contract between samplers and algorithms."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from rlcli.core.tree import Tree


@dataclass(frozen=True, slots=True)
class Samples:
    """One batch of experience in time order. Every leaf leads with [T, B] unless said.

    On a valid row ``obs[t + 1]`` is the true successor of ``obs[t]`` under ``action[t]``, the last observation of
    an episode included. After an episode's end comes a filler row (``valid`` False), whose ``obs`` is that last
    observation and in which the env resets: mask it, never learn from it. With ``reset: between_batches`` the rest
    of the batch is filler. A life loss may be ``terminated`` while the game goes on; no filler row follows then.

    A filler row with ``truncated`` set is a cut: the environment was lost with its worker in this row, whose ``obs``
    still is the true successor of the row before. Treat the row before as truncated.

    The memory is reused by the sampler's next batch: copy what must outlive it.
    """

    obs: Tree
    """[T + 1, B, ...]; the last row serves bootstrapping."""
    action: Tree
    """[T, B, ...]."""
    reward: Tensor
    """[T, B] float32, as learned from (clipped or scaled by the env)."""
    terminated: Tensor
    """[T, B] bool: the task ended here, never bootstrap."""
    truncated: Tensor
    """[T, B] bool: the clock ended here, bootstrap from obs[t + 1]; on a filler row: a cut."""
    valid: Tensor
    """[T, B] bool: False on filler rows."""
    record: Tree
    """[T, B, ...] what the agent noted: value, log_prob, q ..."""
    state: Tree
    """[B, ...] recurrent state before row 0, None if there is none."""


@dataclass(frozen=True, slots=True)
class Episode:
    """A finished learning episode: ends where the task terminated or was truncated, a life loss included."""

    row: int
    """Row of the batch in which it ended."""
    env_id: int
    length: int
    """Agent steps."""
    return_: float
    """Sum of the rewards learned from."""
    discounted_return: float
    nonzero_rewards: int


@dataclass(frozen=True, slots=True)
class Game:
    """A finished whole game: from a reset of the environment to the next."""

    row: int
    env_id: int
    length: int
    """Agent steps."""
    score: float
    """Sum of the environment's own rewards, before clipping or scaling."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What a sampler hands over for one batch."""

    samples: Samples
    n_steps: int
    """Valid rows: agent decisions that count."""
    episodes: list[Episode] = field(default_factory=list)
    games: list[Game] = field(default_factory=list)
    longest_running: int = 0
    """Length so far of the longest unfinished learning episode, agent steps."""
    policy_lag: int = 0
    """How many publications the weights that acted are behind the newest; more than 0 in async mode only."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What one evaluation saw: exactly the asked number of whole games, less those cut by the step cap."""

    games: list[Game]
    episodes: list[Episode]
    n_steps: int
    cut_scores: list[float]
    """Scores so far of the games that the cap on steps cut off; not part of ``games``."""
