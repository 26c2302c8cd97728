"""Acting on action values: epsilon-greedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from rlcli.agents.epsilon_config import Epsilon
from rlcli.core.protocols import Act
from rlcli.core.tree import Tree, to
from rlcli.models.heads import QNetwork


class QAgent:
    """Epsilon-greedy on a Q-network.

    Args:
        model: Observation to action values.
        epsilon: Share of random actions, by env step and global env id.
        n_envs: B: how many training environments there are (a vector of epsilons is spread over them).
    """

    n_uniforms = 2  # one for the coin, one for the random action

    def __init__(self, model: QNetwork, epsilon: Epsilon, n_envs: int) -> None:
        self.model = model
        self.epsilon = epsilon
        self._n_envs = n_envs
        self._device = "cpu"

    def initial_state(self, n_envs: int) -> Tree:
        """None: there is no recurrent state."""
        return None

    def mean_epsilon(self, step: int) -> float:
        """Mean over the environments."""
        return sum(self.epsilon.per_env(step, self._n_envs)) / self._n_envs

    @torch.inference_mode()
    def act(self, obs: Tree, state: Tree, uniforms: Tensor, *, env_ids: Sequence[int], step: int, explore: bool) -> Act:
        """Greedy action (the first of equal ones), or with probability epsilon a uniformly drawn one."""
        q = self.model(to(obs, self._device)).cpu()
        if explore:
            per_env = self.epsilon.per_env(step, self._n_envs)
            epsilon = torch.tensor([per_env[i] for i in env_ids], dtype=uniforms.dtype)
        else:
            epsilon = torch.full((len(env_ids),), self.epsilon.eval, dtype=uniforms.dtype)
        n_actions = q.shape[-1]
        drawn = (uniforms[:, 1] * n_actions).long().clamp_max_(n_actions - 1)
        action = torch.where(uniforms[:, 0] < epsilon, drawn, q.argmax(dim=-1))
        return Act(action=action, record=None, state=None)

    def state_dict(self) -> dict[str, Any]:
        """The model's weights."""
        return {"model": self.model.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over weights; strict."""
        self.model.load_state_dict(state["model"])

    def weights(self) -> Mapping[str, Tensor]:
        """The model's parameters and buffers."""
        return dict(chain(self.model.named_parameters(), self.model.named_buffers()))

    def to(self, device: str) -> None:
        """Move the weights to ``device``; acting happens there."""
        self.model.to(device)
        self._device = device
