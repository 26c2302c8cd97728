"""Config of DQN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlcli.algos.q_learning_config import QLearningConfig, build_trunk, q_agent, q_learning
from rlcli.core.options import option

if TYPE_CHECKING:
    from rlcli.agents.q import QAgent
    from rlcli.algos.replay_learner import ReplayLearner
    from rlcli.core.context import BuildContext
    from rlcli.replay.replay import ReplayBatch


@dataclass
class DQNConfig(QLearningConfig):
    """Deep Q-learning with replay and a target network (Mnih 2015), and what was added to it since."""

    name: ClassVar[str] = "dqn"

    delta_clip: float | None = option(1.0, "Huber's delta on the TD error; null: squared error.", gt=0)

    def build_agent(self, context: BuildContext) -> QAgent:
        """An epsilon-greedy agent with new weights."""
        from rlcli.models.heads import QNetwork

        trunk = build_trunk(context, hidden_in_head=self.dueling or self.noisy)
        return q_agent(context, QNetwork(trunk, context.spec.n_actions, self.dueling, self.noisy))

    def build(self, context: BuildContext, agent: QAgent) -> ReplayLearner[ReplayBatch]:
        """The learner, with its replay."""
        from rlcli.algos.dqn import ExpectedLoss

        return q_learning(self, ExpectedLoss(self.double_dqn, self.delta_clip), context, agent)
