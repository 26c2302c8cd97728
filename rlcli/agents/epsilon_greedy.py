"""From action values to actions: the best one, or now and then any."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rlcli.agents.epsilon_config import Epsilon

N_UNIFORMS = 2
"""Uniforms that a choice takes: one for the coin, one for the random action."""


class EpsilonGreedy:
    """The greedy action, or with probability epsilon a uniformly drawn one.

    Args:
        epsilon: Share of random actions, by env step and global env id.
        n_envs: B: how many training environments there are (a vector of epsilons is spread over them).
    """

    def __init__(self, epsilon: Epsilon, n_envs: int) -> None:
        self.epsilon = epsilon
        self._n_envs = n_envs

    def mean(self, step: int) -> float:
        """Mean epsilon over the environments."""
        return sum(self.epsilon.per_env(step, self._n_envs)) / self._n_envs

    def choose(self, q: Tensor, uniforms: Tensor, *, env_ids: Sequence[int], step: int, explore: bool) -> Tensor:
        """Actions [N] int64; of equal values the first is the greedy one.

        Args:
            q: [N, A] action values, on the CPU.
            uniforms: [N, 2 or more] in [0, 1); the first two are taken.
            env_ids: [N] global ids of the environments.
            step: Environment steps so far.
            explore: False in evaluation, which has an epsilon of its own.
        """
        if explore:
            per_env = self.epsilon.per_env(step, self._n_envs)
            epsilon = torch.tensor([per_env[i] for i in env_ids], dtype=uniforms.dtype)
        else:
            epsilon = torch.full((len(env_ids),), self.epsilon.eval, dtype=uniforms.dtype)
        n_actions = q.shape[-1]
        drawn = (uniforms[:, 1] * n_actions).long().clamp_max_(n_actions - 1)
        return torch.where(uniforms[:, 0] < epsilon, drawn, q.argmax(dim=-1))
