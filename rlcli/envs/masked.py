"""CartPole without its velocities: what a memory is for. Importing this registers ``rlcli/CartPoleMasked-v1``."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv

_SEEN = [0, 2]
"""Position of the cart and angle of the pole."""


class CartPoleMasked(gymnasium.ObservationWrapper[Any, Any, Any]):
    """CartPole that shows the cart's position and the pole's angle alone.

    Args:
        render_mode: As CartPole's.
    """

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(CartPoleEnv(render_mode=render_mode))
        space = self.env.observation_space
        assert isinstance(space, spaces.Box)
        self.observation_space = spaces.Box(space.low[_SEEN], space.high[_SEEN], dtype=np.float32)

    def observation(self, observation: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Its two numbers that are no velocities."""
        return observation[_SEEN]


gymnasium.register(
    "rlcli/CartPoleMasked-v1",
    entry_point="rlcli.envs.masked:CartPoleMasked",
    max_episode_steps=500,
    reward_threshold=475.0,
)
