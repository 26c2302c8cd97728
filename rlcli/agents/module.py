"""What all agents on one network share: where it lies, what of it is saved, and what of it processes share."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any, Generic, TypeVar

from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


class ActingModel(Generic[M]):
    """A network that acts: the part of an agent that its methods of these names hand on to.

    Args:
        network: Whose weights act; the learner trains the same object, in place.
    """

    def __init__(self, network: M) -> None:
        self.network = network
        self.device = "cpu"
        """Where acting happens; observations go there."""

    def state_dict(self) -> dict[str, Any]:
        """The network's weights, under the name ``model``."""
        return {"model": self.network.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over weights; strict."""
        self.network.load_state_dict(state["model"])

    def weights(self) -> Mapping[str, Tensor]:
        """The network's parameters and buffers."""
        return dict(chain(self.network.named_parameters(), self.network.named_buffers()))

    def to(self, device: str) -> None:
        """Move the weights to ``device``."""
        self.network.to(device)
        self.device = device
