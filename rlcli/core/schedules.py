"""Schedules: numbers as functions of environment steps, never of iterations.

Steps are agent decisions summed over all environments, so a schedule means the same for any batch shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from rlcli.core.options import option


class Schedule(Protocol):
    """A number for each environment step."""

    def __call__(self, step: int) -> float:
        """The value at ``step``."""


@dataclass
class Constant:
    """The same value for ever."""

    value: float = option(1.0, "The value.")

    def __call__(self, step: int) -> float:
        """The value, whatever the step."""
        return self.value


@dataclass
class Linear:
    """``init`` until ``start_steps``, then a straight line to ``final`` at ``end_steps``, then ``final``."""

    init: float = option(1.0, "Value at the start.")
    final: float = option(0.0, "Value at the end and from there on.")
    start_steps: int = option(0, "Env steps before the line begins.", ge=0)
    end_steps: int = option(1_000_000, "Env steps at which `final` is reached.", ge=0)

    def problems(self) -> list[str]:
        """Checks across fields."""
        return _order(self.start_steps, self.end_steps)

    def __call__(self, step: int) -> float:
        """The value at ``step``."""
        return self.init + _progress(step, self.start_steps, self.end_steps) * (self.final - self.init)


@dataclass
class Exponential:
    """As Linear, but a straight line in the logarithm: equal factors in equal times."""

    init: float = option(1.0, "Value at the start.", gt=0)
    final: float = option(0.01, "Value at the end and from there on.", gt=0)
    start_steps: int = option(0, "Env steps before the decay begins.", ge=0)
    end_steps: int = option(1_000_000, "Env steps at which `final` is reached.", ge=0)

    def problems(self) -> list[str]:
        """Checks across fields."""
        return _order(self.start_steps, self.end_steps)

    def __call__(self, step: int) -> float:
        """The value at ``step``."""
        progress = _progress(step, self.start_steps, self.end_steps)
        return float(self.init * (self.final / self.init) ** progress)


@dataclass
class Piecewise:
    """Straight lines between the points (steps[i], values[i]); flat before the first and after the last."""

    steps: list[int] = option([0, 1_000_000], "Env steps of the points, strictly rising.", ge=0)
    values: list[float] = option([1.0, 0.0], "Values at the points.")

    def problems(self) -> list[str]:
        """Checks across fields."""
        if not self.steps or len(self.steps) != len(self.values):
            return [f"values: {len(self.values)} values for {len(self.steps)} steps, must be as many and at least 1"]
        if any(a >= b for a, b in pairwise(self.steps)):
            return [f"steps: {self.steps} must rise strictly"]
        return []

    def __call__(self, step: int) -> float:
        """The value at ``step``."""
        if step <= self.steps[0]:
            return self.values[0]
        points = list(zip(self.steps, self.values, strict=True))
        for (s0, v0), (s1, v1) in pairwise(points):
            if step <= s1:
                return v0 + (step - s0) / (s1 - s0) * (v1 - v0)
        return self.values[-1]


def _progress(step: int, start: int, end: int) -> float:
    if step <= start and not step >= end:
        return 0.0
    return 1.0 if step >= end else (step - start) / (end - start)


def _order(start: int, end: int) -> list[str]:
    return [] if start <= end else [f"end_steps: {end} must be >= start_steps, which is {start}"]
