"""SAC with a network for the state's value, and its target instead of the critics'.

Source: Haarnoja 2018a (arXiv 1801.01290), algorithm 1. Every loss is of the networks as they were before the update;
the action drawn for the value serves the actor too.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rlcli.algos.actor_critic import OptimizerSettings, Transitions, frozen
from rlcli.algos.draws import Draws
from rlcli.algos.optimization import Optimizer, Optimizers
from rlcli.algos.target import Target
from rlcli.losses.actor_critic import bootstrap_target, soft_policy_loss, soft_value, squared_error


class SACV:
    """The update rule.

    Args:
        actor: Observations to mean and log deviation before the tanh, both [N, D]; its ``sample`` takes normals too
            and gives reparameterised normalised actions [N, D] and their log densities [N]; trained in place.
        critic: Two critics: observations and normalised actions to values [N] of each.
        value: Observations to values [N].
        draws: Noise of the actions that the updates draw.
        alpha: Entropy coefficient.
        reward_scale: Factor on rewards.
        policy_regularization: Weight of half the squares of mean and log deviation.
        tau: Share of the value network in an update of its target.
        actor_settings: Optimizer of the actor.
        critic_settings: Optimizer of both critics.
        value_settings: Optimizer of the value network.
        n_steps: Budget of the run, env steps; the learning-rate schedule runs to it.
    """

    metrics: tuple[str, ...] = (
        "criticLoss",
        "criticGradNorm",
        "valueLoss",
        "valueGradNorm",
        "actorLoss",
        "actorGradNorm",
        "tdAbsErr",
        "q1",
        "q2",
        "value",
        "entropy",
    )

    def __init__(
        self,
        actor: nn.Module,
        critic: nn.Module,
        value: nn.Module,
        draws: Draws,
        *,
        alpha: float,
        reward_scale: float,
        policy_regularization: float,
        tau: float,
        actor_settings: OptimizerSettings,
        critic_settings: OptimizerSettings,
        value_settings: OptimizerSettings,
        n_steps: int,
    ) -> None:
        self.actor, self.critic, self.value = actor, critic, value
        self.value_target = Target(value, tau)
        self.optimizer = Optimizers(
            critic=Optimizer(critic, critic_settings, n_steps),
            value=Optimizer(value, value_settings, n_steps),
            actor=Optimizer(actor, actor_settings, n_steps),
        )
        self._draws, self._reward_scale, self._regularization = draws, reward_scale, policy_regularization
        self._alpha = alpha

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        """Critics, value and its target."""
        return {"critic": self.critic, "value": self.value, "value_target": self.value_target.module}

    def gradient_step(self, batch: Transitions, n: int, step: int) -> Mapping[str, float]:
        """Value, critics, actor, target."""
        y = self.target(batch)
        q1, q2 = self.critic(batch.obs, batch.action)
        critic_loss = (squared_error(q1, y) + squared_error(q2, y)).mean()
        v_losses, pi_losses, v, log_prob = self.value_and_actor_losses(batch)
        value_loss, actor_loss = v_losses.mean(), pi_losses.mean()
        actor_norm = self.optimizer["actor"].step(actor_loss, step)  # first: its gradient comes through the critics
        value_norm = self.optimizer["value"].step(value_loss, step)
        critic_norm = self.optimizer["critic"].step(critic_loss, step)
        self.value_target.update()
        return {
            "criticLoss": critic_loss.item(),
            "criticGradNorm": critic_norm,
            "valueLoss": value_loss.item(),
            "valueGradNorm": value_norm,
            "actorLoss": actor_loss.item(),
            "actorGradNorm": actor_norm,
            "tdAbsErr": (q1.detach() - y).abs().mean().item(),
            "q1": q1.mean().item(),
            "q2": q2.mean().item(),
            "value": v.mean().item(),
            "entropy": -log_prob.mean().item(),
        }

    @torch.no_grad()
    def target(self, batch: Transitions) -> Tensor:
        """What both critics should say, [N]."""
        v_next = self.value_target.module(batch.next_obs)
        return bootstrap_target(self._reward_scale * batch.return_, batch.discount_n, v_next)

    def value_and_actor_losses(self, batch: Transitions) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Losses of value and actor, values, and log densities of the fresh actions that both hang on; [N] each."""
        z = self._draws.normal(*batch.action.shape).to(batch.action)
        action, log_prob = self.actor.sample(batch.obs, z)  # type: ignore[operator]  # a module's method
        with frozen(self.critic):
            q1, q2 = self.critic(batch.obs, action)
        alpha = log_prob.new_tensor(self._alpha)
        v = self.value(batch.obs)
        value_loss = squared_error(v, soft_value(q1, q2, log_prob, alpha))
        actor_loss = soft_policy_loss(log_prob, q1, q2, alpha)
        if self._regularization:
            mean, log_std = self.actor(batch.obs)
            actor_loss = actor_loss + self._regularization * 0.5 * (mean.square() + log_std.square()).mean(dim=-1)
        return value_loss, actor_loss, v.detach(), log_prob.detach()
