"""The columns of progress.csv and the numbers in them; docs/columns.md says what each means."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
import psutil

from rlcli.core.errors import did_you_mean
from rlcli.core.samples import Collected, Episode, Evaluation, Game

SUFFIXES = ("Average", "Std", "Median", "Min", "Max")
"""The five columns that a series of numbers becomes; the standard deviation is the population's."""

MACHINE_COLUMNS = (
    "CumTime (s)",
    "StepsPerSecond",
    "UpdatesPerSecond",
    "SampleTime (s)",
    "LearnTime (s)",
    "RSS (MB)",
    "PolicyLag",
    "EvalTime (s)",
    "CumEvalTime (s)",
)
"""Columns that hang on the machine and its load; all others are the same whenever a seed is run again."""

_COUNTERS = (
    "Iteration",
    "CumTime (s)",
    "CumSteps",
    "CumCompletedTrajs",
    "NewCompletedTrajs",
    "StepsInTrajWindow",
    "CumUpdates",
    "WeightsHash",
    "StepsPerSecond",
    "UpdatesPerSecond",
    "ReplayRatio",
    "CumReplayRatio",
    "SampleTime (s)",
    "LearnTime (s)",
    "RSS (MB)",
)
_EPISODE_SERIES = ("Length", "Return", "NonzeroRewards", "DiscountedReturn")
_GAME_SERIES = ("GameScore", "GameLength")
_EVAL_SERIES = ("EvalReturn", "EvalLength", "EvalGameScore")
_EVAL_COUNTERS = ("EvalEpisodes", "EvalEpisodesCut", "EvalSteps", "EvalTime (s)", "CumEvalTime (s)")

_POLICY_LAG = "PolicyLag"

_SUMS = (
    "cum_episodes",
    "longest_running",
    "cum_eval_s",
    "hinted",
    "new_episodes",
    "sampling_s",
    "learning_s",
    "eval_s",
)
"""Attributes of RunStats, without their underscore, that go on in a resumed run."""

_NAN = float("nan")


def five(name: str, values: Iterable[float]) -> dict[str, float]:
    """Average, standard deviation, median, smallest and largest of ``values``; all nan if there are none."""
    series = np.fromiter(values, np.float64)
    if not series.size:
        return {name + suffix: _NAN for suffix in SUFFIXES}
    with np.errstate(all="ignore"):  # a diverged loss must reach the file, not end the run here
        numbers = (series.mean(), series.std(), np.median(series), series.min(), series.max())
    return {name + suffix: float(number) for suffix, number in zip(SUFFIXES, numbers, strict=True)}


def resident_mb() -> float:
    """Memory held by this process and its children, 10**6 bytes; pages that they share count in each."""
    process = psutil.Process()
    total = process.memory_info().rss
    for child in process.children(recursive=True):
        try:
            total += child.memory_info().rss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return float(total / 1e6)


