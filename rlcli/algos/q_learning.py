"""Q-learning from replay with a target network: all that DQN, C51, IQN and Rainbow share.

What differs is the loss, which each of them has in its own file: `dqn`, `cat_dqn`, `iqn`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from rlcli.algos.draws import Draws
from rlcli.algos.optimization import Optimizer
from rlcli.algos.q_learning_config import QLearningConfig
from rlcli.algos.target import Target
from rlcli.core.tree import to
from rlcli.replay.replay import Replay, ReplayBatch


@dataclass(frozen=True, slots=True)
class Judged:
    """What a loss says of N transitions, [N] each."""

    loss: Tensor
    """With a graph."""
    priority: Tensor
    """How much the transition matters to prioritized replay, at least 0."""
    delta: Tensor
    """TD error of the action values."""
    q: Tensor
    """Value of the action taken, before the gradient step."""


class Loss(Protocol):
    """The difference between one algorithm and the next."""

    def __call__(self, online: Any, target: Any, batch: ReplayBatch, draws: Draws) -> Judged:
        """Judge a batch.

        Args:
            online: The network that learns; it is one that the algorithm's config builds.
            target: Its slow copy.
            batch: On the learner's device.
            draws: For all randomness.
        """


class QLearning:
    """The update rule.

    Args:
        config: See `QLearningConfig`.
        loss: What the network is to make small.
        model: Observations to action values [N, A], trained in place; of a noisy one ``n_noise`` says how many normals
            it takes.
        replay: Takes the priorities.
        draws: For all randomness of the loss.
        n_steps: Budget of the run, env steps; the learning-rate schedule runs to it.
        device: Where the gradient steps run.
    """

    metrics: tuple[str, ...] = ("loss", "gradNorm", "tdAbsErr", "q")

    def __init__(
        self,
        config: QLearningConfig,
        loss: Loss,
        model: nn.Module,
        replay: Replay,
        draws: Draws,
        *,
        n_steps: int,
        device: str = "cpu",
    ) -> None:
        self.model, self.target = model, Target(model, config.tau)
        self.optimizer = Optimizer(model, config, n_steps)
        self._config, self._loss, self._draws = config, loss, draws
        self._replay, self._device = replay, device

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        """The target."""
        return {"target": self.target.module}

    def judge(self, batch: ReplayBatch) -> Judged:
        """What the loss says of a batch, which may lie anywhere; nothing is learned."""
        on_device = ReplayBatch(**{name: to(getattr(batch, name), self._device) for name in batch.__slots__})
        return self._loss(self.model, self.target.module, on_device, self._draws)

    def gradient_step(self, batch: ReplayBatch, n: int, step: int) -> Mapping[str, float]:
        """Network, priorities; at every ``target_update_interval``-th time also the target."""
        judged = self.judge(batch)
        loss = (batch.weight.to(self._device) * judged.loss).mean()
        norm = self.optimizer.step(loss, step)
        self._replay.update_priorities(batch.row, batch.env, judged.priority)
        if n % self._config.target_update_interval == 0:
            self.target.update()
        return {
            "loss": loss.item(),
            "gradNorm": norm,
            "tdAbsErr": judged.delta.abs().mean().item(),
            "q": judged.q.mean().item(),
        }


def draw_noise(network: Any, draws: Draws) -> Tensor | None:
    """One draw of a network's noise, the same for all transitions of a batch; None if it is not noisy.

    Source: Fortunato 2018 (arXiv 1706.10295), algorithm 1: online, target and choosing network each have their own.
    """
    n_noise = int(getattr(network, "n_noise", 0))
    return draws.normal(1, n_noise) if n_noise else None
