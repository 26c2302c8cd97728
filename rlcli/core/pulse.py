"""Signs of life of a process that steps environments, readable by another. Imports no torch."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt


class Doing(IntEnum):
    """What a worker is at; `describe` has the words."""

    START = 0
    BUILD = 1
    RESET = 2
    STEP = 3
    ACT = 4
    IDLE = 5


_WORDS = {
    Doing.START: "start",
    Doing.BUILD: "constructing env",
    Doing.RESET: "reset",
    Doing.STEP: "step",
    Doing.ACT: "choosing actions",
    Doing.IDLE: "idle",
}

N_WORDS = 3
"""Length of a pulse's memory, int64."""


class Pulse:
    """One writer tells how many calls it has made and what it is doing; anybody with the same memory can look.

    A deadline is measured from the last beat, so that a long batch of slow steps is no stall.

    Args:
        words: [3] int64, in shared memory if another process is to look; None: memory of its own.
    """

    def __init__(self, words: npt.NDArray[np.int64] | None = None) -> None:
        memory: Any = np.zeros(N_WORDS, np.int64) if words is None else words
        self._words = memoryview(memory)  # a quarter of the cost of numpy's item access

    def __reduce__(self) -> tuple[type[Pulse], tuple[()]]:
        return type(self), ()  # another process shows its own life, in memory of its own

    def beat(self) -> None:
        """One more call is done."""
        self._words[0] += 1

    def doing(self, what: Doing, env_id: int = -1) -> None:
        """Say what begins now, for which environment (-1: for all); also a beat."""
        self._words[1] = what
        self._words[2] = env_id
        self._words[0] += 1

    @property
    def n_beats(self) -> int:
        """Calls so far."""
        return int(self._words[0])

    @property
    def is_starting(self) -> bool:
        """Whether the process still loads itself."""
        return int(self._words[1]) == Doing.START

    def describe(self) -> str:
        """What it is doing in words: ``reset of env 3``."""
        what, env_id = Doing(int(self._words[1])), int(self._words[2])
        if env_id < 0:
            return _WORDS[what]
        return f"{_WORDS[what]} {env_id}" if what == Doing.BUILD else f"{_WORDS[what]} of env {env_id}"
