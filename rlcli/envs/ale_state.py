"""The whole state of an ALE emulator, the move that sticky actions repeat included.

ALE's own state holds the game and the random stream, but not the last move, which is executed again with the
probability ``repeat_action_probability`` in each frame. Nothing tells it, but it can be found out: the random stream
says for how many of the next frames it will be repeated. If for none, it does not matter. If for n, what those n
frames do hangs on it alone, and it is found by trying: a move that takes the emulator through the same states
in those n frames does the same for ever.
"""

from __future__ import annotations

import hashlib
import operator
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcli.core.errors import InexactError

_N_WORDS = 624
"""Of a Mersenne twister; libstdc++ writes them as decimal text, with the position of the next behind them."""
_LONGEST = 100_000
"""Frames; further repeats do not occur."""


def save(ale: Any) -> dict[str, Any]:
    """The state of an emulator with a game loaded; ``ale`` stands where it stood afterwards.

    Raises:
        InexactError: The last move cannot be found out.
    """
    state = ale.cloneState(include_rng=True).serialize()
    stream = _Stream.of(state) if _repeats(ale) else None
    n = 0 if stream is None else stream.n_repeats(_repeats(ale))
    if stream is None or not n:
        return {"state": state, "last_move": None}
    if ale.getInt("frame_skip") > 1:
        raise InexactError("the emulator skips frames by itself and has sticky actions")
    _set(ale, stream.always_repeating(state))
    wanted = list(_course(ale, n))
    for move in ale.getLegalActionSet():
        _put_move(ale, stream, state, move)
        _set(ale, stream.always_repeating(state))
        if all(map(operator.eq, _course(ale, n), wanted)):
            _set(ale, state)
            return {"state": state, "last_move": move.value}
    raise InexactError("the move that the emulator repeats cannot be found out")


def load(ale: Any, record: dict[str, Any]) -> None:
    """Put an emulator that has the same game loaded into a saved state."""
    state, move = record["state"], record["last_move"]
    if move is not None:
        stream = _Stream.of(state)
        assert stream is not None
        _put_move(ale, stream, state, sys.modules["ale_py"].Action(move))
    _set(ale, state)


@dataclass(frozen=True)
class _Stream:
    """The random stream inside a serialized state, where it lies as text."""

    start: int
    tokens: tuple[bytes, ...]

    @classmethod
    def of(cls, state: bytes) -> _Stream:
        """The stream of a state.

        Raises:
            InexactError: It is not written as libstdc++ writes it.
        """
        runs = list(re.finditer(rb"\d+(?: \d+){600,}", state))
        found = runs[-1] if runs else None  # the console has a stream too; the last is that of acting
        tokens = () if found is None else tuple(found[0].split(b" "))
        if found is None or len(tokens) != _N_WORDS + 1 or int(tokens[-1]) > _N_WORDS:
            raise InexactError("the emulator's random stream cannot be read on this system, and it has sticky actions")
        return cls(found.start(), tokens)

    def n_repeats(self, probability: float) -> int:
        """For how many frames the last move will be repeated: each frame draws for player A, then for B."""
        twister = np.random.MT19937()
        words = np.array([int(token) for token in self.tokens[:-1]], np.uint32)
        twister.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": int(self.tokens[-1])}}
        draws: npt.NDArray[np.float64] = twister.random_raw(2 * _LONGEST)[::2] / 2.0**32
        taken = np.flatnonzero(draws >= np.float32(probability))
        return int(taken[0]) if len(taken) else _LONGEST

    def always_repeating(self, state: bytes) -> bytes:
        """The state with a stream of zeros, under which every frame repeats the last move."""
        return self._with(state, {})

    def taking_next(self, state: bytes, probability: float) -> bytes:
        """The state with a stream under which the next frame takes the move that it is given."""
        # the one with the most digits: few small numbers stand for a large draw
        position = max(range(min(_N_WORDS, 10 ** len(self.tokens[-1]))), key=lambda i: len(self.tokens[i]))
        words = range(1, min(2**32, 10 ** len(self.tokens[position])), 104_729)
        word = next(word for word in words if _tempered(word) / 2.0**32 >= probability)
        return self._with(state, {position: word, _N_WORDS: position})

    def _with(self, state: bytes, numbers: dict[int, int]) -> bytes:
        """The text keeps its length: leading zeros count for nothing, and lengths stand elsewhere in the state."""
        tokens = [str(numbers.get(i, 0)).zfill(len(token)).encode() for i, token in enumerate(self.tokens)]
        if _N_WORDS not in numbers:
            tokens[-1] = self.tokens[-1]
        text = b" ".join(tokens)
        return state[: self.start] + text + state[self.start + len(text) :]


def _repeats(ale: Any) -> float:
    probability: float = ale.getFloat("repeat_action_probability")
    return probability


def _put_move(ale: Any, stream: _Stream, state: bytes, move: Any) -> None:
    """Make a move the last one."""
    _set(ale, stream.taking_next(state, _repeats(ale)))
    ale.act(move)


def _course(ale: Any, n_frames: int) -> Iterator[bytes]:
    """What the emulator is after each of some frames, as hashes; what is seen in between is to be the same, too."""
    noop = sys.modules["ale_py"].Action.NOOP
    for _ in range(n_frames):
        ale.act(noop)
        yield hashlib.sha256(ale.cloneState(include_rng=False).serialize()).digest()


def _set(ale: Any, state: bytes) -> None:
    ale.restoreState(sys.modules["ale_py"].ALEState(state))


def _tempered(word: int) -> int:
    """What a Mersenne twister gives out for a word of its state."""
    word ^= word >> 11
    word ^= (word << 7) & 0x9D2C5680
    word ^= (word << 15) & 0xEFC60000
    return (word ^ (word >> 18)) & 0xFFFFFFFF