class RunStats:
    """Gathers what a run did and closes one interval with each row.

    Args:
        window: Last finished training episodes, and whole games, that the statistics run over.
        metric_names: The algorithm's metrics; five columns each.
        scalar_names: The algorithm's single numbers; one column each.
        evaluation: Whether the run evaluates; without, there are no columns for it.
        policy_lag: Whether batches may come from older weights; without, there is no column for it.
        clock: Seconds; CumTime counts from now on.
        memory: Megabytes held.

    Raises:
        ValueError: Two columns would have the same name.
    """

    def __init__(
        self,
        window: int,
        metric_names: Sequence[str],
        scalar_names: Sequence[str],
        evaluation: bool,
        *,
        policy_lag: bool = False,
        clock: Callable[[], float] = time.perf_counter,
        memory: Callable[[], float] = resident_mb,
    ) -> None:
        self._clock, self._memory = clock, memory
        self._episodes: deque[Episode] = deque(maxlen=window)
        self._games: deque[Game] = deque(maxlen=window)
        self._metrics: dict[str, list[float]] = {name: [] for name in metric_names}
        self._scalar_names = tuple(scalar_names)
        self._evaluation: Evaluation | None = None
        self._evaluates = evaluation
        self._lags: list[float] | None = [] if policy_lag else None
        self._start = clock()
        self._cum = {"time": 0.0, "steps": 0, "updates": 0, "consumed": 0}
        self._cum_episodes = self._longest_running = 0
        self._cum_eval_s = 0.0
        self._hint: str | None = None
        self._hinted = False
        self._begin_interval()
        self.columns = self._names()

    def add(self, collected: Collected) -> None:
        """Take in the finished episodes and games of one batch."""
        self._episodes.extend(collected.episodes)
        self._games.extend(collected.games)
        self._new_episodes += len(collected.episodes)
        self._longest_running = collected.longest_running
        if self._lags is not None:
            self._lags.append(collected.policy_lag)

    def add_metrics(self, metrics: Mapping[str, Sequence[float]]) -> None:
        """Take in one number per update and metric.

        Raises:
            KeyError: A metric was not declared.
        """
        for name, values in metrics.items():
            if name not in self._metrics:
                raise KeyError(f"metric {name!r} is not declared{did_you_mean(name, self._metrics)}")
            self._metrics[name].extend(values)

    def add_time(self, sampling_s: float, learning_s: float) -> None:
        """Add the seconds that one iteration took."""
        self._sampling_s += sampling_s
        self._learning_s += learning_s

    def add_evaluation(self, evaluation: Evaluation, seconds: float) -> None:
        """Take in an evaluation; of several in one interval the last one's games count, and all their seconds.

        Raises:
            ValueError: The run was declared to have none.
        """
        if not self._evaluates:
            raise ValueError("an evaluation came to a run that was declared to have none")
        self._evaluation = evaluation
        self._eval_s += seconds
        self._cum_eval_s += seconds

    def row(
        self,
        *,
        itr: int,
        step: int,
        n_updates: int,
        n_consumed: int,
        scalars: Mapping[str, float],
        weights_hash: int = 0,
    ) -> dict[str, float]:
        """The next row; afterwards a new interval begins.

        Args:
            itr: Iterations done.
            step: Env steps done.
            n_updates: Gradient steps done.
            n_consumed: Samples that went into gradient steps so far.
            scalars: The algorithm's single numbers now.
            weights_hash: Of the agent's weights now.

        Raises:
            KeyError: A scalar was not declared.
        """
        row = self._progress(itr, step, n_updates, n_consumed) | {"WeightsHash": weights_hash}
        for name in _EPISODE_SERIES:
            row |= five(name, (_EPISODE_VALUES[name](episode) for episode in self._episodes))
        row |= five("GameScore", (game.score for game in self._games))
        row |= five("GameLength", (game.length for game in self._games))
        for name, values in self._metrics.items():
            row |= five(name, values)
        row |= self._scalars(scalars)
        if self._lags is not None:
            row[_POLICY_LAG] = float(np.mean(self._lags)) if self._lags else _NAN
        if self._evaluates:
            row |= self._evaluation_values()
        self._look_for_hint(step)
        self._begin_interval()
        return row

    def state(self) -> dict[str, Any]:
        """All that has been gathered, the open interval included; plain."""
        return {
            "episodes": [astuple(episode) for episode in self._episodes],
            "games": [astuple(game) for game in self._games],
            "metrics": {name: list(values) for name, values in self._metrics.items()},
            "lags": None if self._lags is None else list(self._lags),
            "elapsed": self._clock() - self._start,
            "cum": dict(self._cum),
            **{name: getattr(self, f"_{name}") for name in _SUMS},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on with what `state` gave; the clock goes on from where it stood."""
        self._episodes.extend(Episode(*values) for values in state["episodes"])
        self._games.extend(Game(*values) for values in state["games"])
        for name, values in state["metrics"].items():
            if name in self._metrics:
                self._metrics[name] = list(values)
        if self._lags is not None:
            self._lags = list(state["lags"] or [])
        self._start = self._clock() - state["elapsed"]
        self._cum = dict(state["cum"])
        for name in _SUMS:
            setattr(self, f"_{name}", state[name])

    def hint(self) -> str | None:
        """Why the return columns are empty: once, after the first row that finds no finished episode."""
        hint, self._hint = self._hint, None
        return hint

    def _names(self) -> tuple[str, ...]:
        series = [*_EPISODE_SERIES, *_GAME_SERIES, *self._metrics]
        names = [*_COUNTERS, *(name + suffix for name in series for suffix in SUFFIXES), *self._scalar_names]
        if self._lags is not None:
            names.append(_POLICY_LAG)
        if self._evaluates:
            names += [name + suffix for name in _EVAL_SERIES for suffix in SUFFIXES] + list(_EVAL_COUNTERS)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two columns would have the same name: {', '.join(twice)}")
        return tuple(names)

    def _progress(self, itr: int, step: int, n_updates: int, n_consumed: int) -> dict[str, float]:
        before, elapsed = self._cum, self._clock() - self._start
        self._cum = {"time": elapsed, "steps": step, "updates": n_updates, "consumed": n_consumed}
        new = {name: self._cum[name] - before[name] for name in before}
        training_s = new["time"] - self._eval_s
        self._cum_episodes += self._new_episodes
        values = (
            itr,
            elapsed,
            step,
            self._cum_episodes,
            self._new_episodes,
            sum(episode.length for episode in self._episodes),
            n_updates,
            0,  # the hash
            _ratio(new["steps"], training_s),
            _ratio(new["updates"], training_s),
            _ratio(new["consumed"], new["steps"]),
            _ratio(n_consumed, step),
            self._sampling_s,
            self._learning_s,
            self._memory(),
        )
        return dict(zip(_COUNTERS, values, strict=True))

    def _scalars(self, scalars: Mapping[str, float]) -> dict[str, float]:
        unknown = set(scalars) - set(self._scalar_names)
        if unknown:
            raise KeyError(f"scalar {min(unknown)!r} is not declared{did_you_mean(min(unknown), self._scalar_names)}")
        return {name: scalars.get(name, _NAN) for name in self._scalar_names}

    def _evaluation_values(self) -> dict[str, float]:
        done = self._evaluation
        if done is None:
            empty = [name + suffix for name in _EVAL_SERIES for suffix in SUFFIXES] + list(_EVAL_COUNTERS)
            return {**dict.fromkeys(empty, _NAN), "CumEvalTime (s)": self._cum_eval_s}
        return {
            **five("EvalReturn", (episode.return_ for episode in done.episodes)),
            **five("EvalLength", (game.length for game in done.games)),
            **five("EvalGameScore", (game.score for game in done.games)),
            "EvalEpisodes": len(done.games),
            "EvalEpisodesCut": len(done.cut_scores),
            "EvalSteps": done.n_steps,
            "EvalTime (s)": self._eval_s,
            "CumEvalTime (s)": self._cum_eval_s,
        }

    def _look_for_hint(self, step: int) -> None:
        if self._hinted or self._cum_episodes or not step:
            return
        self._hinted = True
        self._hint = f"no episode finished in {step:,} steps; the longest has run {self._longest_running:,} steps"

    def _begin_interval(self) -> None:
        self._new_episodes = 0
        self._sampling_s = self._learning_s = self._eval_s = 0.0
        self._evaluation = None
        if self._lags is not None:
            self._lags.clear()
        for values in self._metrics.values():
            values.clear()


_EPISODE_VALUES: dict[str, Callable[[Episode], float]] = {
    "Length": lambda episode: episode.length,
    "Return": lambda episode: episode.return_,
    "NonzeroRewards": lambda episode: episode.nonzero_rewards,
    "DiscountedReturn": lambda episode: episode.discounted_return,
}


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else _NAN
