"""Config of TD3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlcli.algos import box_config
from rlcli.core.options import option

if TYPE_CHECKING:
    from rlcli.agents.deterministic import DeterministicAgent
    from rlcli.algos.replay_learner import ReplayLearner
    from rlcli.core.context import BuildContext
    from rlcli.replay.replay import ReplayBatch


@dataclass
class TD3Config(box_config.BoxConfig):
    """Twin delayed DDPG (Fujimoto 2018), with the settings of its authors' code as it is today."""

    name: ClassVar[str] = "td3"

    batch_size: int = option(256, "Transitions per gradient step (the authors' code).", ge=1)
    random_steps: int = option(
        10_000,
        "Env steps at the start whose actions are drawn evenly from the box (SpinningUp; the authors have 25,000).",
        ge=0,
    )
    actor_learning_rate: float = option(3e-4, "Adam's step size for the actor (the authors' code).", gt=0)
    critic_learning_rate: float = option(3e-4, "Adam's step size for both critics (the authors' code).", gt=0)
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

    def build_agent(self, context: BuildContext) -> DeterministicAgent:
        """An agent with new weights."""
        return box_config.deterministic_agent(context, self, self.noise_std)

    def build(self, context: BuildContext, agent: DeterministicAgent) -> ReplayLearner[ReplayBatch]:
        """The learner, with its replay."""
        from rlcli.algos.draws import Draws
        from rlcli.algos.td3 import TD3

        draws = Draws(context.seed, context.device)
        rule = TD3(
            agent.model,
            box_config.twin_critic(context, agent),
            draws,
            target_noise_std=self.target_noise_std,
            target_noise_clip=self.target_noise_clip,
            policy_delay=self.policy_delay,
            tau=self.tau,
            actor_settings=box_config.optimizer_settings(self, self.actor_learning_rate),
            critic_settings=box_config.optimizer_settings(self, self.critic_learning_rate),
            n_steps=context.n_steps,
        )
        return box_config.learner(context, self, agent, rule, draws)
