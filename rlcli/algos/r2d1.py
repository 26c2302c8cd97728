"""R2D1: recurrent Q-learning from replayed sequences with stored states and burn-in, on one machine.

Source: Kapturowski 2019 (R2D2, Recurrent experience replay in distributed reinforcement learning); double: van Hasselt
2016 (arXiv 1509.06461). Departures: see docs/algos/r2d1.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from rlcli.algos.optimization import Optimizer
from rlcli.algos.r2d1_config import R2D1Config
from rlcli.algos.replay_loop import ReplayLoop
from rlcli.algos.rollout import episode_begins
from rlcli.algos.target import Target
from rlcli.core.samples import Samples
from rlcli.core.tree import index, to
from rlcli.losses.reduce import masked_mean
from rlcli.losses.value import huber, td_error
from rlcli.losses.value_rescale import rescaled_n_step_target
from rlcli.replay.sequences import SequenceBatch, SequenceReplay, mixed_priority


class RecurrentQAgentLike(Protocol):
    """What the learner needs of an agent; its record holds ``q`` of the action and the highest ``value``, [T, B]."""

    @property
    def model(self) -> Any:
        """A `rlcli.models.recurrent_q.RecurrentQNetwork`, or what has its methods."""

    def mean_epsilon(self, step: int) -> float:
        """Share of random actions, for progress.csv."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Lengths of what a sequence is made of, rows."""

    burn_in_T: int
    train_T: int
    n_step: int

    @property
    def trained(self) -> slice:
        """The rows that are learned from."""
        return slice(self.burn_in_T, self.burn_in_T + self.train_T)

    @property
    def seen(self) -> slice:
        """The rows whose values are needed: the trained ones and the bootstraps of their targets.

        The last window has n - 1 rows behind the trained ones, and bootstraps from the next.
        """
        return slice(self.burn_in_T, self.burn_in_T + self.train_T + self.n_step)


@dataclass(frozen=True, slots=True)
class JudgedRows:
    """What the loss says of the trained rows of N sequences, [train_T, N] each."""

    loss: Tensor
    """With a graph; means nothing where not valid."""
    delta: Tensor
    """TD error on the squashed scale; means nothing where not valid."""
    q: Tensor
    """Value of the action taken, before the gradient step."""
    target: Tensor
    """What q is to become, a constant; 0 where not valid."""
    valid: Tensor
    """Bool."""


