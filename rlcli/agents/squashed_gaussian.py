"""Acting on a Gaussian policy squashed into a box: SAC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rlcli.agents.module import ActingModel
from rlcli.core.protocols import Act
from rlcli.core.tree import Tree, to
from rlcli.models.action_scale import ActionScale
from rlcli.models.actors import SquashedGaussianActor
from rlcli.models.squashed_gaussian import normals


class SquashedGaussianAgent:
    """Draws from the policy; in evaluation takes tanh(mean).

    Args:
        model: Observation to mean and logarithm of the deviation, before the tanh.
        scale: From normalised actions to the environment's.
        random_steps: Env steps at the start whose actions are drawn evenly from the box.
    """

    def __init__(self, model: SquashedGaussianActor, scale: ActionScale, random_steps: int) -> None:
        self.model = model
        self._acting = ActingModel(model)
        self.scale = scale
        self.n_uniforms = scale.n_dims
        self._random_steps = random_steps

    def initial_state(self, n_envs: int) -> Tree:
        """None: there is no recurrent state."""
        return None

    @torch.inference_mode()
    def act(self, obs: Tree, state: Tree, uniforms: Tensor, *, env_ids: Sequence[int], step: int, explore: bool) -> Act:
        """Actions in the environment's units, [B, *shape] float32."""
        if explore and step < self._random_steps:
            unit = 2.0 * uniforms - 1.0
        else:
            mean, log_std = (output.cpu().double() for output in self.model(to(obs, self._acting.device)))
            unit = torch.tanh(mean + log_std.exp() * normals(uniforms)) if explore else torch.tanh(mean)
        return Act(action=self.scale.to_env(unit), record=None, state=None)

    def state_dict(self) -> dict[str, Any]:
        """The actor's weights."""
        return self._acting.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over weights; strict."""
        self._acting.load_state_dict(state)

    def weights(self) -> Mapping[str, Tensor]:
        """The actor's parameters and buffers."""
        return self._acting.weights()

    def to(self, device: str) -> None:
        """Move the weights to ``device``; acting happens there."""
        self._acting.to(device)
