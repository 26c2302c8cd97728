"""How many no-ops start an Atari game: the draws of ale_py's C++ env, on every platform."""

from __future__ import annotations

import numpy as np


class StartNoops:
    """The stream of uniform integers that ale_py's AtariVectorEnv draws one of at each reset.

    There it is a ``std::mt19937``, seeded with the emulator's seed at a seeded reset and going on at the others,
    under ``std::uniform_int_distribution``, whose algorithm each C++ standard library chooses for itself. This is
    libstdc++'s of GCC 11 and later, which ale_py's Linux wheels have: Lemire's nearly divisionless method
    (arXiv:1805.10941, algorithm 5).

    Args:
        seed: Below 2**32.
    """

    def __init__(self, seed: int) -> None:
        self._words = np.random.RandomState(seed)  # seeds the Mersenne twister as std::mt19937 does

    def draw(self, most: int) -> int:
        """The next integer, uniform over 0 .. ``most`` (below 2**32 - 1)."""
        n = most + 1
        product = self._word() * n
        while product % 2**32 < 2**32 % n:
            product = self._word() * n
        return product >> 32

    def _word(self) -> int:
        """32 random bits."""
        return int(self._words.randint(2**32, dtype=np.uint32))