class R2D1:
    """The learner.

    Args:
        config: See `R2D1Config`.
        agent: Whose model is trained, in place.
        replay: Stores experience and draws sequences.
        parts: What the sequences are made of.
        eta: Share of the largest TD error in a sequence's priority; None: the replay draws all alike.
        n_steps: Budget of the run, env steps; the learning-rate schedule runs to it.
        device: Where the gradient steps run.
    """

    metrics: ClassVar[tuple[str, ...]] = ("loss", "gradNorm", "tdAbsErr", "q", "priority")

    def __init__(
        self,
        config: R2D1Config,
        agent: RecurrentQAgentLike,
        replay: SequenceReplay,
        parts: Parts,
        *,
        eta: float | None,
        n_steps: int,
        device: str = "cpu",
    ) -> None:
        self._config, self._agent, self._parts, self._eta, self._device = config, agent, parts, eta, device
        self._model = agent.model
        self._slow = Target(agent.model, config.tau)
        self._target = self._slow.module
        self._optimizer = Optimizer(agent.model, config, n_steps)
        self._replay = replay
        self._loop = ReplayLoop(
            replay,
            batch_size=config.batch_size,
            replay_ratio=config.replay_ratio,
            min_steps_learn=config.min_steps_learn,
            metrics=self.metrics,
            n_trained=parts.train_T,
        )

    @property
    def n_updates(self) -> int:
        """Gradient steps so far."""
        return self._loop.n_updates

    @property
    def n_consumed(self) -> int:
        """Trained rows that went into gradient steps so far; burn-in and bootstraps do not count."""
        return self._loop.n_consumed

    def update(self, samples: Samples, *, step: int) -> Mapping[str, Sequence[float]]:
        """Store one batch, then take as many gradient steps as the replay ratio owes for its valid rows."""
        priority = self.input_priority(samples) if self._gives_priority else None
        return self._loop.update(samples, step, lambda batch: self._gradient_step(batch, step), priority)

    def scalars(self, step: int) -> Mapping[str, float]:
        """Learning rate and mean epsilon."""
        return {"LearningRate": self._optimizer.learning_rate(step), "Epsilon": self._agent.mean_epsilon(step)}

    def state_dict(self) -> dict[str, Any]:
        """Target network and counters."""
        return {"target": self._target.state_dict(), "n_updates": self.n_updates, "n_consumed": self.n_consumed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a target network; counters stay at their own values, which a warm start begins from 0."""
        self._target.load_state_dict(state["target"])

    def optimizer_state_dict(self) -> dict[str, Any]:
        """Adam's state."""
        return self._optimizer.state_dict()

    def load_optimizer_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over Adam's moments."""
        self._optimizer.load_state_dict(state)

    def progress(self) -> dict[str, Any]:
        """Counters, and what the replay ratio still owes."""
        return self._loop.progress()

    def load_progress(self, state: Mapping[str, Any], step: int) -> None:
        """Go on; where the replay comes empty, it is first filled as at the start of a run, by the loaded policy."""
        self._loop.load_progress(state, step)

    @property
    def replay(self) -> SequenceReplay:
        """The sequences learned from."""
        return self._replay

    def close(self) -> None:
        """Free the replay."""
        self._replay.close()

    def input_priority(self, samples: Samples) -> Tensor:
        """|TD error| [T, B] of new rows from the values that acted; nan where the batch ends before their window."""
        value = samples.record["value"]
        value = torch.cat([value, torch.full_like(value[:1], torch.nan)])  # of obs[T] none is known yet
        error: Tensor = self._targets(samples, value) - samples.record["q"]
        return error.abs()

    def judge(self, batch: SequenceBatch) -> JudgedRows:
        """What the loss says of a batch, which may lie anywhere; nothing is learned."""
        batch = SequenceBatch(**{name: to(getattr(batch, name), self._device) for name in batch.__slots__})
        q = self._values(self._model, batch)
        with torch.no_grad():
            q_next = self._values(self._target, batch)
            chooser = q if self._config.double_dqn else q_next
            value = q_next.gather(2, chooser.argmax(dim=2, keepdim=True)).squeeze(2)
        # The last row's window would end behind the sequence: it is a bootstrap alone, and so is given no target.
        rows = slice(self._parts.seen.start, self._parts.seen.stop - 1)
        target = self._targets(_Stream(*(getattr(batch, name)[rows] for name in _Stream.__slots__)), value)
        n = self._parts.train_T
        q, target, action = q[:n], target[:n], batch.action[self._parts.trained]
        delta = td_error(q.flatten(0, 1), action.flatten(), target.flatten()).view(target.shape)
        return JudgedRows(
            loss=huber(delta, self._config.delta_clip),
            delta=delta.detach(),
            q=q.detach().gather(2, action[..., None]).squeeze(2),
            target=target,
            valid=batch.valid[self._parts.trained],
        )

    @property
    def _gives_priority(self) -> bool:
        return self._eta is not None and self._config.input_priorities

    def _values(self, network: Any, batch: SequenceBatch) -> Tensor:
        """Action values [train_T + n_step, N, A] of the rows that are needed, behind a burn-in without gradient.

        The state begins as it was stored, and anew wherever acting let it.
        """
        begins = episode_begins(batch.terminated, batch.valid)
        state, burn_in = batch.state, slice(0, self._parts.burn_in_T)
        if burn_in.stop:
            with torch.no_grad():
                state = network.state_after(index(batch.obs, burn_in), state, begins[burn_in])
        values: Tensor = network.unroll(index(batch.obs, self._parts.seen), state, begins[self._parts.seen])[0]
        return values

    def _targets(self, stream: Samples | _Stream, value: Tensor) -> Tensor:
        """[T, B] of a stream of T rows and values [T + 1, B]."""
        return rescaled_n_step_target(
            stream.reward,
            value,
            stream.terminated,
            stream.truncated,
            stream.valid,
            self._config.discount,
            self._parts.n_step,
            self._config.value_rescale_eps,
        )

    def _gradient_step(self, batch: SequenceBatch, step: int) -> dict[str, float]:
        judged = self.judge(batch)
        weight = batch.weight.to(self._device).expand_as(judged.loss)
        loss = masked_mean(judged.loss, judged.valid, weight)
        norm = self._optimizer.step(loss, step)
        priority = mixed_priority(judged.delta, judged.valid, 0.0 if self._eta is None else self._eta)
        self._replay.update_priorities(batch.row, batch.env, priority)
        if self.n_updates % self._config.target_update_interval == 0:
            self._slow.update()
        return {
            "loss": loss.item(),
            "gradNorm": norm,
            "tdAbsErr": masked_mean(judged.delta.abs(), judged.valid).item(),
            "q": masked_mean(judged.q, judged.valid).item(),
            "priority": priority.mean().item(),
        }


@dataclass(frozen=True, slots=True)
class _Stream:
    """What targets hang on beside the values; [T, B] each."""

    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
