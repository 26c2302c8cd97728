"""Config of SAC."""

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
class SACConfig:
    """Soft actor-critic with a learned or a fixed entropy coefficient (Haarnoja 2018b, arXiv 1812.05905)."""

    on_policy: ClassVar[bool] = False

    batch_size: int = option(256, "Transitions per gradient step (Haarnoja 2018b).", ge=1)
    replay_ratio: float = option(
        256.0, "Transitions used in gradient steps per environment step: batch 256 at every step is 256.", gt=0
    )
    min_steps_learn: int = option(10_000, "Env steps before the first gradient step (rlpyt).", ge=0)
    random_steps: int = option(
        10_000, "Env steps at the start whose actions are drawn evenly from the box (SpinningUp).", ge=0
    )
    discount: float = option(0.99, "Discount per agent step.", ge=0, le=1)
    n_step_return: int = option(1, "Rewards in a target before the bootstrap.", ge=1)
    actor_learning_rate: float = option(3e-4, "Adam's step size for the actor (Haarnoja 2018b).", gt=0)
    critic_learning_rate: float = option(3e-4, "Adam's step size for both critics (Haarnoja 2018b).", gt=0)
    alpha_learning_rate: float = option(3e-4, "Adam's step size for the entropy coefficient (Haarnoja 2018b).", gt=0)
    learning_rate_schedule: str = option(
        "constant", "constant, or linear from the learning rates to 0 at `n_steps`.", choices=("constant", "linear")
    )
    adam_eps: float = option(1e-8, "Adam's epsilon (PyTorch).", gt=0)
    clip_grad_norm: float | None = option(
        None, "Largest global norm of each gradient; null: no clipping, as in all references.", gt=0
    )
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

    def spec_problems(self, spec: EnvSpec) -> list[str]:
        """Why an environment does not suit, empty if it does; imports no torch."""
        return box_config.spec_problems("sac", spec)

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
        from rlcli.algos.sac import SAC
        from rlcli.models.critics import TwinCritic

        critic = TwinCritic(context.model, context.spec.observation_space, agent.scale.n_dims)
        draws = Draws(context.seed, context.device)
        target_entropy = -float(agent.scale.n_dims) if self.target_entropy is None else self.target_entropy
        rule = SAC(
            agent.model,
            critic.to(context.device),
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
        replay = box_config.build_replay(context, self)
        return ActorCritic(rule, agent, replay, self, draws=draws, device=context.device)
