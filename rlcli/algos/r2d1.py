"""R2D1: recurrent Q-learning from replayed sequences with stored states and burn-in, on one machine.

Source: Kapturowski 2019 (R2D2, Recurrent experience replay in distributed reinforcement learning); double: van Hasselt
2016 (arXiv 1509.06461). Departures: see docs/algos/r2d1.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rlcli.algos.optimization import Optimizer
from rlcli.algos.r2d1_config import R2D1Config
from rlcli.algos.rollout import episode_begins
from rlcli.algos.target import Target
from rlcli.core.samples import Samples
from rlcli.core.tree import index, to
from rlcli.losses.reduce import masked_mean
from rlcli.losses.value import huber, td_error
from rlcli.losses.value_rescale import rescaled_n_step_target
from rlcli.replay.sequences import SequenceBatch, SequenceReplay, mixed_priority


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
    """The update rule.

    Args:
        config: See `R2D1Config`.
        model: A `rlcli.models.recurrent_q.RecurrentQNetwork`, or what has its methods; trained in place.
        replay: Takes the priorities.
        parts: What the sequences are made of.
        eta: Share of the largest TD error in a sequence's priority; None: the replay draws all alike.
        n_steps: Budget of the run, env steps; the learning-rate schedule runs to it.
        device: Where the gradient steps run.
    """

    metrics: tuple[str, ...] = ("loss", "gradNorm", "tdAbsErr", "q", "priority")

    def __init__(
        self,
        config: R2D1Config,
        model: nn.Module,
        replay: SequenceReplay,
        parts: Parts,
        *,
        eta: float | None,
        n_steps: int,
        device: str = "cpu",
    ) -> None:
        self.model, self.target = model, Target(model, config.tau)
        self.optimizer = Optimizer(model, config, n_steps)
        self._config, self._parts, self._eta = config, parts, eta
        self._replay, self._device = replay, device

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        """The target."""
        return {"target": self.target.module}

    def input_priority(self, samples: Samples) -> Tensor:
        """|TD error| [T, B] of new rows from the values that acted; nan where the batch ends before their window.

        The record holds ``q`` of the action and the highest ``value``, [T, B].
        """
        value = samples.record["value"]
        value = torch.cat([value, torch.full_like(value[:1], torch.nan)])  # of obs[T] none is known yet
        error: Tensor = self._targets(samples, value) - samples.record["q"]
        return error.abs()

    def judge(self, batch: SequenceBatch) -> JudgedRows:
        """What the loss says of a batch, which may lie anywhere; nothing is learned."""
        batch = SequenceBatch(**{name: to(getattr(batch, name), self._device) for name in batch.__slots__})
        q = self._values(self.model, batch)
        with torch.no_grad():
            q_next = self._values(self.target.module, batch)
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

    def gradient_step(self, batch: SequenceBatch, n: int, step: int) -> Mapping[str, float]:
        """Network, priorities; at every ``target_update_interval``-th time also the target."""
        judged = self.judge(batch)
        weight = batch.weight.to(self._device).expand_as(judged.loss)
        loss = masked_mean(judged.loss, judged.valid, weight)
        norm = self.optimizer.step(loss, step)
        priority = mixed_priority(judged.delta, judged.valid, 0.0 if self._eta is None else self._eta)
        self._replay.update_priorities(batch.row, batch.env, priority)
        if n % self._config.target_update_interval == 0:
            self.target.update()
        return {
            "loss": loss.item(),
            "gradNorm": norm,
            "tdAbsErr": masked_mean(judged.delta.abs(), judged.valid).item(),
            "q": masked_mean(judged.q, judged.valid).item(),
            "priority": priority.mean().item(),
        }

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


@dataclass(frozen=True, slots=True)
class _Stream:
    """What targets hang on beside the values; [T, B] each."""

    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
