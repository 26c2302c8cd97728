"""Config of DDPG."""

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

_FINAL_BOUND = 3e-3
"""First weights of the last layers: actions and values begin near 0 (Lillicrap 2016, supplement)."""


@dataclass
class DDPGConfig(box_config.BoxConfig):
    """Deep deterministic policy gradient (Lillicrap 2016), with the settings that TD3's authors and SpinningUp use."""

    name: ClassVar[str] = "ddpg"

    batch_size: int = option(100, "Transitions per gradient step (SpinningUp).", ge=1)
    replay_ratio: float = option(
        100.0, "Transitions used in gradient steps per environment step: batch 100 at every step is 100.", gt=0
    )
    actor_learning_rate: float = option(1e-3, "Adam's step size for the actor (SpinningUp).", gt=0)
    critic_learning_rate: float = option(1e-3, "Adam's step size for the critic (Lillicrap 2016).", gt=0)
    tau: float = option(0.005, "Share of the online networks in an update of the targets (SpinningUp).", gt=0, le=1)
    noise_std: float = option(
        0.1, "Deviation of the exploration noise, normalised units: 1 is half the width of the box (SpinningUp).", ge=0
    )

    def build_agent(self, context: BuildContext) -> DeterministicAgent:
        """An agent with new weights."""
        return box_config.deterministic_agent(context, self, self.noise_std, _FINAL_BOUND)

    def build(self, context: BuildContext, agent: DeterministicAgent) -> ReplayLearner[ReplayBatch]:
        """The learner, with its replay."""
        from rlcli.algos.ddpg import DDPG

        rule = DDPG(
            agent.model,
            box_config.critic(context, agent, _FINAL_BOUND),
            tau=self.tau,
            actor_settings=box_config.optimizer_settings(self, self.actor_learning_rate),
            critic_settings=box_config.optimizer_settings(self, self.critic_learning_rate),
            n_steps=context.n_steps,
        )
        return box_config.learner(context, self, agent, rule)
