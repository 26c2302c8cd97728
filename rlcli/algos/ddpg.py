"""DDPG: deep deterministic policy gradient.

Source: Lillicrap 2016 (arXiv 1509.02971). Departures: Gaussian exploration noise instead of Ornstein-Uhlenbeck's, no
weight decay, no batch normalisation, as in TD3's "our DDPG", SpinningUp and rlpyt.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rlcli.algos.actor_critic import OptimizerSettings, Transitions, frozen
from rlcli.algos.optimization import Optimizer, Optimizers
from rlcli.algos.target import Target
from rlcli.losses.actor_critic import bootstrap_target, deterministic_policy_loss, squared_error


class DDPG:
    """The update rule.

    Args:
        actor: Observations to normalised actions [N, D]; trained in place.
        critic: Observations and normalised actions to values [N].
        tau: Share of the online networks in an update of the targets.
        actor_settings: Optimizer of the actor.
        critic_settings: Optimizer of the critic.
        n_steps: Budget of the run, env steps; the learning-rate schedule runs to it.
    """

    metrics: tuple[str, ...] = ("criticLoss", "criticGradNorm", "actorLoss", "actorGradNorm", "tdAbsErr", "q")

    def __init__(
        self,
        actor: nn.Module,
        critic: nn.Module,
        *,
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

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        """Critic and targets."""
        return {
            "critic": self.critic,
            "critic_target": self.critic_target.module,
            "actor_target": self.actor_target.module,
        }

    def gradient_step(self, batch: Transitions, n: int, step: int) -> Mapping[str, float]:
        """Critic, actor, targets."""
        y = self.target(batch)
        q = self.critic(batch.obs, batch.action)
        critic_loss = squared_error(q, y).mean()
        critic_norm = self.optimizer["critic"].step(critic_loss, step)
        actor_loss = self.actor_loss(batch).mean()
        actor_norm = self.optimizer["actor"].step(actor_loss, step)
        self.actor_target.update()
        self.critic_target.update()
        return {
            "criticLoss": critic_loss.item(),
            "criticGradNorm": critic_norm,
            "actorLoss": actor_loss.item(),
            "actorGradNorm": actor_norm,
            "tdAbsErr": (q.detach() - y).abs().mean().item(),
            "q": q.mean().item(),
        }

    @torch.no_grad()
    def target(self, batch: Transitions) -> Tensor:
        """What the critic should say, [N]."""
        action = self.actor_target.module(batch.next_obs)
        return bootstrap_target(batch.return_, batch.discount_n, self.critic_target.module(batch.next_obs, action))

    def actor_loss(self, batch: Transitions) -> Tensor:
        """[N]."""
        with frozen(self.critic):
            return deterministic_policy_loss(self.critic(batch.obs, self.actor(batch.obs)))
