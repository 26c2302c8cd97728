"""Configs of epsilon, the share of random actions: a schedule over env steps, one value or one per environment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from rlcli.core.options import option
from rlcli.core.schedules import Constant, Exponential, Linear, Piecewise


class Epsilon(Protocol):
    """Any config of this module."""

    eval: float

    def per_env(self, step: int, n_envs: int) -> list[float]:
        """Epsilon of each of ``n_envs`` environments, by global env id, at ``step``."""


_EVAL_DOC = "Epsilon in evaluation; small but not 0, so that no game gets stuck (rlpyt)."


@dataclass
class ConstantEpsilon(Constant):
    """The same epsilon for ever."""

    value: float = option(0.05, "Share of random actions.", ge=0, le=1)
    eval: float = option(0.001, _EVAL_DOC, ge=0, le=1)

    def per_env(self, step: int, n_envs: int) -> list[float]:
        """Epsilon of each environment at ``step``."""
        return [self(step)] * n_envs


@dataclass
class LinearEpsilon(Linear):
    """A straight line from `init` to `final`; with `final_min` each environment has its own end."""

    init: float = option(1.0, "Epsilon at the start.", ge=0, le=1)
    final: float = option(0.01, "Epsilon at the end and from there on (rlpyt).", ge=0, le=1)
    start_steps: int = option(0, "Env steps before the line begins.", ge=0)
    end_steps: int = option(1_000_000, "Env steps at which `final` is reached (Mnih 2015, ext. table 1).", ge=0)
    final_min: float | None = option(
        None,
        "If given, the ends are spread evenly in the logarithm from `final_min` (env 0) to `final` (last env), as in "
        "rlpyt's vector epsilon.",
        gt=0,
        le=1,
    )
    eval: float = option(0.001, _EVAL_DOC, ge=0, le=1)

    def problems(self) -> list[str]:
        """Checks across fields."""
        if self.final_min is not None and self.final < self.final_min:
            return [f"final_min: {self.final_min} must be <= final, which is {self.final}"]
        return super().problems()

    def per_env(self, step: int, n_envs: int) -> list[float]:
        """Epsilon of each environment at ``step``."""
        if self.final_min is None:
            return [self(step)] * n_envs
        progress = (self(step) - self.init) / (self.final - self.init) if self.final != self.init else 1.0
        low, high = math.log10(self.final_min), math.log10(self.final)
        ends = [10 ** (low + (high - low) * i / max(1, n_envs - 1)) for i in range(n_envs)]
        return [self.init + progress * (end - self.init) for end in ends]


@dataclass
class ExponentialEpsilon(Exponential):
    """Equal factors in equal times, from `init` to `final`."""

    init: float = option(1.0, "Epsilon at the start.", gt=0, le=1)
    final: float = option(0.01, "Epsilon at the end and from there on.", gt=0, le=1)
    eval: float = option(0.001, _EVAL_DOC, ge=0, le=1)

    def per_env(self, step: int, n_envs: int) -> list[float]:
        """Epsilon of each environment at ``step``."""
        return [self(step)] * n_envs


@dataclass
class PiecewiseEpsilon(Piecewise):
    """Straight lines between the points (steps[i], values[i])."""

    steps: list[int] = option([0, 1_000_000, 10_000_000], "Env steps of the points, strictly rising.", ge=0)
    values: list[float] = option([1.0, 0.1, 0.01], "Epsilon at the points.", ge=0, le=1)
    eval: float = option(0.001, _EVAL_DOC, ge=0, le=1)

    def per_env(self, step: int, n_envs: int) -> list[float]:
        """Epsilon of each environment at ``step``."""
        return [self(step)] * n_envs


@dataclass
class ApexEpsilon:
    """Constant in time, different for each environment: ``base ** (1 + alpha * i / (B - 1))``.

    Source: Horgan 2018 (Ape-X), section 4.1; i is the global env id.
    """

    base: float = option(0.4, "Epsilon of environment 0.", gt=0, lt=1)
    alpha: float = option(7.0, "Spread of the exponents.", ge=0)
    eval: float = option(0.001, _EVAL_DOC, ge=0, le=1)

    def per_env(self, step: int, n_envs: int) -> list[float]:
        """Epsilon of each environment; ``step`` does not matter."""
        return [self.base ** (1 + self.alpha * i / max(1, n_envs - 1)) for i in range(n_envs)]
