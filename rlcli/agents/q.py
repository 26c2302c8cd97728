"""Acting on action values: epsilon-greedy, and with the noise of a noisy network where it has any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rlcli.agents.epsilon_config import Epsilon
from rlcli.agents.epsilon_greedy import N_UNIFORMS, EpsilonGreedy
from rlcli.agents.module import ActingModel
from rlcli.core.protocols import Act
from rlcli.core.tree import Tree, to

_SEEDS = 2**32  # torch's generator on the CPU takes no more than the lowest 32 bits of a seed


class QAgent:
    """Epsilon-greedy on a network that gives action values, of whatever it derives them: `QNetwork` and its kin.

    A noisy network acts with noise drawn anew for each environment and step, which its uniforms decide; in evaluation
    it acts without, on its mean weights.

    Args:
        model: Observation to action values [N, A]; a noisy one takes the noise [N, n_noise] too.
        epsilon: Share of random actions, by env step and global env id.
        n_envs: B: how many training environments there are (a vector of epsilons is spread over them).
        n_noise: Normals that a noisy model takes per observation; 0 for any other.
    """

    def __init__(self, model: nn.Module, epsilon: Epsilon, n_envs: int, n_noise: int = 0) -> None:
        self.model = model
        self.n_uniforms = N_UNIFORMS + (n_noise > 0)
        self._acting = ActingModel(model)
        self._choice = EpsilonGreedy(epsilon, n_envs)
        self._n_noise = n_noise

    def initial_state(self, n_envs: int) -> Tree:
        """None: there is no recurrent state."""
        return None

    def mean_epsilon(self, step: int) -> float:
        """Mean over the environments."""
        return self._choice.mean(step)

    @torch.inference_mode()
    def act(self, obs: Tree, state: Tree, uniforms: Tensor, *, env_ids: Sequence[int], step: int, explore: bool) -> Act:
        """Greedy action (the first of equal ones), or with probability epsilon a uniformly drawn one."""
        obs = to(obs, self._acting.device)
        if explore and self._n_noise:
            q = self.model(obs, seeded_normals(uniforms[:, -1], self._n_noise).to(self._acting.device))
        else:
            q = self.model(obs)
        action = self._choice.choose(q.cpu(), uniforms, env_ids=env_ids, step=step, explore=explore)
        return Act(action=action, record=None, state=None)

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


def seeded_normals(uniforms: Tensor, width: int) -> Tensor:
    """Normals [N, width] float32 on the CPU, each row decided by its uniform [N] alone.

    A noisy network takes thousands of normals per step. One uniform as the seed of a generator costs what it costs to
    draw them; as many uniforms would have to be drawn in blocks and carried about.
    """
    generator = torch.Generator()
    rows = [torch.randn(width, generator=generator.manual_seed(int(u * _SEEDS))) for u in uniforms.tolist()]
    return torch.stack(rows)
