"""Config of SAC with a V network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlcli.algos import box_config
from rlcli.core.options import option

if TYPE_CHECKING:
    from rlcli.agents.squashed_gaussian import SquashedGaussianAgent
    from rlcli.algos.actor_critic import ActorCritic
    from rlcli.core.context import BuildContext
    from rlcli.core.spec import EnvSpec


@dataclass
class SACVConfig:
    """Soft actor-critic with a network for the state's value and a fixed entropy coefficient (Haarnoja 2018a)."""

    on_policy: ClassVar[bool] = False

    batch_size: int = option(256, "Transitions per gradient step (Haarnoja 2018a).", ge=1)
    replay_ratio: float = option(
        256.0, "Transitions used in gradient steps per environment step: batch 256 at every step is 256.", gt=0
    )
    min_steps_learn: int = option(10_000, "Env steps before the first gradient step (rlpyt).", ge=0)
    random_steps: int = option(
        10_000, "Env steps at the start whose actions are drawn evenly from the box (SpinningUp).", ge=0
    )
    discount: float = option(0.99, "Discount per agent step.", ge=0, le=1)
    n_step_return: int = option(1, "Rewards in a target before the bootstrap.", ge=1)
    actor_learning_rate: float = option(3e-4, "Adam's step size for the actor (Haarnoja 2018a).", gt=0)
    critic_learning_rate: float = option(3e-4, "Adam's step size for both critics (Haarnoja 2018a).", gt=0)
    value_learning_rate: float = option(3e-4, "Adam's step size for the value network (Haarnoja 2018a).", gt=0)
    learning_rate_schedule: str = option(
        "constant", "constant, or linear from the learning rates to 0 at `n_steps`.", choices=("constant", "linear")
    )
    adam_eps: float = option(1e-8, "Adam's epsilon (PyTorch).", gt=0)
    clip_grad_norm: float | None = option(
        None, "Largest global norm of each gradient; null: no clipping, as in all references.", gt=0
    )
    tau: float = option(0.005, "Share of the value network in an update of its target (Haarnoja 2018a).", gt=0, le=1)
    alpha: float = option(1.0, "Entropy coefficient (Haarnoja 2018a: 1, beside `reward_scale`).", gt=0)
    reward_scale: float = option(
        5.0, "Factor on rewards; the larger, the less the entropy counts (Haarnoja 2018a: 5, for Humanoid 20).", gt=0
    )
    policy_regularization: float = option(
        1e-3, "Weight of half the squares of the policy's mean and log deviation (the authors' code, rlpyt).", ge=0
    )

    def spec_problems(self, spec: EnvSpec) -> list[str]:
        """Why an environment does not suit, empty if it does; imports no torch."""
        return box_config.spec_problems("sac_v", spec)

    def notes(self, n_steps: int) -> list[str]:
        """Lines worth telling before the run of ``n_steps``."""
        return box_config.notes(self, n_steps)

    def build_agent(self, context: BuildContext) -> SquashedGaussianAgent:
        """An agent with new weights."""
        from rlcli.agents.squashed_gaussian import SquashedGaussianAgent
        from rlcli.models.actors import SquashedGaussianActor

        scale = box_config.action_scale(context)
        actor = SquashedGaussianActor(box_config.trunk(context), scale.n_dims)
        return SquashedGaussianAgent(actor, scale, self.random_steps)

    def build(self, context: BuildContext, agent: SquashedGaussianAgent) -> ActorCritic:
        """The learner, with its replay."""
        from rlcli.algos.actor_critic import ActorCritic
        from rlcli.algos.draws import Draws
        from rlcli.algos.sac_v import SACV
        from rlcli.models.critics import StateValue, TwinCritic

        critic = TwinCritic(context.model, context.spec.observation_space, agent.scale.n_dims)
        value = StateValue(box_config.trunk(context))
        draws = Draws(context.seed, context.device)
        rule = SACV(
            agent.model,
            critic.to(context.device),
            value.to(context.device),
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
        replay = box_config.build_replay(context, self)
        return ActorCritic(rule, agent, replay, self, draws=draws, device=context.device)
