"""The greedy policy of a saved agent as one module: what play shows and export writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rlcli.agents.policy import PolicyAgent
from rlcli.agents.q import QAgent
from rlcli.core.errors import ConfigError
from rlcli.core.tree import Tree
from rlcli.models.action_distributions import Categorical

if TYPE_CHECKING:
    from rlcli.core.protocols import Agent
    from rlcli.core.spec import EnvSpec


class GreedyPolicy(nn.Module):
    """The agent's best action, without any random ones, and the scores that make it the best.

    Args:
        model: The agent's network.
        start: Number of the environment's first action.
    """

    score_name = "values"

    def __init__(self, model: nn.Module, start: int) -> None:
        super().__init__()
        self.model = model
        self.start = start

    def forward(self, obs: Tree) -> tuple[Tensor, Tensor]:
        """Actions [N] int64 as the environment takes them, the first of equal ones, and scores [N, n_actions]."""
        scores = self.scores(obs)
        return scores.argmax(dim=-1) + self.start, scores

    def scores(self, obs: Tree) -> Tensor:
        """[N, n_actions]."""
        values: Tensor = self.model(obs)
        return values


class GreedyCategorical(GreedyPolicy):
    """The same on a categorical policy; scores are probabilities."""

    score_name = "probabilities"

    def scores(self, obs: Tree) -> Tensor:
        """[N, n_actions], their sum 1."""
        logits: Tensor = self.model(obs)[0]
        return logits.softmax(dim=-1)


def greedy_policy(agent: Agent, spec: EnvSpec) -> GreedyPolicy:
    """The policy of an agent that chooses among discrete actions; shares its weights.

    Raises:
        ConfigError: Another kind of agent, or one with a recurrent state.
    """
    start = int(getattr(spec.action_space, "start", 0))
    if agent.initial_state(1) is not None:
        raise ConfigError("the agent is recurrent, which is not supported here yet")
    if isinstance(agent, QAgent):
        return GreedyPolicy(agent.model, start)
    if isinstance(agent, PolicyAgent) and isinstance(agent.distribution, Categorical):
        return GreedyCategorical(agent.model, start)
    raise ConfigError(f"a {type(agent).__name__} has neither action values nor probabilities of discrete actions")


@torch.inference_mode()
def scores_of(policy: GreedyPolicy, obs: Tree) -> list[float]:
    """The scores of one observation [1, ...], on the CPU."""
    scores: list[float] = policy.scores(obs)[0].float().cpu().tolist()
    return scores
