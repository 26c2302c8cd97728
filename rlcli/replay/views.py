"""What to return for a picked row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcli.replay.ring import Index, Mask, Ring


@dataclass(frozen=True, slots=True)
class Window:
    """N n-step windows, every array [N]."""

    return_: npt.NDArray[np.float64]
    """Discounted sum of the rewards up to and including the first end."""
    discount: npt.NDArray[np.float64]
    """Discount from the first row to the bootstrap row; 0 if the task terminated in between."""
    n_used: Index
    """Rows summed: the bootstrap observation lies so many rows later."""


def n_step_window(reward: npt.NDArray[Any], terminated: Mask, truncated: Mask, discount: float) -> Window:
    """Sum up to n rewards, stopping at the first end.

    G = r_0 + discount r_1 + ... + discount^{m-1} r_{m-1}, to which the learner adds discount^m V(s_m); m is n, or
    smaller if an end comes first. Where both flags are set the task terminated. What lies behind the first end
    changes nothing, whatever it is.

    Source: Sutton & Barto 2018, eq. 7.1.

    Args:
        reward: [N, n] float, from the window's first row on.
        terminated: [N, n] bool.
        truncated: [N, n] bool.
        discount: Per step, in [0, 1].
    """
    within = np.ones(reward.shape, np.bool_)
    within[:, 1:] = np.logical_and.accumulate(~(terminated | truncated), axis=1)[:, :-1]
    n_used = within.sum(axis=1)
    return Window(
        return_=np.where(within, reward, 0.0) @ discount ** np.arange(reward.shape[1]),
        discount=np.where((within & terminated).any(axis=1), 0.0, discount**n_used),
        n_used=n_used,
    )


class NStep:
    """n-step transitions: from a valid row to the row after its window.

    Args:
        n: Longest window, rows, at least 1.
        discount: Per step, in [0, 1].
    """

    def __init__(self, n: int, discount: float) -> None:
        self._discount = discount
        self._steps = np.arange(n, dtype=np.int64)

    def window(self, ring: Ring, row: Index, env: Index) -> Window:
        """The windows that begin at eligible rows [N]."""
        rows, envs = row[:, None] + self._steps, env[:, None]
        return n_step_window(
            ring.take("reward", rows, envs),
            ring.take("terminated", rows, envs),
            ring.take("truncated", rows, envs),
            self._discount,
        )

    def eligible(self, ring: Ring, row: Index, env: Index) -> Mask:
        """Whether rows [N] are valid and stored with their whole window and the bootstrap row."""
        rows, envs = row[:, None] + self._steps, env[:, None]
        ended = ring.take("terminated", rows, envs) | ring.take("truncated", rows, envs)
        goes_on = np.logical_and.accumulate(~ended, axis=1)  # what lies behind the head changes nothing below
        n_used = np.minimum(goes_on.sum(axis=1) + 1, len(self._steps))
        eligible: Mask = ring.take("valid", row, env) & ring.has(row) & (row + n_used < ring.head)
        return eligible
