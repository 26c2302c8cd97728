"""Statistics of episodes, gathered where the environments are stepped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcli.core.samples import Episode, Game
from rlcli.core.spec import Step


class EpisodeTracker:
    """Sums rewards over learning episodes and whole games of B environments.

    Args:
        env_ids: Global ids.
        discount: For the discounted return.
    """

    def __init__(self, env_ids: Sequence[int], discount: float) -> None:
        self._env_ids = list(env_ids)
        self._discount = discount
        self.reset()

    def reset(self) -> None:
        """Forget what is running."""
        n = len(self._env_ids)
        self._length = np.zeros(n, np.int64)
        self._return = np.zeros(n, np.float64)
        self._discounted = np.zeros(n, np.float64)
        self._factor = np.ones(n, np.float64)
        self._nonzero = np.zeros(n, np.int64)
        self._game_length = np.zeros(n, np.int64)
        self._score = np.zeros(n, np.float64)

    def state(self) -> list[Any]:
        """[B] what is running in each environment, plain."""
        return [{name: array[b].item() for name, array in self._sums().items()} for b in range(len(self._env_ids))]

    def load_state(self, states: Sequence[Any]) -> None:
        """Go on with what `state` gave."""
        for b, state in enumerate(states):
            for name, array in self._sums().items():
                array[b] = state[name]

    def step(self, row: int, step: Step) -> tuple[list[Episode], list[Game]]:
        """Add one step of every environment; gives what ended in it."""
        valid, over = step.valid, step.terminated | step.truncated
        if valid.all():
            self._length += 1
            self._game_length += 1
            self._discounted += self._factor * step.reward
            self._factor *= self._discount
        else:
            cuts = step.truncated & ~valid
            for b in np.flatnonzero(cuts).tolist():  # lost with its worker: an episode that never was
                self._begin_episode(b)
                self._begin_game(b)
            over &= valid
            self._length += valid
            self._game_length += valid
            self._discounted += self._factor * step.reward
            self._factor *= np.where(valid, self._discount, 1.0)
        self._return += step.reward
        self._nonzero += step.reward != 0
        self._score += step.raw_reward
        if not over.any():
            return [], []
        episodes = [self._close_episode(row, b) for b in np.flatnonzero(over).tolist()]
        games = [self._close_game(row, b) for b in np.flatnonzero(step.ended & valid).tolist()]
        return episodes, games

    @property
    def longest_running(self) -> int:
        """Length of the longest unfinished learning episode."""
        return int(self._length.max())

    @property
    def running_scores(self) -> list[float]:
        """Score so far of each environment's game."""
        return [float(s) for s in self._score]

    def _sums(self) -> dict[str, npt.NDArray[Any]]:
        return {
            "length": self._length,
            "return": self._return,
            "discounted": self._discounted,
            "factor": self._factor,
            "nonzero": self._nonzero,
            "game_length": self._game_length,
            "score": self._score,
        }

    def _close_episode(self, row: int, b: int) -> Episode:
        episode = Episode(
            row=row,
            env_id=self._env_ids[b],
            length=int(self._length[b]),
            return_=float(self._return[b]),
            discounted_return=float(self._discounted[b]),
            nonzero_rewards=int(self._nonzero[b]),
        )
        self._begin_episode(b)
        return episode

    def _close_game(self, row: int, b: int) -> Game:
        game = Game(row=row, env_id=self._env_ids[b], length=int(self._game_length[b]), score=float(self._score[b]))
        self._begin_game(b)
        return game

    def _begin_episode(self, b: int) -> None:
        self._length[b] = self._nonzero[b] = 0
        self._return[b] = self._discounted[b] = 0.0
        self._factor[b] = 1.0

    def _begin_game(self, b: int) -> None:
        self._game_length[b] = 0
        self._score[b] = 0.0
