"""Configs of C51 and of Rainbow, which is C51 with everything that goes with it switched on."""

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
class CatDQNConfig(QLearningConfig):
    """C51, distributional Q-learning on fixed atoms (Bellemare 2017)."""

    name: ClassVar[str] = "cat_dqn"

    learning_rate: float = option(2.5e-4, "Adam's step size (Bellemare 2017, section 5).", gt=0)
    adam_eps: float = option(0.01 / 32, "Adam's epsilon: 0.01 / batch (Bellemare 2017, section 5).", gt=0)
    v_min: float = option(
        -10.0,
        "Lowest atom: no discounted return below it can be told (Bellemare 2017, for rewards clipped to -1 .. 1).",
        at_resume="locked",
    )
    v_max: float = option(10.0, "Highest atom, as `v_min` (Bellemare 2017).", at_resume="locked")
    n_atoms: int = option(
        51, "Atoms, evenly spaced from `v_min` to `v_max` (Bellemare 2017).", ge=2, at_resume="locked"
    )

    def problems(self) -> list[str]:
        """Checks across fields."""
        if self.v_min < self.v_max:
            return []
        return [f"v_max: {self.v_max} must be > v_min, which is {self.v_min}"]

    def build_agent(self, context: BuildContext) -> QAgent:
        """An epsilon-greedy agent with new weights."""
        import torch

        from rlcli.models.heads import CategoricalQNetwork

        trunk = build_trunk(context, hidden_in_head=self.dueling or self.noisy)
        atoms = torch.linspace(self.v_min, self.v_max, self.n_atoms)
        model = CategoricalQNetwork(trunk, context.spec.n_actions, atoms, self.dueling, self.noisy)
        return q_agent(context, model)

    def build(self, context: BuildContext, agent: QAgent) -> ReplayLearner[ReplayBatch]:
        """The learner, with its replay."""
        from rlcli.algos.cat_dqn import CategoricalLoss

        return q_learning(self, CategoricalLoss(self.double_dqn), context, agent)


@dataclass
class RainbowConfig(CatDQNConfig):
    """Rainbow: C51, double, dueling, n-step, noisy; with replay=prioritized and epsilon=zero (Hessel 2018)."""

    name: ClassVar[str] = "rainbow"

    learning_rate: float = option(6.25e-5, "Adam's step size (Hessel 2018, table 1).", gt=0)
    adam_eps: float = option(1.5e-4, "Adam's epsilon (Hessel 2018, table 1).", gt=0)
    min_steps_learn: int = option(20_000, "Env steps before the first gradient step (Hessel 2018, table 1).", ge=0)
    n_step_return: int = option(3, "Rewards in a target before the bootstrap (Hessel 2018, table 1).", ge=1)
    double_dqn: bool = option(True, "Choose the next action with the online network (van Hasselt 2016).")
    dueling: bool = option(
        True,
        "Two streams, each with a dense layer of its own, for value and advantage (Wang 2016).",
        at_resume="locked",
    )
    noisy: bool = option(
        True,
        "Explore by learned noise in the weights of the dense layers behind the features (Fortunato 2018).",
        at_resume="locked",
    )
