"""Acting on a deterministic policy in a box: DDPG and TD3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rlcli.agents.module import ActingModel
from rlcli.core.protocols import Act
from rlcli.core.tree import Tree, to
from rlcli.models.action_scale import ActionScale
from rlcli.models.actors import DeterministicActor
from rlcli.models.squashed_gaussian import normals


class DeterministicAgent:
    """The actor's action plus Gaussian noise, clipped to the box; without noise in evaluation.

    Args:
        model: Observation to normalised action.
        scale: From normalised actions to the environment's.
        noise_std: Deviation of the noise in normalised units: 1 is half the width of the box.
        random_steps: Env steps at the start whose actions are drawn evenly from the box.
    """

    def __init__(self, model: DeterministicActor, scale: ActionScale, noise_std: float, random_steps: int) -> None:
        self.model = model
        self._acting = ActingModel(model)
        self.scale = scale
        self.n_uniforms = scale.n_dims
        self._noise_std, self._random_steps = noise_std, random_steps

    def initial_state(self, n_envs: int) -> Tree:
        """None: there is no recurrent state."""
        return None

    @torch.inference_mode()
    def act(self, obs: Tree, state: Tree, uniforms: Tensor, *, env_ids: Sequence[int], step: int, explore: bool) -> Act:
        """Actions in the environment's units, [B, *shape] float32."""
        if explore and step < self._random_steps:
            unit = 2.0 * uniforms - 1.0
        else:
            unit = self.model(to(obs, self._acting.device)).cpu().double()
            if explore:
                unit = (unit + self._noise_std * normals(uniforms)).clamp(-1.0, 1.0)
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
