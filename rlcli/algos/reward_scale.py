"""Rewards divided by the running deviation of the discounted return."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlcli.core.samples import Samples

_EPS = 1e-8
"""Added to the variance."""


class RewardScale:
    """Divides rewards by the standard deviation of the discounted return so far, and clips them.

    The return runs forward, G = discount G + r, one for each environment, from 0 at an episode's start (Huang et al.
    2022, details 8 and 9 of continuous actions; there it starts anew at a reset, here also after a lost life). The
    statistics are of all valid rows ever seen, this batch's included, in float64.

    Args:
        discount: Per agent step.
        clip: Largest scaled reward, in size.
    """

    def __init__(self, discount: float, clip: float = 10.0) -> None:
        self._discount, self._clip = discount, clip
        self._return: Tensor | None = None
        self._count, self._mean, self._squares = 0, 0.0, 0.0

    def __call__(self, samples: Samples) -> Tensor:
        """The scaled rewards [T, B] float32 of the next batch; call it once for each."""
        self._observe(samples)
        scaled = samples.reward.double() / math.sqrt(self.variance + _EPS)
        return scaled.clamp(-self._clip, self._clip).float()

    @property
    def variance(self) -> float:
        """Of the discounted returns; 1 while none was seen."""
        return self._squares / self._count if self._count else 1.0

    def progress(self) -> dict[str, Any]:
        """The statistics, and where the returns stand."""
        return {"return": self._return, "count": self._count, "mean": self._mean, "squares": self._squares}

    def load_progress(self, state: Mapping[str, Any]) -> None:
        """Go on with them."""
        self._return = state["return"]
        self._count, self._mean, self._squares = state["count"], state["mean"], state["squares"]

    def _observe(self, samples: Samples) -> None:
        reward, valid = samples.reward.double(), samples.valid
        over = samples.terminated | samples.truncated | ~valid
        running = torch.zeros(reward.shape[1], dtype=torch.float64) if self._return is None else self._return
        found = torch.empty_like(reward)
        for t in range(reward.shape[0]):
            running = torch.where(valid[t], self._discount * running + reward[t], running)
            found[t] = running
            running = torch.where(over[t], torch.zeros_like(running), running)
        self._return = running
        self._add(found[valid])

    def _add(self, values: Tensor) -> None:
        """Chan et al. 1979."""
        n = values.numel()
        if not n:
            return
        mean = float(values.mean())
        delta, total = mean - self._mean, self._count + n
        self._squares += float((values - mean).square().sum()) + delta**2 * self._count * n / total
        self._mean += delta * n / total
        self._count = total
