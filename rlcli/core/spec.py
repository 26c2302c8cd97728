"""What is known about an environment before it is run, and the result of one step. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class EnvSpec:
    """Shapes, dtypes and spaces, fixed by one example step at the env border."""

    observation_space: gymnasium.Space[Any]
    """As observations enter the program: a Tuple has become a Dict with the keys "0", "1" ..."""
    action_space: gymnasium.Space[Any]
    example_obs: Any
    """One observation as it enters the program: a numpy array, or a dict of them; float64 became float32."""
    example_action: Any
    """One action as an agent gives it: int64, counted from 0, for Discrete and MultiDiscrete; int8 for MultiBinary;
    float32 or int64 for a Box of floats or integers."""
    frame_stack: int = 1
    """How many frames, oldest first along the first axis, one observation holds; replay stores each once."""
    stacked_key: str | None = None
    """Key of a Dict observation whose leaf ``frame_stack`` applies to; None: that of an observation without parts."""
    notes: tuple[str, ...] = ()
    """Lines worth telling the user once, such as a cast from float64."""

    @property
    def n_actions(self) -> int:
        """Number of actions of a Discrete action space; an algorithm that needs one checks for it first."""
        if not isinstance(self.action_space, gymnasium.spaces.Discrete):
            raise TypeError(f"{self.action_space} has no number of actions")
        return int(self.action_space.n)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of B environments; every array is [B]. The observations go where `recv` is told to put them."""

    reward: npt.NDArray[np.float32]
    """As learned from."""
    raw_reward: npt.NDArray[np.float64]
    """The environment's own, before clipping or scaling: the game score."""
    terminated: npt.NDArray[np.bool_]
    """The task ended for learning, a life loss included."""
    truncated: npt.NDArray[np.bool_]
    """The clock ended; on a row that is not valid: a cut, the env was lost with its worker and begins anew."""
    ended: npt.NDArray[np.bool_]
    """The game is over: the env resets in the next step."""
    valid: npt.NDArray[np.bool_]
    """False on filler rows."""
