"""Acting on a categorical policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from rlcli.core.protocols import Act
from rlcli.core.tree import Tree, to
from rlcli.models.heads import PolicyValueNetwork


class CategoricalAgent:
    """Draws actions from the softmax of a network's logits; in evaluation takes the likeliest.

    Args:
        model: Observation to logits and value.
    """

    n_uniforms = 1

    def __init__(self, model: PolicyValueNetwork) -> None:
        self.model = model
        self._device = "cpu"

    def initial_state(self, n_envs: int) -> Tree:
        """None: there is no recurrent state."""
        return None

    @torch.inference_mode()
    def act(self, obs: Tree, state: Tree, uniforms: Tensor, *, env_ids: Sequence[int], step: int, explore: bool) -> Act:
        """An action drawn by the inverse of the cumulative distribution, and the state's value as record."""
        logits, value = self.model(to(obs, self._device))
        if explore:
            cumulative = logits.double().softmax(dim=-1).cumsum(dim=-1).cpu()
            # The last sum may fall short of 1 by rounding: a draw above it belongs to the last action.
            action = (cumulative <= uniforms[:, :1]).sum(dim=-1).clamp_max_(logits.shape[-1] - 1)
        else:
            action = logits.argmax(dim=-1).cpu()
        return Act(action=action, record={"value": value.cpu()}, state=None)

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
