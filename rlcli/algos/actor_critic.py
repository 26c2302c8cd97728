"""What learners of continuous actions from replay share: all of the `Algo` protocol but the update rule itself.

An algorithm is a `Rule`: its networks, its optimizers and one gradient step. DDPG, TD3 and SAC are rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from rlcli.algos.draws import Draws
from rlcli.algos.optimization import Optimizer
from rlcli.algos.replay_loop import ReplayLoop
from rlcli.core.samples import Samples
from rlcli.core.tree import Tree, to
from rlcli.replay.replay import Replay, ReplayBatch


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


class ActorAgent(Protocol):
    """What learning needs of an agent that acts in a box."""

    @property
    def model(self) -> nn.Module:
        """The actor."""

    @property
    def scale(self) -> Scale:
        """The action's units."""


class Rule(Protocol):
    """What one algorithm is."""

    metrics: tuple[str, ...]
    """Names of the numbers that a gradient step may give."""

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        """All that is saved beside the actor: critics, targets, coefficients."""

    @property
    def optimizers(self) -> Mapping[str, Optimizer]:
        """One for each group of networks that is stepped by itself."""

    def gradient_step(self, batch: Transitions, n: int, step: int) -> Mapping[str, float]:
        """Learn from one batch: the ``n``-th since the run began, from 1, after ``step`` env steps."""


class LoopConfig(Protocol):
    """The fields of an algorithm's config that concern its replay."""

    batch_size: int
    replay_ratio: float
    min_steps_learn: int


@dataclass
class OptimizerSettings:
    """One optimizer's part of an algorithm's config."""

    learning_rate: float
    learning_rate_schedule: str
    adam_eps: float
    clip_grad_norm: float | None


class ActorCritic:
    """The learner: replay and bookkeeping around a rule.

    Args:
        rule: The update.
        agent: Whose actor the rule trains, in place.
        replay: Stores experience and draws n-step transitions.
        config: Batch size, replay ratio and when learning begins.
        draws: The rule's random numbers; None if it draws none.
        device: Where the gradient steps run.
    """

    def __init__(
        self,
        rule: Rule,
        agent: ActorAgent,
        replay: Replay,
        config: LoopConfig,
        *,
        draws: Draws | None = None,
        device: str = "cpu",
    ) -> None:
        self.rule = rule
        self.metrics = rule.metrics
        self._scale = agent.scale
        self._draws = draws
        self._device = device
        self._loop = ReplayLoop(
            replay,
            batch_size=config.batch_size,
            replay_ratio=config.replay_ratio,
            min_steps_learn=config.min_steps_learn,
            metrics=rule.metrics,
        )

    @property
    def n_updates(self) -> int:
        """Gradient steps so far: those of the critics."""
        return self._loop.n_updates

    @property
    def n_consumed(self) -> int:
        """Transitions that went into them."""
        return self._loop.n_consumed

    @property
    def replay(self) -> Replay:
        """The transitions learned from."""
        return self._loop.replay

    def update(self, samples: Samples, *, step: int) -> Mapping[str, Sequence[float]]:
        """Store one batch, then take as many gradient steps as the replay ratio owes for its valid rows."""

        def gradient_step(batch: ReplayBatch) -> Mapping[str, float]:
            return self.rule.gradient_step(self.transitions(batch), self._loop.n_updates, step)

        return self._loop.update(samples, step, gradient_step)

    def transitions(self, batch: ReplayBatch) -> Transitions:
        """What was drawn, as a rule wants it; here observations would be normalised."""
        return Transitions(
            obs=to(batch.obs, self._device),
            action=self._scale.to_unit(batch.action).to(self._device),
            return_=batch.return_.to(self._device),
            discount_n=batch.discount_n.to(self._device),
            next_obs=to(batch.next_obs, self._device),
        )

    def scalars(self, step: int) -> Mapping[str, float]:
        """The learning rate of the first optimizer, the critics'."""
        return {"LearningRate": next(iter(self.rule.optimizers.values())).learning_rate(step)}

    def state_dict(self) -> dict[str, Any]:
        """Critics, targets, coefficients, and counters."""
        networks = {name: module.state_dict() for name, module in self.rule.networks.items()}
        return {**networks, "n_updates": self.n_updates, "n_consumed": self.n_consumed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the networks; counters stay at their own values, which a warm start begins from 0."""
        for name, module in self.rule.networks.items():
            module.load_state_dict(state[name])

    def optimizer_state_dict(self) -> dict[str, Any]:
        """Adam's state of each group."""
        return {name: optimizer.state_dict() for name, optimizer in self.rule.optimizers.items()}

    def load_optimizer_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over Adam's moments."""
        for name, optimizer in self.rule.optimizers.items():
            optimizer.load_state_dict(state[name])

    def progress(self) -> dict[str, Any]:
        """Counters, what the replay ratio still owes, and where the random numbers stand."""
        return {**self._loop.progress(), "draws": None if self._draws is None else self._draws.state()}

    def load_progress(self, state: Mapping[str, Any], step: int) -> None:
        """Go on; where the replay comes empty, it is first filled as at the start of a run, by the loaded policy."""
        self._loop.load_progress(state, step)
        if self._draws is not None:
            self._draws.load_state(state["draws"])

    def close(self) -> None:
        """Free the replay."""
        self.replay.close()


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
