"""TD3: DDPG with twin critics, smoothed target actions and delayed updates of the policy.

Source: Fujimoto 2018 (arXiv 1802.09477), algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rlcli.algos.actor_critic import OptimizerSettings, Transitions, frozen
from rlcli.algos.draws import Draws
from rlcli.algos.optimization import Optimizer, Optimizers
from rlcli.algos.target import Target
from rlcli.losses.actor_critic import clipped_double_target, deterministic_policy_loss, smoothed_action, squared_error


class TD3:
    """The update rule.

    Args:
        actor: Observations to normalised actions [N, D]; trained in place.
        critic: Two critics, ``q1`` and ``q2``: observations and normalised actions to values [N] of each.
        draws: Noise of the target actions.
        target_noise_std: Its deviation, normalised units.
        target_noise_clip: Its largest size, normalised units.
        policy_delay: Critic updates for one update of the actor and of the targets.
        tau: Share of the online networks in an update of the targets.
        actor_settings: Optimizer of the actor.
        critic_settings: Optimizer of both critics.
        n_steps: Budget of the run, env steps; the learning-rate schedule runs to it.
    """

    metrics: tuple[str, ...] = ("criticLoss", "criticGradNorm", "actorLoss", "actorGradNorm", "tdAbsErr", "q1", "q2")

    def __init__(
        self,
        actor: nn.Module,
        critic: nn.Module,
        draws: Draws,
        *,
        target_noise_std: float,
        target_noise_clip: float,
        policy_delay: int,
        tau: float,
        actor_settings: OptimizerSettings,
        critic_settings: OptimizerSettings,
        n_steps: int,
    ) -> None:
        self.actor, self.critic = actor, critic
        self.actor_target, self.critic_target = Target(actor, tau), Target(critic, tau)
        self.optimizer = Optimizers(
            critic=Optimizer(critic, critic_settings, n_steps), actor=Optimizer(actor, actor_settings, n_steps)
        )
        self._draws, self._noise_std, self._noise_clip = draws, target_noise_std, target_noise_clip
        self._policy_delay = policy_delay

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        """Critics and targets."""
        return {
            "critic": self.critic,
            "critic_target": self.critic_target.module,
            "actor_target": self.actor_target.module,
        }

    def gradient_step(self, batch: Transitions, n: int, step: int) -> Mapping[str, float]:
        """Critics; at every ``policy_delay``-th time also actor and targets."""
        y = self.target(batch)
        q1, q2 = self.critic(batch.obs, batch.action)
        critic_loss = (squared_error(q1, y) + squared_error(q2, y)).mean()
        critic_norm = self.optimizer["critic"].step(critic_loss, step)
        numbers = {
            "criticLoss": critic_loss.item(),
            "criticGradNorm": critic_norm,
            "tdAbsErr": (q1.detach() - y).abs().mean().item(),
            "q1": q1.mean().item(),
            "q2": q2.mean().item(),
        }
        if n % self._policy_delay == 0:
            actor_loss = self.actor_loss(batch).mean()
            numbers["actorGradNorm"] = self.optimizer["actor"].step(actor_loss, step)
            numbers["actorLoss"] = actor_loss.item()
            self.actor_target.update()
            self.critic_target.update()
        return numbers

    @torch.no_grad()
    def target(self, batch: Transitions) -> Tensor:
        """What both critics should say, [N]."""
        noise = self._noise_std * self._draws.normal(*batch.action.shape).to(batch.action)
        action = smoothed_action(self.actor_target.module(batch.next_obs), noise, self._noise_clip)
        q1, q2 = self.critic_target.module(batch.next_obs, action)
        return clipped_double_target(batch.return_, batch.discount_n, q1, q2)

    def actor_loss(self, batch: Transitions) -> Tensor:
        """[N]; the first critic judges."""
        q1: nn.Module = self.critic.q1  # type: ignore[assignment]  # torch: Tensor | Module
        with frozen(q1):
            return deterministic_policy_loss(q1(batch.obs, self.actor(batch.obs)))
