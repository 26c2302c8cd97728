"""PPO: proximal policy optimization, several epochs of minibatches on each batch.

Source: Schulman 2017 (arXiv 1707.06347); details: Huang 2022 (The 37 implementation details of PPO).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from rlcli.algos.optimization import Optimizer
from rlcli.algos.ppo_config import PPOConfig
from rlcli.algos.reward_scale import RewardScale
from rlcli.algos.rollout import (
    PolicyAgentLike,
    Rows,
    advantages,
    episode_begins,
    minibatches,
    pick_envs,
    pick_rows,
    rows_of,
)
from rlcli.core.rng import Purpose, integer_seed
from rlcli.core.samples import Samples
from rlcli.core.schedules import Constant, Linear, Schedule
from rlcli.core.tree import flatten_leading, index, to
from rlcli.losses.policy import (
    approximate_kl,
    clipped_surrogate,
    clipped_value_error,
    explained_variance,
    is_clipped,
    normalized_advantage,
    value_error,
)
from rlcli.losses.reduce import masked_mean


@dataclass(frozen=True, slots=True)
class Targets:
    """What acting noted and what is learned towards; tensors [T, B], constants."""

    log_prob: Tensor
    """Of the actions, as noted when acting: the policy that drew them is the old one of every epoch."""
    value: Tensor
    """As noted when acting."""
    advantage: Tensor
    return_: Tensor

    def pick_rows(self, picked: Tensor) -> Targets:
        """As `rollout.pick_rows`."""
        return Targets(*(getattr(self, name).flatten(0, 1)[picked][None] for name in self.__slots__))

    def pick_envs(self, picked: Tensor) -> Targets:
        """As `rollout.pick_envs`."""
        return Targets(*(getattr(self, name)[:, picked] for name in self.__slots__))


class PPO:
    """The learner.

    Args:
        config: See `PPOConfig`.
        agent: Whose model is trained, in place; it notes value and log-probability when acting.
        n_steps: Budget of the run, env steps; the schedules run to it.
        seed: Run seed; the order of the rows hangs on it.
        device: Where the gradient steps run.
    """

    metrics: ClassVar[tuple[str, ...]] = (
        "loss",
        "policyLoss",
        "valueLoss",
        "entropy",
        "perplexity",
        "gradNorm",
        "approxKL",
        "clipFraction",
        "explainedVariance",
    )

    def __init__(
        self, config: PPOConfig, agent: PolicyAgentLike, *, n_steps: int, seed: int, device: str = "cpu"
    ) -> None:
        self._config = config
        self._agent = agent
        self._model = agent.model
        self._optimizer = Optimizer(agent.model, config, n_steps)
        self._clip: Schedule = Constant(config.ratio_clip)
        if config.ratio_clip_schedule == "linear":
            self._clip = Linear(config.ratio_clip, 0.0, 0, n_steps)
        self._scale = RewardScale(config.discount) if config.normalize_reward else None
        self._generator = torch.Generator().manual_seed(integer_seed(seed, Purpose.LEARN))
        self._device = device
        self.n_updates = 0
        self.n_consumed = 0

    def update(self, samples: Samples, *, step: int) -> Mapping[str, Sequence[float]]:
        """Epochs of minibatches; one number per minibatch, of the explained variance one per batch."""
        reward = samples.reward if self._scale is None else self._scale(samples)
        metrics: dict[str, list[float]] = {name: [] for name in self.metrics}
        if not samples.valid.any():
            return metrics
        begun = step - int(samples.valid.sum())  # so that the last batch of a linear schedule teaches too
        rows = rows_of(samples, self._agent.taken(samples), self._device)
        targets = self._targets(samples, reward)
        metrics["explainedVariance"].append(explained_variance(targets.value, targets.return_, rows.valid).item())
        for _ in range(self._config.epochs):
            kls = []
            for part, part_targets in self._minibatches(rows, targets):
                found = self._gradient_step(part, part_targets, begun)
                for name, number in found.items():
                    metrics[name].append(number)
                kls.append(found["approxKL"])
            if self._config.target_kl is not None and sum(kls) / len(kls) > self._config.target_kl:
                break
        # not before: the noted log-probabilities are those of the statistics that acted
        self._agent.observe(samples.obs, samples.valid)
        return metrics

    def loss(self, rows: Rows, targets: Targets, clip: float) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of some rows, and the numbers [] that it is made of or that tell about it."""
        config, distribution, valid = self._config, self._agent.distribution, rows.valid
        params, value, _ = self._agent.unroll(rows.obs, rows.state, rows.begins)
        params = params.flatten(0, 1)
        log_prob = distribution.log_prob(params, flatten_leading(rows.action)).view(valid.shape)
        # a ratio of 1 in fillers: nothing holds it back there, and 0 times the gradient of an infinite one is nan
        old_log_prob = torch.where(valid, targets.log_prob, log_prob.detach())
        advantage = targets.advantage
        if config.normalize_advantage:
            advantage = normalized_advantage(advantage, valid)
        policy_loss = masked_mean(clipped_surrogate(log_prob, old_log_prob, advantage, clip), valid)
        if config.clip_value_loss:
            value_loss = masked_mean(clipped_value_error(value, targets.value, targets.return_, clip), valid)
        else:
            value_loss = masked_mean(value_error(value, targets.return_), valid)
        entropy = masked_mean(distribution.entropy(params).view(valid.shape), valid)
        loss = policy_loss + config.value_loss_coeff * value_loss - config.entropy_loss_coeff * entropy
        told = {
            "loss": loss,
            "policyLoss": policy_loss,
            "valueLoss": value_loss,
            "entropy": entropy,
            "perplexity": entropy.exp(),
            "approxKL": masked_mean(approximate_kl(log_prob, old_log_prob), valid),
            "clipFraction": masked_mean(is_clipped(log_prob, old_log_prob, clip), valid),
        }
        return loss, told

    def scalars(self, step: int) -> Mapping[str, float]:
        """Learning rate and clipping of the ratio."""
        return {"LearningRate": self._optimizer.learning_rate(step), "RatioClip": self._clip(step)}

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
        """Counters, where the shuffling stands, and the statistics of the rewards."""
        return {
            "n_updates": self.n_updates,
            "n_consumed": self.n_consumed,
            "generator": self._generator.get_state(),
            "reward_scale": None if self._scale is None else self._scale.progress(),
        }

    def load_progress(self, state: Mapping[str, Any], step: int) -> None:
        """Go on counting, shuffling and scaling."""
        self.n_updates, self.n_consumed = state["n_updates"], state["n_consumed"]
        self._generator.set_state(state["generator"])
        if self._scale is not None and state["reward_scale"] is not None:
            self._scale.load_progress(state["reward_scale"])

    @property
    def replay(self) -> None:
        """There is none."""
        return None

    def close(self) -> None:
        """Nothing to free."""

    def _gradient_step(self, rows: Rows, targets: Targets, step: int) -> dict[str, float]:
        loss, told = self.loss(rows, targets, self._clip(step))
        norm = self._optimizer.step(loss, step)
        self.n_updates += 1
        self.n_consumed += int(rows.valid.sum())
        return {"gradNorm": norm, **{name: number.item() for name, number in told.items()}}

    def _minibatches(self, rows: Rows, targets: Targets) -> list[tuple[Rows, Targets]]:
        """One epoch's: valid rows one by one, or with a recurrent state the whole sequences of environments."""
        n_parts = self._config.minibatches
        if rows.state is None:
            kept = rows.valid.flatten().nonzero()[:, 0]
            parts = [kept[part.to(kept.device)] for part in minibatches(len(kept), n_parts, self._generator)]
            return [(pick_rows(rows, part), targets.pick_rows(part)) for part in parts]
        n_envs = rows.valid.shape[1]
        parts = [part.to(self._device) for part in minibatches(n_envs, n_parts, self._generator)]
        found = [(pick_envs(rows, part), targets.pick_envs(part)) for part in parts]
        return [pair for pair in found if pair[0].valid.any()]  # a step on nothing would follow Adam's momentum

    @torch.no_grad()
    def _targets(self, samples: Samples, reward: Tensor) -> Targets:
        """Computed once, with the weights that acted."""
        device, config = self._device, self._config
        log_prob, value = (samples.record[name].to(device) for name in ("log_prob", "value"))
        values = torch.cat([value, self._last_value(samples)])
        advantage = advantages(samples, reward, values, config.discount, config.gae_lambda)
        return Targets(log_prob, value, advantage, advantage + value)

    def _last_value(self, samples: Samples) -> Tensor:
        """[1, B] of the observation behind the last row; a recurrent state has to come there first."""
        begins = episode_begins(samples.terminated, samples.valid)
        first = len(begins) - 1 if samples.state is None else 0
        obs = to(index(samples.obs, slice(first, None)), self._device)
        _, value, _ = self._agent.unroll(obs, to(samples.state, self._device), begins[first:].to(self._device))
        return value[-1:]
