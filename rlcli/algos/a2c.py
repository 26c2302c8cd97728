"""A2C: advantage actor-critic, one gradient step on each batch.

Source: Mnih 2016 (arXiv 1602.01783), synchronous; advantages: Schulman 2016 (arXiv 1506.02438), eq. 16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from rlcli.algos.a2c_config import A2CConfig
from rlcli.algos.optimization import Optimizer
from rlcli.core.samples import Samples
from rlcli.core.tree import flatten_leading, index, to
from rlcli.losses.policy import entropy, log_prob, policy_gradient
from rlcli.losses.reduce import masked_mean
from rlcli.losses.returns import gae


class PolicyAgentLike(Protocol):
    """What A2C needs of an agent."""

    @property
    def model(self) -> nn.Module:
        """Observations to logits [N, A] and values [N]."""


class A2C:
    """The learner.

    Args:
        config: See `A2CConfig`.
        agent: Whose model is trained, in place.
        n_steps: Budget of the run, env steps; the learning-rate schedule runs to it.
        device: Where the gradient steps run.
    """

    metrics: ClassVar[tuple[str, ...]] = ("loss", "gradNorm", "valueLoss", "entropy", "perplexity")

    def __init__(self, config: A2CConfig, agent: PolicyAgentLike, *, n_steps: int, device: str = "cpu") -> None:
        self._config = config
        self._model = agent.model
        self._optimizer = Optimizer(agent.model, config, n_steps)
        self._device = device
        self.n_updates = 0
        self.n_consumed = 0

    def update(self, samples: Samples, *, step: int) -> Mapping[str, Sequence[float]]:
        """One gradient step on the batch; none, and no numbers, if no row of it is valid."""
        if not samples.valid.any():  # a step on a loss of 0 would still go where Adam's momentum points
            return {name: [] for name in self.metrics}
        config = self._config
        obs = to(samples.obs, self._device)
        valid = samples.valid.to(self._device)
        n_rows, n_envs = valid.shape
        logits, value = self._model(flatten_leading(index(obs, slice(0, n_rows))))
        value = value.view(n_rows, n_envs)
        advantage, return_ = self._advantage(samples, value.detach(), index(obs, n_rows))
        if config.normalize_advantage:
            advantage = _normalize(advantage, valid)
        action = samples.action.to(self._device).view(-1)
        log_probs = log_prob(logits, action).view(n_rows, n_envs)
        policy_loss = masked_mean(policy_gradient(log_probs, advantage), valid)
        value_loss = masked_mean(0.5 * (value - return_) ** 2, valid)
        mean_entropy = masked_mean(entropy(logits).view(n_rows, n_envs), valid)
        loss = policy_loss + config.value_loss_coeff * value_loss - config.entropy_loss_coeff * mean_entropy
        norm = self._optimizer.step(loss, step)
        self.n_updates += 1
        self.n_consumed += int(valid.sum())
        return {
            "loss": [loss.item()],
            "gradNorm": [norm],
            "valueLoss": [value_loss.item()],
            "entropy": [mean_entropy.item()],
            "perplexity": [mean_entropy.exp().item()],
        }

    def scalars(self, step: int) -> Mapping[str, float]:
        """The learning rate."""
        return {"LearningRate": self._optimizer.learning_rate(step)}

    def state_dict(self) -> dict[str, Any]:
        """Counters."""
        return {"n_updates": self.n_updates, "n_consumed": self.n_consumed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to take over: counters stay at their own values, which a warm start begins from 0."""

    def optimizer_state_dict(self) -> dict[str, Any]:
        """Adam's state."""
        return self._optimizer.state_dict()

    def load_optimizer_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over Adam's moments."""
        self._optimizer.load_state_dict(state)

    def progress(self) -> dict[str, Any]:
        """Counters."""
        return {"n_updates": self.n_updates, "n_consumed": self.n_consumed}

    def load_progress(self, state: Mapping[str, Any], step: int) -> None:
        """Go on counting."""
        self.n_updates, self.n_consumed = state["n_updates"], state["n_consumed"]

    @property
    def replay(self) -> None:
        """There is none."""
        return None

    def close(self) -> None:
        """Nothing to free."""

    def _advantage(self, samples: Samples, value: Tensor, last_obs: Any) -> tuple[Tensor, Tensor]:
        """Advantages and the returns that the values should equal, both [T, B]."""
        with torch.no_grad():
            _, last_value = self._model(last_obs)
            advantage = gae(
                samples.reward.to(self._device),
                torch.cat([value, last_value[None]]),
                samples.terminated.to(self._device),
                samples.truncated.to(self._device),
                samples.valid.to(self._device),
                self._config.discount,
                self._config.gae_lambda,
            )
        return advantage, advantage + value


def _normalize(advantage: Tensor, valid: Tensor) -> Tensor:
    """Mean 0 and deviation 1 over the valid elements."""
    mean = masked_mean(advantage, valid)
    std = masked_mean((advantage - mean) ** 2, valid).sqrt()
    return (advantage - mean) / (std + 1e-8)
