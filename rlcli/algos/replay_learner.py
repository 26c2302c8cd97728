"""The learner of every algorithm that learns from replay: all of the `Algo` protocol but the update rule itself.

An algorithm is a `Rule`: its networks, its optimizer and one gradient step. Q-learning, R2D1, DDPG, TD3 and SAC are
rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from torch import Tensor, nn

from rlcli.algos.draws import Draws
from rlcli.algos.replay_loop import ReplayLoop
from rlcli.core.samples import Samples
from rlcli.core.tree import Tree
from rlcli.replay.replay import Replay

Batch = TypeVar("Batch")


class OptimizerLike(Protocol):
    """One optimizer, or several that are saved together."""

    def learning_rate(self, step: int) -> float:
        """The learning rate at an environment step, for progress.csv."""

    def state_dict(self) -> dict[str, Any]:
        """Its state."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""


class Rule(Protocol):
    """What one algorithm is."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the numbers that a gradient step may give."""

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        """All that is saved beside the model that acts: critics, targets, coefficients."""

    @property
    def optimizer(self) -> OptimizerLike:
        """Of all that it steps."""

    def gradient_step(self, batch: Any, n: int, step: int) -> Mapping[str, float]:
        """Learn from one batch: the ``n``-th since the run began, from 1, after ``step`` env steps."""


class Statistics(Protocol):
    """What normalises observations, which every network of the rule looks through."""

    def observe(self, obs: Tree, valid: Tensor) -> None:
        """Take the observations [T + 1, B, ...] of valid rows [T, B] in."""


class ReplayLearner(Generic[Batch]):
    """Replay and bookkeeping around a rule.

    Args:
        rule: The update.
        loop: Stores experience, draws batches, and counts.
        draws: The rule's random numbers; None if it draws none.
        statistics: Of the observations; each collected row enters them once, before the gradient steps of its batch,
            so that all networks of a gradient step see the same. None: there are none.
        prepare: Makes of what was drawn what the rule learns from; None: that itself.
        priority: First priorities [T, B] of a batch's rows, see `Replay.append`; None: the replay's own.
        numbers: More single numbers of an env step for progress.csv, by column.
    """

    def __init__(
        self,
        rule: Rule,
        loop: ReplayLoop[Batch],
        *,
        draws: Draws | None = None,
        statistics: Statistics | None = None,
        prepare: Callable[[Batch], Any] | None = None,
        priority: Callable[[Samples], Tensor] | None = None,
        numbers: Mapping[str, Callable[[int], float]] | None = None,
    ) -> None:
        self.rule, self.metrics = rule, rule.metrics
        self._loop, self._draws, self._statistics = loop, draws, statistics
        self._prepare, self._priority, self._numbers = prepare, priority, numbers or {}

    @property
    def n_updates(self) -> int:
        """Gradient steps so far; of several networks those of the critics."""
        return self._loop.n_updates

    @property
    def n_consumed(self) -> int:
        """Transitions that went into them; of sequences the trained rows alone."""
        return self._loop.n_consumed

    @property
    def replay(self) -> Replay[Batch]:
        """What is learned from."""
        return self._loop.replay

    def update(self, samples: Samples, *, step: int) -> Mapping[str, Sequence[float]]:
        """Store one batch, then take as many gradient steps as the replay ratio owes for its valid rows."""

        def gradient_step(batch: Batch) -> Mapping[str, float]:
            return self.rule.gradient_step(self.prepare(batch), self._loop.n_updates, step)

        if self._statistics is not None:
            self._statistics.observe(samples.obs, samples.valid)
        priority = None if self._priority is None else self._priority(samples)
        return self._loop.update(samples, step, gradient_step, priority)

    def prepare(self, batch: Batch) -> Any:
        """What was drawn, as the rule wants it."""
        return batch if self._prepare is None else self._prepare(batch)

    def scalars(self, step: int) -> Mapping[str, float]:
        """The learning rate, of several optimizers the first one's; and what else was asked for."""
        more = {name: number(step) for name, number in self._numbers.items()}
        return {"LearningRate": self.rule.optimizer.learning_rate(step), **more}

    def state_dict(self) -> dict[str, Any]:
        """The rule's networks, and counters."""
        networks = {name: module.state_dict() for name, module in self.rule.networks.items()}
        return {**networks, "n_updates": self.n_updates, "n_consumed": self.n_consumed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the networks; counters stay at their own values, which a warm start begins from 0."""
        for name, module in self.rule.networks.items():
            module.load_state_dict(state[name])

    def optimizer_state_dict(self) -> dict[str, Any]:
        """Adam's state; of several optimizers by their names."""
        return self.rule.optimizer.state_dict()

    def load_optimizer_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over Adam's moments."""
        self.rule.optimizer.load_state_dict(state)

    def progress(self) -> dict[str, Any]:
        """Counters, what the replay ratio still owes, and where the random numbers stand."""
        return {**self._loop.progress(), "draws": None if self._draws is None else self._draws.state()}

    def load_progress(self, state: Mapping[str, Any], step: int) -> None:
        """Go on; where the replay comes empty, it is first filled as at the start of a run, by the loaded policy."""
        self._loop.load_progress(state, step)
        # The first checkpoints of DQN have no draws: it took none.
        if self._draws is not None and state.get("draws") is not None:
            self._draws.load_state(state["draws"])

    def close(self) -> None:
        """Free the replay."""
        self.replay.close()
