"""A2C: advantage actor-critic, one gradient step on each batch.

Source: Mnih 2016 (arXiv 1602.01783), synchronous; advantages: Schulman 2016 (arXiv 1506.02438), eq. 16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from rlcli.algos.a2c_config import A2CConfig
from rlcli.algos.optimization import Optimizer
from rlcli.algos.reward_scale import RewardScale
from rlcli.algos.rollout import PolicyAgentLike, advantages, episode_begins, rows_of
from rlcli.core.samples import Samples
from rlcli.core.tree import Tree, flatten_leading, index, to
from rlcli.losses.policy import normalized_advantage, policy_gradient, value_error
from rlcli.losses.reduce import masked_mean


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
        self._agent = agent
        self._model = agent.model
        self._optimizer = Optimizer(agent.model, config, n_steps)
        self._scale = RewardScale(config.discount) if config.normalize_reward else None
        self._device = device
        self.n_updates = 0
        self.n_consumed = 0

    def update(self, samples: Samples, *, step: int) -> Mapping[str, Sequence[float]]:
        """One gradient step on the batch; none, and no numbers, if no row of it is valid."""
        reward = samples.reward if self._scale is None else self._scale(samples)
        if not samples.valid.any():  # a step on a loss of 0 would still go where Adam's momentum points
            return {name: [] for name in self.metrics}
        config, distribution = self._config, self._agent.distribution
        rows = rows_of(samples, self._agent.taken(samples), self._device)
        valid = rows.valid
        params, value, state = self._agent.unroll(rows.obs, rows.state, rows.begins)
        advantage = self._advantage(samples, reward, value.detach(), state)
        return_ = advantage + value.detach()
        if config.normalize_advantage:
            advantage = normalized_advantage(advantage, valid)
        flat_params = params.flatten(0, 1)
        log_prob = distribution.log_prob(flat_params, flatten_leading(rows.action)).view(valid.shape)
        policy_loss = masked_mean(policy_gradient(log_prob, advantage), valid)
        value_loss = masked_mean(value_error(value, return_), valid)
        mean_entropy = masked_mean(distribution.entropy(flat_params).view(valid.shape), valid)
        loss = policy_loss + config.value_loss_coeff * value_loss - config.entropy_loss_coeff * mean_entropy
        n_valid = int(valid.sum())
        norm = self._optimizer.step(loss, step - n_valid)  # so that the last batch of a linear schedule teaches too
        self._agent.observe(samples.obs, samples.valid)  # not before: the loss is of the statistics that acted
        self.n_updates += 1
        self.n_consumed += n_valid
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
        """Counters, and the statistics of the rewards."""
        scale = None if self._scale is None else self._scale.progress()
        return {"n_updates": self.n_updates, "n_consumed": self.n_consumed, "reward_scale": scale}

    def load_progress(self, state: Mapping[str, Any], step: int) -> None:
        """Go on counting."""
        self.n_updates, self.n_consumed = state["n_updates"], state["n_consumed"]
        if self._scale is not None and state.get("reward_scale") is not None:
            self._scale.load_progress(state["reward_scale"])

    @property
    def replay(self) -> None:
        """There is none."""
        return None

    def close(self) -> None:
        """Nothing to free."""

    @torch.no_grad()
    def _advantage(self, samples: Samples, reward: Tensor, value: Tensor, state: Tree) -> Tensor:
        """[T, B] advantages; ``state`` [B, ...] is the recurrent one after the rows of ``value`` [T, B]."""
        n_rows, device = value.shape[0], self._device
        last_obs = to(index(samples.obs, slice(n_rows, None)), device)
        begins = episode_begins(samples.terminated, samples.valid)[n_rows:].to(device)
        _, last_value, _ = self._agent.unroll(last_obs, state, begins)
        values = torch.cat([value, last_value])
        return advantages(samples, reward, values, self._config.discount, self._config.gae_lambda)
