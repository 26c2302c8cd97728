"""Config of IQN."""

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
class IQNConfig(QLearningConfig):
    """Implicit quantile network, distributional Q-learning by quantile regression (Dabney 2018b)."""

    name: ClassVar[str] = "iqn"

    learning_rate: float = option(5e-5, "Adam's step size (Dabney 2018a, for QR-DQN, whose settings IQN keeps).", gt=0)
    adam_eps: float = option(0.01 / 32, "Adam's epsilon: 0.01 / batch (Dabney 2018a).", gt=0)
    n_tau: int = option(64, "N: quantiles of the online network in a loss (Dabney 2018b, section 4).", ge=1)
    n_tau_target: int = option(64, "N': samples of the target in a loss (Dabney 2018b, section 4).", ge=1)
    n_tau_act: int = option(
        32,
        "K: quantiles whose mean is an action's value (Dabney 2018b, section 4); evenly spaced here, not random.",
        ge=1,
        at_resume="warned",
    )
    n_cosines: int = option(
        64, "Width of the cosine embedding of a probability (Dabney 2018b, eq. 4).", ge=1, at_resume="locked"
    )
    kappa: float = option(1.0, "Where the parabola of the quantile Huber loss ends (Dabney 2018b, section 4).", gt=0)

    def build_agent(self, context: BuildContext) -> QAgent:
        """An epsilon-greedy agent with new weights."""
        from rlcli.models.quantile import QuantileNetwork

        model = QuantileNetwork(
            build_trunk(context, hidden_in_head=True),
            context.spec.n_actions,
            n_cosines=self.n_cosines,
            n_midpoints=self.n_tau_act,
            dueling=self.dueling,
            noisy=self.noisy,
        )
        return q_agent(context, model)

    def build(self, context: BuildContext, agent: QAgent) -> ReplayLearner[ReplayBatch]:
        """The learner, with its replay."""
        from rlcli.algos.iqn import QuantileLoss

        return q_learning(
            self, QuantileLoss(self.double_dqn, self.n_tau, self.n_tau_target, self.kappa), context, agent
        )
