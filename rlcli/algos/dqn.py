"""DQN: deep Q-learning with replay and a target network.

Source: Mnih 2015 (doi 10.1038/nature14236); double: van Hasselt 2016 (arXiv 1509.06461); n-step: Sutton & Barto 2018,
section 7.1. Departures: Adam instead of RMSProp, gradient clipping by norm, as in rlpyt.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from rlcli.algos.dqn_config import DQNConfig
from rlcli.algos.optimization import Optimizer
from rlcli.core.samples import Samples
from rlcli.core.tree import to
from rlcli.losses.value import double_q_target, huber, q_target, td_error
from rlcli.replay.replay import Replay, ReplayBatch


class QAgentLike(Protocol):
    """What DQN needs of an agent."""

    @property
    def model(self) -> nn.Module:
        """Observations to action values [N, A]."""

    def mean_epsilon(self, step: int) -> float:
        """Share of random actions, for progress.csv."""


class DQN:
    """The learner.

    Args:
        config: See `DQNConfig`.
        agent: Whose model is trained, in place.
        replay: Stores experience and draws n-step transitions.
        n_steps: Budget of the run, env steps; the learning-rate schedule runs to it.
        device: Where the gradient steps run.
    """

    metrics: ClassVar[tuple[str, ...]] = ("loss", "gradNorm", "tdAbsErr", "q")

    def __init__(
        self, config: DQNConfig, agent: QAgentLike, replay: Replay, *, n_steps: int, device: str = "cpu"
    ) -> None:
        self._config = config
        self._agent = agent
        self._model = agent.model
        self._target = copy.deepcopy(agent.model).requires_grad_(False)
        self._replay = replay
        self._optimizer = Optimizer(agent.model, config, n_steps)
        self._device = device
        self._owed = 0.0  # gradient steps due by the replay ratio; the fraction is carried over
        self._ready = False
        self._refilled_at = 0
        self.n_updates = 0
        self.n_consumed = 0

    def update(self, samples: Samples, *, step: int) -> Mapping[str, Sequence[float]]:
        """Store one batch, then take as many gradient steps as the replay ratio owes for its valid rows."""
        self._replay.append(samples)
        metrics: dict[str, list[float]] = {name: [] for name in self.metrics}
        batch_size = self._config.batch_size
        self._ready = self._ready or self._replay.can_sample(batch_size)
        if step < max(self._config.min_steps_learn, self._refilled_at) or not self._ready:
            return metrics
        self._owed += int(samples.valid.sum()) * self._config.replay_ratio / batch_size
        while self._owed >= 1.0:
            self._owed -= 1.0
            for name, value in self._gradient_step(self._replay.sample(batch_size), step).items():
                metrics[name].append(value)
        return metrics

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
        if not len(self._replay):
            self._ready, self._refilled_at = False, step + self._config.min_steps_learn if step else 0

    @property
    def replay(self) -> Replay:
        """The transitions learned from."""
        return self._replay

    def close(self) -> None:
        """Free the replay."""
        self._replay.close()

    def loss(self, batch: ReplayBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Per-transition loss, TD error and value of the action taken, each [N]."""
        with torch.no_grad():
            q_target_next = self._target(batch.next_obs)
            if self._config.double_dqn:
                target = double_q_target(batch.return_, batch.discount_n, q_target_next, self._model(batch.next_obs))
            else:
                target = q_target(batch.return_, batch.discount_n, q_target_next)
        q = self._model(batch.obs)
        delta = td_error(q, batch.action, target)
        chosen = q.detach().gather(1, batch.action[:, None]).squeeze(1)
        return huber(delta, self._config.delta_clip), delta.detach(), chosen

    def _gradient_step(self, batch: ReplayBatch, step: int) -> dict[str, float]:
        on_device = ReplayBatch(**{name: to(getattr(batch, name), self._device) for name in batch.__slots__})
        losses, delta, chosen = self.loss(on_device)
        loss = losses.mean()
        norm = self._optimizer.step(loss, step)
        self.n_updates += 1
        self.n_consumed += self._config.batch_size
        if self.n_updates % self._config.target_update_interval == 0:
            self._update_target()
        return {"loss": loss.item(), "gradNorm": norm, "tdAbsErr": delta.abs().mean().item(), "q": chosen.mean().item()}

    @torch.no_grad()
    def _update_target(self) -> None:
        pairs = zip(self._target.state_dict().values(), self._model.state_dict().values(), strict=True)
        for target, online in pairs:
            if target.is_floating_point():
                target.lerp_(online, self._config.tau)
            else:
                target.copy_(online)
