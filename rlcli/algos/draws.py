"""Random numbers of a learner's updates: one stream, whose state a checkpoint holds."""

from __future__ import annotations

import torch
from torch import Tensor

from rlcli.core.rng import Purpose, integer_seed


class Draws:
    """Draws on the CPU, so that they do not hang on where the learner runs, and hands over what was drawn.

    Args:
        seed: Run seed.
        device: Where the numbers are needed.
    """

    def __init__(self, seed: int, device: str = "cpu") -> None:
        self._generator = torch.Generator().manual_seed(integer_seed(seed, Purpose.LEARN))
        self._device = device

    def uniform(self, *shape: int) -> Tensor:
        """Float32 in [0, 1)."""
        return torch.rand(shape, generator=self._generator).to(self._device)

    def normal(self, *shape: int) -> Tensor:
        """Float32, mean 0, deviation 1."""
        return torch.randn(shape, generator=self._generator).to(self._device)

    def state(self) -> Tensor:
        """Where the stream stands, plain."""
        return self._generator.get_state()

    def load_state(self, state: Tensor) -> None:
        """Go on where `state` was taken."""
        self._generator.set_state(state)
