"""Config of TD3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlcli.algos import box_config
from rlcli.core.options import option

if TYPE_CHECKING:
    from rlcli.agents.deterministic import DeterministicAgent
    from rlcli.algos.actor_critic import ActorCritic
    from rlcli.core.context import BuildContext
    from rlcli.core.spec import EnvSpec


@dataclass
class TD3Config:
    """Twin delayed DDPG (Fujimoto 2018), with the settings of its authors' code as it is today."""

    on_policy: ClassVar[bool] = False

    batch_size: int = option(256, "Transitions per gradient step (the authors' code).", ge=1)
    replay_ratio: float = option(
        256.0, "Transitions used in gradient steps per environment step: batch 256 at every step is 256.", gt=0
    )
    min_steps_learn: int = option(10_000, "Env steps before the first gradient step (rlpyt).", ge=0)
    random_steps: int = option(
        10_000,
        "Env steps at the start whose actions are drawn evenly from the box (SpinningUp; the authors have 25,000).",
        ge=0,
    )
    discount: float = option(0.99, "Discount per agent step.", ge=0, le=1)
    n_step_return: int = option(1, "Rewards in a target before the bootstrap.", ge=1)
    actor_learning_rate: float = option(3e-4, "Adam's step size for the actor (the authors' code).", gt=0)
    critic_learning_rate: float = option(3e-4, "Adam's step size for both critics (the authors' code).", gt=0)
    learning_rate_schedule: str = option(
        "constant", "constant, or linear from the learning rates to 0 at `n_steps`.", choices=("constant", "linear")
    )
    adam_eps: float = option(1e-8, "Adam's epsilon (PyTorch).", gt=0)
    clip_grad_norm: float | None = option(
        None, "Largest global norm of each gradient; null: no clipping, as in all references.", gt=0
    )
    tau: float = option(0.005, "Share of the online networks in an update of the targets (Fujimoto 2018).", gt=0, le=1)
    noise_std: float = option(
        0.1,
        "Deviation of the exploration noise, normalised units: 1 is half the width of the box (Fujimoto 2018).",
        ge=0,
    )
    target_noise_std: float = option(
        0.2, "Deviation of the noise on target actions, normalised units (Fujimoto 2018).", ge=0
    )
    target_noise_clip: float = option(0.5, "Largest size of that noise, normalised units (Fujimoto 2018).", ge=0)
    policy_delay: int = option(
        2, "Critic updates for one update of the actor and of the targets (Fujimoto 2018).", ge=1
    )

    def spec_problems(self, spec: EnvSpec) -> list[str]:
        """Why an environment does not suit, empty if it does; imports no torch."""
        return box_config.spec_problems("td3", spec)

    def notes(self, n_steps: int) -> list[str]:
        """Lines worth telling before the run of ``n_steps``."""
        return box_config.notes(self, n_steps)

    def build_agent(self, context: BuildContext) -> DeterministicAgent:
        """An agent with new weights."""
        from rlcli.agents.deterministic import DeterministicAgent
        from rlcli.models.actors import DeterministicActor

        scale = box_config.action_scale(context)
        actor = DeterministicActor(box_config.trunk(context), scale.n_dims)
        return DeterministicAgent(actor, scale, self.noise_std, self.random_steps)

    def build(self, context: BuildContext, agent: DeterministicAgent) -> ActorCritic:
        """The learner, with its replay."""
        from rlcli.algos.actor_critic import ActorCritic
        from rlcli.algos.draws import Draws
        from rlcli.algos.td3 import TD3
        from rlcli.models.critics import TwinCritic

        critic = TwinCritic(context.model, context.spec.observation_space, agent.scale.n_dims)
        draws = Draws(context.seed, context.device)
        rule = TD3(
            agent.model,
            critic.to(context.device),
            draws,
            target_noise_std=self.target_noise_std,
            target_noise_clip=self.target_noise_clip,
            policy_delay=self.policy_delay,
            tau=self.tau,
            actor_settings=box_config.optimizer_settings(self, self.actor_learning_rate),
            critic_settings=box_config.optimizer_settings(self, self.critic_learning_rate),
            n_steps=context.n_steps,
        )
        replay = box_config.build_replay(context, self)
        return ActorCritic(rule, agent, replay, self, draws=draws, device=context.device)
