"""Target networks: slow copies that targets are computed with."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import nn


class Target:
    """A copy of a network, equal to it at first, that takes no gradients.

    Args:
        online: The network that learns. The modules that its ``shared_by_copies`` names, if it has such a tuple, are
            not copied: statistics of the observations are one thing, which both see.
        tau: Share of it in an update; 1: a copy.
    """

    def __init__(self, online: nn.Module, tau: float) -> None:
        self._online, self._tau = online, tau
        shared: Iterable[nn.Module] = getattr(online, "shared_by_copies", ())
        self.module = copy.deepcopy(online, {id(module): module for module in shared}).requires_grad_(False)

    @torch.no_grad()
    def update(self) -> None:
        """Move toward the online network; what is no float (counters) is copied."""
        pairs = zip(self.module.state_dict().values(), self._online.state_dict().values(), strict=True)
        for target, online in pairs:
            if target.is_floating_point():
                target.lerp_(online, self._tau)
            else:
                target.copy_(online)
