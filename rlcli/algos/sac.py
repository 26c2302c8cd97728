"""SAC: soft actor-critic, with a learned or a fixed entropy coefficient.

Source: Haarnoja 2018b (arXiv 1812.05905), algorithm 1. The order of an update is critics, actor, alpha, targets, as in
SpinningUp; the action drawn for the actor serves alpha too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rlcli.algos.actor_critic import OptimizerSettings, Transitions, frozen
from rlcli.algos.draws import Draws
from rlcli.algos.optimization import Optimizer, Optimizers
from rlcli.algos.target import Target
from rlcli.losses.actor_critic import soft_policy_loss, soft_target, squared_error, temperature_loss


class SAC:
    """The update rule.

    Args:
        actor: Has ``sample``: observations and normals to reparameterised normalised actions [N, D] and their log
            densities [N]; trained in place.
        critic: Two critics: observations and normalised actions to values [N] of each.
        draws: Noise of the actions that the updates draw.
        alpha: Entropy coefficient, or its first value if it is learned.
        target_entropy: What the learned coefficient brings the entropy to, nats; None: it is fixed.
        tau: Share of the online critics in an update of the targets.
        actor_settings: Optimizer of the actor.
        critic_settings: Optimizer of both critics.
        alpha_settings: Optimizer of the coefficient.
        n_steps: Budget of the run, env steps; the learning-rate schedule runs to it.
        device: Where learning runs.
    """

    metrics: tuple[str, ...] = (
        "criticLoss",
        "criticGradNorm",
        "actorLoss",
        "actorGradNorm",
        "tdAbsErr",
        "q1",
        "q2",
        "entropy",
        "alpha",
    )

    def __init__(
        self,
        actor: nn.Module,
        critic: nn.Module,
        draws: Draws,
        *,
        alpha: float,
        target_entropy: float | None,
        tau: float,
        actor_settings: OptimizerSettings,
        critic_settings: OptimizerSettings,
        alpha_settings: OptimizerSettings,
        n_steps: int,
        device: str = "cpu",
    ) -> None:
        self.actor, self.critic = actor, critic
        self.critic_target = Target(critic, tau)
        self.temperature = nn.ParameterDict({"log_alpha": torch.tensor(math.log(alpha), device=device)})
        learned = {} if target_entropy is None else {"alpha": Optimizer(self.temperature, alpha_settings, n_steps)}
        self.optimizer = Optimizers(
            critic=Optimizer(critic, critic_settings, n_steps),
            actor=Optimizer(actor, actor_settings, n_steps),
            **learned,
        )
        self._draws, self._target_entropy = draws, target_entropy

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        """Critics, their targets and the entropy coefficient."""
        return {
            "critic": self.critic,
            "critic_target": self.critic_target.module,
            "temperature": self.temperature,
        }

    @property
    def alpha(self) -> Tensor:
        """Entropy coefficient, [], a constant for the losses."""
        alpha: Tensor = self.temperature["log_alpha"].detach().exp()
        return alpha

    def gradient_step(self, batch: Transitions, n: int, step: int) -> Mapping[str, float]:
        """Critics, actor, alpha, targets."""
        alpha = self.alpha
        y = self.target(batch)
        q1, q2 = self.critic(batch.obs, batch.action)
        critic_loss = (squared_error(q1, y) + squared_error(q2, y)).mean()
        critic_norm = self.optimizer["critic"].step(critic_loss, step)
        losses, log_prob = self.actor_loss(batch)
        actor_loss = losses.mean()
        actor_norm = self.optimizer["actor"].step(actor_loss, step)
        if self._target_entropy is not None:
            loss = temperature_loss(self.temperature["log_alpha"], log_prob, self._target_entropy)
            self.optimizer["alpha"].step(loss.mean(), step)
        self.critic_target.update()
        return {
            "criticLoss": critic_loss.item(),
            "criticGradNorm": critic_norm,
            "actorLoss": actor_loss.item(),
            "actorGradNorm": actor_norm,
            "tdAbsErr": (q1.detach() - y).abs().mean().item(),
            "q1": q1.mean().item(),
            "q2": q2.mean().item(),
            "entropy": -log_prob.mean().item(),
            "alpha": alpha.item(),
        }

    @torch.no_grad()
    def target(self, batch: Transitions) -> Tensor:
        """What both critics should say, [N]."""
        action, log_prob = self.sample(batch.next_obs, batch.action)
        q1, q2 = self.critic_target.module(batch.next_obs, action)
        return soft_target(batch.return_, batch.discount_n, q1, q2, log_prob, self.alpha)

    def actor_loss(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        """Losses and log densities of fresh actions, [N] each."""
        action, log_prob = self.sample(batch.obs, batch.action)
        with frozen(self.critic):
            q1, q2 = self.critic(batch.obs, action)
        return soft_policy_loss(log_prob, q1, q2, self.alpha), log_prob

    def sample(self, obs: object, like: Tensor) -> tuple[Tensor, Tensor]:
        """Fresh actions of the shape of ``like`` [N, D], and their log densities [N]."""
        action, log_prob = self.actor.sample(obs, self._draws.normal(*like.shape).to(like))  # type: ignore[operator]  # a module's method
        return action, log_prob
