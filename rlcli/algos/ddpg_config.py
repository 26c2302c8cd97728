"""Config of DDPG."""

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

_FINAL_BOUND = 3e-3
"""First weights of the last layers: actions and values begin near 0 (Lillicrap 2016, supplement)."""


@dataclass
class DDPGConfig:
    """Deep deterministic policy gradient (Lillicrap 2016), with the settings that TD3's authors and SpinningUp use."""

    on_policy: ClassVar[bool] = False

    batch_size: int = option(100, "Transitions per gradient step (SpinningUp).", ge=1)
    replay_ratio: float = option(
        100.0, "Transitions used in gradient steps per environment step: batch 100 at every step is 100.", gt=0
    )
    min_steps_learn: int = option(10_000, "Env steps before the first gradient step (rlpyt).", ge=0)
    random_steps: int = option(
        10_000, "Env steps at the start whose actions are drawn evenly from the box (SpinningUp).", ge=0
    )
    discount: float = option(0.99, "Discount per agent step.", ge=0, le=1)
    n_step_return: int = option(1, "Rewards in a target before the bootstrap.", ge=1)
    actor_learning_rate: float = option(1e-3, "Adam's step size for the actor (SpinningUp).", gt=0)
    critic_learning_rate: float = option(1e-3, "Adam's step size for the critic (Lillicrap 2016).", gt=0)
    learning_rate_schedule: str = option(
        "constant", "constant, or linear from the learning rates to 0 at `n_steps`.", choices=("constant", "linear")
    )
    adam_eps: float = option(1e-8, "Adam's epsilon (PyTorch).", gt=0)
    clip_grad_norm: float | None = option(
        None, "Largest global norm of each gradient; null: no clipping, as in all references.", gt=0
    )
    tau: float = option(0.005, "Share of the online networks in an update of the targets (SpinningUp).", gt=0, le=1)
    noise_std: float = option(
        0.1, "Deviation of the exploration noise, normalised units: 1 is half the width of the box (SpinningUp).", ge=0
    )

    def spec_problems(self, spec: EnvSpec) -> list[str]:
        """Why an environment does not suit, empty if it does; imports no torch."""
        return box_config.spec_problems("ddpg", spec)

    def notes(self, n_steps: int) -> list[str]:
        """Lines worth telling before the run of ``n_steps``."""
        return box_config.notes(self, n_steps)

    def build_agent(self, context: BuildContext) -> DeterministicAgent:
        """An agent with new weights."""
        from rlcli.agents.deterministic import DeterministicAgent
        from rlcli.models.actors import DeterministicActor

        scale = box_config.action_scale(context)
        actor = DeterministicActor(box_config.trunk(context), scale.n_dims, _FINAL_BOUND)
        return DeterministicAgent(actor, scale, self.noise_std, self.random_steps)

    def build(self, context: BuildContext, agent: DeterministicAgent) -> ActorCritic:
        """The learner, with its replay."""
        from rlcli.algos.actor_critic import ActorCritic
        from rlcli.algos.ddpg import DDPG
        from rlcli.models.critics import Critic

        critic = Critic(context.model, context.spec.observation_space, agent.scale.n_dims, _FINAL_BOUND)
        rule = DDPG(
            agent.model,
            critic.to(context.device),
            tau=self.tau,
            actor_settings=box_config.optimizer_settings(self, self.actor_learning_rate),
            critic_settings=box_config.optimizer_settings(self, self.critic_learning_rate),
            n_steps=context.n_steps,
        )
        return ActorCritic(rule, agent, box_config.build_replay(context, self), self, device=context.device)
