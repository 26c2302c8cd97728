"""The words and numbers that a run shows while it goes on. Imports no torch."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

_SHOWN = {
    "return": "ReturnAverage",
    "score": "GameScoreAverage",
    "eval": "EvalReturnAverage",
    "loss": "lossAverage",
}
"""Word on the screen and its column of progress.csv."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, for the live panel."""

    step: int
    n_steps: int
    itr: int
    n_updates: int
    steps_per_s: float
    sampling_share: float
    """Of the wall time, 0 to 1."""
    learning_share: float
    eta_s: float
    last: Mapping[str, float]
    """Words and the last numbers known of them (`last_numbers`)."""


@dataclass
class Pace:
    """Speed and shares of time over the last looks, about 10 s at 4 looks a second."""

    sampling_s: float = 0.0
    """Seconds so far."""
    learning_s: float = 0.0
    _looks: deque[tuple[float, int, float, float]] = field(default_factory=lambda: deque(maxlen=40))

    def look(self, now: float, step: int) -> None:
        """Note where the run is at time ``now``, seconds."""
        self._looks.append((now, step, self.sampling_s, self.learning_s))

    def rates(self) -> tuple[float, float, float]:
        """Steps per second, share of sampling, share of learning; nan before two looks."""
        first, last = self._looks[0], self._looks[-1]
        elapsed = last[0] - first[0]
        if elapsed <= 0:
            return math.nan, math.nan, math.nan
        return (last[1] - first[1]) / elapsed, (last[2] - first[2]) / elapsed, (last[3] - first[3]) / elapsed


def last_numbers(row: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """The numbers worth a look, by their word; where ``row`` has none (nan), the one known ``before`` stays."""
    numbers = dict(before)
    columns = _SHOWN | {"epsilon": next((name for name in row if name.lower() == "epsilon"), "Epsilon")}
    for word, column in columns.items():
        if column in row and (word not in before or not math.isnan(row[column])):
            numbers[word] = row[column]
    return numbers


def row_line(row: Mapping[str, float], n_steps: int, eta_s: float) -> str:
    """One row of progress.csv as one line; ``-`` where there is no value."""
    step = int(row["CumSteps"])
    parts = [f"step {step:,}/{n_steps:,}", percent_done(step, n_steps)]
    parts += [f"{word} {number(row[column])}" for word, column in _SHOWN.items() if column in row]
    return "  ".join([*parts, f"{number(row['StepsPerSecond'])} steps/s", f"ETA {duration(eta_s)}"])


def eta(step: int, n_steps: int, steps_per_s: float) -> float:
    """Seconds that the rest takes at this speed; nan where nobody knows."""
    left = max(n_steps - step, 0)
    return left / steps_per_s if steps_per_s > 0 else math.nan


def percent_done(step: int, n_steps: int) -> str:
    """Rounded down, so that 100% means done."""
    return f"{min(100 * step // n_steps, 100)}%"


def number(value: float) -> str:
    """Four digits, thousands apart."""
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def share(value: float) -> str:
    """A share as per cent."""
    return "-" if math.isnan(value) else f"{100 * value:.0f}%"


def duration(seconds: float) -> str:
    """As 1:05, 2:01:05 or 3d 02:01:05."""
    if not math.isfinite(seconds):
        return "-"
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    if days:
        return f"{days}d {h:02}:{m:02}:{s:02}"
    return f"{h}:{m:02}:{s:02}" if h else f"{m}:{s:02}"
