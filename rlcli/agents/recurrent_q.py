"""Acting epsilon-greedily on action values that hang on a recurrent state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rlcli.agents.epsilon_config import Epsilon
from rlcli.agents.epsilon_greedy import N_UNIFORMS, EpsilonGreedy
from rlcli.agents.module import ActingModel
from rlcli.core.protocols import Act
from rlcli.core.tree import Tree, map_tree, to
from rlcli.models.recurrent_q import RecurrentQNetwork


class RecurrentQAgent:
    """Epsilon-greedy; notes what a replay of sequences and its first priorities need.

    The record of a row: ``state`` before it, ``q`` of the action taken and ``value``, the highest of all actions.

    Args:
        model: Whose values act.
        epsilon: Share of random actions, by env step and global env id.
        n_envs: B: how many training environments there are (a vector of epsilons is spread over them).
    """

    n_uniforms = N_UNIFORMS

    def __init__(self, model: RecurrentQNetwork, epsilon: Epsilon, n_envs: int) -> None:
        self.model = model
        self._acting = ActingModel(model)
        self._choice = EpsilonGreedy(epsilon, n_envs)

    def initial_state(self, n_envs: int) -> Tree:
        """Zeros [n_envs, H] where acting happens."""
        return self.model.initial_state(n_envs, self._acting.device)

    def mean_epsilon(self, step: int) -> float:
        """Mean over the environments."""
        return self._choice.mean(step)

    @torch.inference_mode()
    def act(self, obs: Tree, state: Tree, uniforms: Tensor, *, env_ids: Sequence[int], step: int, explore: bool) -> Act:
        """Greedy action (the first of equal ones), or with probability epsilon a uniformly drawn one."""
        obs = to(obs, self._acting.device)
        values, after = self.model.unroll(map_tree(lambda leaf: leaf[None], obs), state)
        q = values[0].cpu()
        action = self._choice.choose(q, uniforms, env_ids=env_ids, step=step, explore=explore)
        record = {
            "q": q.gather(1, action[:, None]).squeeze(1),
            "value": q.amax(dim=1),
            "state": map_tree(torch.clone, state),
        }
        return Act(action=action, record=record, state=after)

    def state_dict(self) -> dict[str, Any]:
        """The model's weights."""
        return self._acting.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over weights; strict."""
        self._acting.load_state_dict(state)

    def weights(self) -> Mapping[str, Tensor]:
        """The model's parameters and buffers."""
        return self._acting.weights()

    def to(self, device: str) -> None:
        """Move the weights to ``device``; acting happens there."""
        self._acting.to(device)
