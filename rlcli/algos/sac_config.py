"""Config of SAC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlcli.algos import box_config
from rlcli.core.options import option

if TYPE_CHECKING:
    from rlcli.agents.squashed_gaussian import SquashedGaussianAgent
    from rlcli.algos.replay_learner import ReplayLearner
    from rlcli.core.context import BuildContext
    from rlcli.replay.replay import ReplayBatch


@dataclass
class SACConfig(box_config.BoxConfig):
    """Soft actor-critic with a learned or a fixed entropy coefficient (Haarnoja 2018b, arXiv 1812.05905)."""

    name: ClassVar[str] = "sac"

    batch_size: int = option(256, "Transitions per gradient step (Haarnoja 2018b).", ge=1)
    actor_learning_rate: float = option(3e-4, "Adam's step size for the actor (Haarnoja 2018b).", gt=0)
    critic_learning_rate: float = option(3e-4, "Adam's step size for both critics (Haarnoja 2018b).", gt=0)
    alpha_learning_rate: float = option(3e-4, "Adam's step size for the entropy coefficient (Haarnoja 2018b).", gt=0)
    tau: float = option(
        0.005, "Share of the online critics in an update of their targets (Haarnoja 2018b).", gt=0, le=1
    )
    fixed_alpha: float | None = option(
        None, "Entropy coefficient; null: learned, so that the policy's entropy comes to `target_entropy`.", gt=0
    )
    init_alpha: float = option(1.0, "First value of a learned entropy coefficient (rlpyt, stable-baselines3).", gt=0)
    target_entropy: float | None = option(
        None, "Nats, of actions in normalised units; null: minus the number of dimensions (Haarnoja 2018b, table 1)."
    )

    def build_agent(self, context: BuildContext) -> SquashedGaussianAgent:
        """An agent with new weights."""
        return box_config.gaussian_agent(context, self)

    def build(self, context: BuildContext, agent: SquashedGaussianAgent) -> ReplayLearner[ReplayBatch]:
        """The learner, with its replay."""
        from rlcli.algos.draws import Draws
        from rlcli.algos.sac import SAC

        draws = Draws(context.seed, context.device)
        target_entropy = -float(agent.scale.n_dims) if self.target_entropy is None else self.target_entropy
        rule = SAC(
            agent.model,
            box_config.twin_critic(context, agent),
            draws,
            alpha=self.init_alpha if self.fixed_alpha is None else self.fixed_alpha,
            target_entropy=target_entropy if self.fixed_alpha is None else None,
            tau=self.tau,
            actor_settings=box_config.optimizer_settings(self, self.actor_learning_rate),
            critic_settings=box_config.optimizer_settings(self, self.critic_learning_rate),
            alpha_settings=box_config.optimizer_settings(self, self.alpha_learning_rate),
            n_steps=context.n_steps,
            device=context.device,
        )
        return box_config.learner(context, self, agent, rule, draws)
