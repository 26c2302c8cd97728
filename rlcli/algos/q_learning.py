"""Q-learning from replay with a target network: all that DQN, C51, IQN and Rainbow share.

What differs is the loss, which each of them has in its own file: `dqn`, `cat_dqn`, `iqn`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor, nn

from rlcli.algos.draws import Draws
from rlcli.algos.optimization import Optimizer
from rlcli.algos.q_learning_config import QLearningConfig
from rlcli.algos.replay_loop import ReplayLoop
from rlcli.algos.target import Target
from rlcli.core.samples import Samples
from rlcli.core.tree import to
from rlcli.replay.replay import Replay, ReplayBatch


class QAgentLike(Protocol):
    """What Q-learning needs of an agent."""

    @property
    def model(self) -> nn.Module:
        """Observations to action values [N, A]; of a noisy one ``n_noise`` says how many normals it takes."""

    def mean_epsilon(self, step: int) -> float:
        """Share of random actions, for progress.csv."""


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
    """The learner.

    Args:
        config: See `QLearningConfig`.
        loss: What the network is to make small.
        agent: Whose model is trained, in place.
        replay: Stores experience and draws n-step transitions.
        seed: Run seed.
        n_steps: Budget of the run, env steps; the learning-rate schedule runs to it.
        device: Where the gradient steps run.
    """

    metrics: ClassVar[tuple[str, ...]] = ("loss", "gradNorm", "tdAbsErr", "q")

    def __init__(
        self,
        config: QLearningConfig,
        loss: Loss,
        agent: QAgentLike,
        replay: Replay,
        *,
        seed: int,
        n_steps: int,
        device: str = "cpu",
    ) -> None:
        self._config, self._loss, self._agent, self._device = config, loss, agent, device
        self._model = agent.model
        self._slow = Target(agent.model, config.tau)
        self._target = self._slow.module
        self._optimizer = Optimizer(agent.model, config, n_steps)
        self._draws = Draws(seed, device)
        self._replay = replay
        self._loop = ReplayLoop(
            replay,
            batch_size=config.batch_size,
            replay_ratio=config.replay_ratio,
            min_steps_learn=config.min_steps_learn,
            metrics=self.metrics,
        )

    @property
    def n_updates(self) -> int:
        """Gradient steps so far."""
        return self._loop.n_updates

    @property
    def n_consumed(self) -> int:
        """Samples that went into gradient steps so far."""
        return self._loop.n_consumed

    def update(self, samples: Samples, *, step: int) -> Mapping[str, Sequence[float]]:
        """Store one batch, then take as many gradient steps as the replay ratio owes for its valid rows."""
        return self._loop.update(samples, step, lambda batch: self._gradient_step(batch, step))

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
        """Counters, what the replay ratio still owes, and where the random stream stands."""
        return {**self._loop.progress(), "draws": self._draws.state()}

    def load_progress(self, state: Mapping[str, Any], step: int) -> None:
        """Go on; where the replay comes empty, it is first filled as at the start of a run, by the loaded policy."""
        self._loop.load_progress(state, step)
        if "draws" in state:  # a checkpoint from before there were any comes from a DQN, which draws none
            self._draws.load_state(state["draws"])

    @property
    def replay(self) -> Replay:
        """The transitions learned from."""
        return self._replay

    def close(self) -> None:
        """Free the replay."""
        self._replay.close()

    def judge(self, batch: ReplayBatch) -> Judged:
        """What the loss says of a batch, which may lie anywhere; nothing is learned."""
        on_device = ReplayBatch(**{name: to(getattr(batch, name), self._device) for name in batch.__slots__})
        return self._loss(self._model, self._target, on_device, self._draws)

    def _gradient_step(self, batch: ReplayBatch, step: int) -> dict[str, float]:
        judged = self.judge(batch)
        loss = (batch.weight.to(self._device) * judged.loss).mean()
        norm = self._optimizer.step(loss, step)
        self._replay.update_priorities(batch.row, batch.env, judged.priority)
        if self.n_updates % self._config.target_update_interval == 0:
            self._slow.update()
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
