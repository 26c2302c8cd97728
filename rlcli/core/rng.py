"""Random streams: each hangs on (run seed, purpose, global env id) and on nothing else.

(An environment that was lost with its worker begins again on streams of its next incarnation.)

So the numbers that an environment or its exploration sees do not depend on the number of workers, on the batch
sizes or on what else draws numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt


class Purpose(IntEnum):
    """What a stream is for. The numbers are part of what a seed means: never renumber them."""

    INIT = 0  # initial weights
    ENV = 1  # training environments
    EXPLORE = 2  # the uniforms handed to Agent.act
    DECORRELATE = 3  # random actions before the first batch
    REPLAY = 4  # which transitions are drawn
    EVAL_ENV = 5
    EVAL_EXPLORE = 6
    PROBE = 7  # the example step that fixes shapes and dtypes
    LEARN = 9  # noise inside the learner's updates
    CUT = 8  # from which run seed the environments begin anew at a checkpoint that cannot hold them


def seed_sequence(seed: int, purpose: Purpose, env_id: int = 0, incarnation: int = 0) -> np.random.SeedSequence:
    """The root of one stream.

    Args:
        seed: Run seed.
        purpose: What it is for.
        env_id: Global id.
        incarnation: How often the environment was lost with its worker and made anew.
    """
    key = (int(purpose), env_id, incarnation) if incarnation else (int(purpose), env_id)
    return np.random.SeedSequence(seed, spawn_key=key)


def cut_seed(seed: int, step: int) -> int:
    """The run seed from which all environments begin new episodes at a cut after ``step`` environment steps."""
    return integer_seed(seed, Purpose.CUT, step)


def generator(seed: int, purpose: Purpose, env_id: int = 0, incarnation: int = 0) -> np.random.Generator:
    """A numpy generator on one stream."""
    return np.random.Generator(np.random.PCG64(seed_sequence(seed, purpose, env_id, incarnation)))


def integer_seed(seed: int, purpose: Purpose, env_id: int = 0, incarnation: int = 0) -> int:
    """A seed below 2**31 for what takes plain integers (gymnasium's reset, ALE, torch)."""
    return int(seed_sequence(seed, purpose, env_id, incarnation).generate_state(1)[0] >> 1)


class UniformStreams:
    """One stream of uniforms in [0, 1) per environment.

    Args:
        seed: Run seed.
        purpose: EXPLORE or EVAL_EXPLORE.
        env_ids: Global ids, one stream each.
        width: Uniforms per environment and step.
        incarnation: See `seed_sequence`.
    """

    def __init__(self, seed: int, purpose: Purpose, env_ids: Sequence[int], width: int, incarnation: int = 0) -> None:
        self._generators = [generator(seed, purpose, i, incarnation) for i in env_ids]
        self._width = width

    def block(self, n_steps: int) -> npt.NDArray[np.float64]:
        """The next uniforms, [n_steps, B, width]; how the steps are cut into blocks changes nothing."""
        return np.stack([g.random((n_steps, self._width)) for g in self._generators], axis=1)

    def state(self) -> list[Any]:
        """[B] where each stream stands, plain."""
        return [dict(g.bit_generator.state) for g in self._generators]

    def load_state(self, states: Sequence[Any]) -> None:
        """Go on where `state` was taken."""
        for g, state in zip(self._generators, states, strict=True):
            g.bit_generator.state = state
