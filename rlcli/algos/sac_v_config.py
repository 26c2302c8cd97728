"""Config of SAC with a V network."""

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
class SACVConfig(box_config.BoxConfig):
    """Soft actor-critic with a network for the state's value and a fixed entropy coefficient (Haarnoja 2018a)."""

    name: ClassVar[str] = "sac_v"

    batch_size: int = option(256, "Transitions per gradient step (Haarnoja 2018a).", ge=1)
    actor_learning_rate: float = option(3e-4, "Adam's step size for the actor (Haarnoja 2018a).", gt=0)
    critic_learning_rate: float = option(3e-4, "Adam's step size for both critics (Haarnoja 2018a).", gt=0)
    value_learning_rate: float = option(3e-4, "Adam's step size for the value network (Haarnoja 2018a).", gt=0)
    tau: float = option(0.005, "Share of the value network in an update of its target (Haarnoja 2018a).", gt=0, le=1)
    alpha: float = option(1.0, "Entropy coefficient (Haarnoja 2018a: 1, beside `reward_scale`).", gt=0)
    reward_scale: float = option(
        5.0, "Factor on rewards; the larger, the less the entropy counts (Haarnoja 2018a: 5, for Humanoid 20).", gt=0
    )
    policy_regularization: float = option(
        1e-3, "Weight of half the squares of the policy's mean and log deviation (the authors' code, rlpyt).", ge=0
    )

    def build_agent(self, context: BuildContext) -> SquashedGaussianAgent:
        """An agent with new weights."""
        return box_config.gaussian_agent(context, self)

    def build(self, context: BuildContext, agent: SquashedGaussianAgent) -> ReplayLearner[ReplayBatch]:
        """The learner, with its replay."""
        from rlcli.algos.draws import Draws
        from rlcli.algos.sac_v import SACV

        draws = Draws(context.seed, context.device)
        rule = SACV(
            agent.model,
            box_config.twin_critic(context, agent),
            box_config.state_value(context, agent),
            draws,
            alpha=self.alpha,
            reward_scale=self.reward_scale,
            policy_regularization=self.policy_regularization,
            tau=self.tau,
            actor_settings=box_config.optimizer_settings(self, self.actor_learning_rate),
            critic_settings=box_config.optimizer_settings(self, self.critic_learning_rate),
            value_settings=box_config.optimizer_settings(self, self.value_learning_rate),
            n_steps=context.n_steps,
        )
        return box_config.learner(context, self, agent, rule, draws)
