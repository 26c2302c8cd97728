"""Between normalised actions and the environment's own."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import Tensor


class ActionScale:
    """Takes [-1, 1] in each dimension to a Box, and back; each dimension has its own bounds.

    Args:
        space: A bounded Box of floats.

    Attributes:
        n_dims: D, numbers in one action.

    Raises:
        ValueError: for a Box that is not bounded.
    """

    def __init__(self, space: spaces.Box) -> None:
        low, high = (np.asarray(bound, np.float64).reshape(-1) for bound in (space.low, space.high))
        if not (np.isfinite(low) & np.isfinite(high)).all():
            raise ValueError(f"actions without bounds have no scale: {space}")
        self._shape = space.shape
        self._low, self._high = _inside(low, high)
        self._middle = torch.from_numpy(low / 2 + high / 2)  # in this order the sum of large bounds is finite
        self._half = torch.from_numpy(high / 2 - low / 2)
        self.n_dims = len(low)

    def to_env(self, unit: Tensor) -> Tensor:
        """The environment's actions, [N, *shape] float32 inside the bounds, of normalised ones [N, D] on the CPU."""
        action = (self._middle + self._half * unit.double()).to(torch.float32)
        return torch.minimum(torch.maximum(action, self._low), self._high).reshape(-1, *self._shape)

    def to_unit(self, action: Tensor) -> Tensor:
        """Normalised actions, [N, D] float32, of the environment's [N, *shape] on the CPU."""
        offset = action.reshape(action.shape[0], -1).double() - self._middle
        # a dimension without width has one action: its middle
        unit = offset / torch.where(self._half > 0, self._half, torch.ones_like(self._half))
        return unit.clamp(-1.0, 1.0).to(torch.float32)


def _inside(low: npt.NDArray[np.float64], high: npt.NDArray[np.float64]) -> tuple[Tensor, Tensor]:
    """The outermost float32 numbers that are not outside bounds of more digits."""
    low32, high32 = low.astype(np.float32), high.astype(np.float32)
    low32 = np.where(low32 < low, np.nextafter(low32, np.float32(np.inf)), low32)
    high32 = np.where(high32 > high, np.nextafter(high32, np.float32(-np.inf)), high32)
    return torch.from_numpy(low32), torch.from_numpy(high32)
