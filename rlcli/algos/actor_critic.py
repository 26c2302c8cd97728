"""What the rules of continuous actions share: what they learn from, and gradients through a critic but not into it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from rlcli.core.tree import Tree, to
from rlcli.replay.replay import ReplayBatch


@dataclass(frozen=True, slots=True)
class Transitions:
    """N transitions where learning runs."""

    obs: Tree
    """[N, ...]."""
    action: Tensor
    """[N, D] float32 in normalised units: each dimension of the box is [-1, 1]."""
    return_: Tensor
    """[N] float32, discounted sum of up to n rewards."""
    discount_n: Tensor
    """[N] float32, discount of the value of ``next_obs``; 0 where the task terminated."""
    next_obs: Tree
    """[N, ...]."""


class Scale(Protocol):
    """From the environment's actions to normalised ones."""

    def to_unit(self, action: Tensor) -> Tensor:
        """[N, D] float32 in [-1, 1] of [N, ...], both on the CPU."""


class InUnits:
    """Makes of what was drawn what these rules learn from.

    Args:
        scale: Of the actions.
        device: Where learning runs.
    """

    def __init__(self, scale: Scale, device: str = "cpu") -> None:
        self._scale, self._device = scale, device

    def __call__(self, batch: ReplayBatch) -> Transitions:
        """The batch with its actions in normalised units, on the device."""
        return Transitions(
            obs=to(batch.obs, self._device),
            action=self._scale.to_unit(batch.action).to(self._device),
            return_=batch.return_.to(self._device),
            discount_n=batch.discount_n.to(self._device),
            next_obs=to(batch.next_obs, self._device),
        )


@dataclass
class OptimizerSettings:
    """One optimizer's part of an algorithm's config."""

    learning_rate: float
    learning_rate_schedule: str
    adam_eps: float
    clip_grad_norm: float | None


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Let gradients flow through a network but not into it: an actor's loss leaves no trace in the critics."""
    parameters = list(module.parameters())
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)
