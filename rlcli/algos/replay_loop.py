"""What all learners from replay share: storing, and how many gradient steps are owed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from torch import Tensor

from rlcli.core.samples import Samples
from rlcli.replay.replay import Replay

Batch = TypeVar("Batch")


class LoopConfig(Protocol):
    """The fields of an algorithm's config that concern the loop."""

    batch_size: int
    replay_ratio: float
    min_steps_learn: int


class ReplayLoop(Generic[Batch]):
    """Stores each batch, then takes as many gradient steps as the replay ratio owes for its valid rows.

    Args:
        replay: Where experience is stored.
        config: Transitions, or sequences, per gradient step; transitions used in gradient steps per environment step,
            of which nothing is rounded away; env steps before the first gradient step.
        metrics: Names of the numbers that a gradient step may give.
        n_trained: Transitions that one of the batch is learned from: rows of a sequence.
    """

    def __init__(
        self,
        replay: Replay[Batch],
        config: LoopConfig,
        *,
        metrics: Sequence[str],
        n_trained: int = 1,
    ) -> None:
        self.replay = replay
        self._n_used = config.batch_size * n_trained
        self._batch_size, self._ratio, self._min_steps = config.batch_size, config.replay_ratio, config.min_steps_learn
        self._metrics = tuple(metrics)
        self._owed = 0.0  # gradient steps due; the fraction is carried over
        self._ready = False
        self._refilled_at = 0
        self.n_updates = 0
        self.n_consumed = 0

    def update(
        self,
        samples: Samples,
        step: int,
        gradient_step: Callable[[Batch], Mapping[str, float]],
        priority: Tensor | None = None,
    ) -> Mapping[str, Sequence[float]]:
        """Store one batch and learn.

        Args:
            samples: The batch.
            step: Environment steps so far, the batch included.
            gradient_step: One gradient step on what was drawn; gives one number per metric.
            priority: See `Replay.append`.

        Returns:
            One number per gradient step and metric.
        """
        self.replay.append(samples, priority)
        metrics: dict[str, list[float]] = {name: [] for name in self._metrics}
        self._ready = self._ready or self.replay.can_sample(self._batch_size)
        if step < max(self._min_steps, self._refilled_at) or not self._ready:
            return metrics
        self._owed += int(samples.valid.sum()) * self._ratio / self._n_used
        while self._owed >= 1.0:
            self._owed -= 1.0
            self.n_updates += 1
            self.n_consumed += self._n_used
            for name, value in gradient_step(self.replay.sample(self._batch_size, step)).items():
                metrics[name].append(value)
        return metrics

    def progress(self) -> dict[str, Any]:
        """Counters, and what is owed."""
        return {
            "n_updates": self.n_updates,
            "n_consumed": self.n_consumed,
            "owed": self._owed,
            "ready": self._ready,
            "refilled_at": self._refilled_at,
        }

    def load_progress(self, state: Mapping[str, Any], step: int) -> None:
        """Go on; where the replay comes empty, it is first filled as at the start of a run, by the loaded policy."""
        self.n_updates, self.n_consumed = state["n_updates"], state["n_consumed"]
        self._owed, self._ready, self._refilled_at = state["owed"], state["ready"], state["refilled_at"]
        if not len(self.replay):
            self._ready, self._refilled_at = False, step + self._min_steps if step else 0
