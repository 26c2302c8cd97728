"""Settings of the replay, and what they cost. Imports neither torch nor numpy before a method needs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlcli.core.options import option
from rlcli.replay.build import prioritized, refuse_unfit, storage_for, store_for, transitions

if TYPE_CHECKING:
    from rlcli.core.spec import EnvSpec
    from rlcli.core.tree import Tree
    from rlcli.replay.replay import Replay
    from rlcli.replay.selectors import Selector
    from rlcli.replay.sequences import SequenceReplay, Sequences
    from rlcli.replay.states import NoStates, States
    from rlcli.replay.storage import InMemory, OnDisk


@dataclass
class StorageOptions:
    """What every replay's config begins with: how much is stored, and where."""

    draws: ClassVar[str] = "transitions"
    """What its batches are made of: transitions or sequences."""

    size: int = option(
        250_000,
        "Transitions stored over all environments. Mnih et al. 2015 have 1_000_000, which is 7 GB of Atari frames.",
        ge=1,
    )
    memory_map_dir: str | None = option(
        None,
        "Folder on whose disk the transitions are stored; null keeps them in memory. Freed at the end.",
        at_resume="free",
    )

    def memory_bytes(self, spec: EnvSpec, n_envs: int) -> int:
        """Bytes that the stored transitions take once the replay is full."""
        from rlcli.replay.layout import rows_for

        return rows_for(self.size, spec, n_envs) * n_envs * self._row_bytes(spec)

    def log_bytes(self, spec: EnvSpec, n_envs: int) -> int:
        """Bytes on disk of one save of a full replay: its rows, and the older ones that share a file with the oldest.

        Each save but the first also writes one row (of all environments) again; saves of few rows each come to more.
        """
        from rlcli.replay.layout import row_bytes
        from rlcli.replay.log import SEGMENT_BYTES

        return self.memory_bytes(spec, n_envs) + SEGMENT_BYTES + n_envs * row_bytes(spec)

    def memory_problems(self, spec: EnvSpec, n_envs: int, more_row_bytes: int = 0) -> list[str]:
        """Why the replay cannot fit, with both numbers and the largest size that fits; empty if it can.

        Args:
            spec: The environment's.
            n_envs: B.
            more_row_bytes: Bytes for one row of one environment that only the agent can tell.
        """
        from rlcli.replay.layout import rows_for, size_of

        if self.memory_map_dir is not None and (line := _folder_problem(self.memory_map_dir)):
            return [line]
        row_bytes, limit = self._row_bytes(spec) + more_row_bytes, self._limit_bytes()
        needed = rows_for(self.size, spec, n_envs) * n_envs * row_bytes
        if needed <= limit:
            return []
        fits = size_of(limit // (n_envs * row_bytes), spec, n_envs)
        remedy = f"the largest size that fits is {fits:_}" if fits else "not even the smallest size fits"
        return [f"size: {self.size:_} transitions need {needed / 1e9:,.1f} GB of {self._place(limit)}; {remedy}"]

    def describe(self, spec: EnvSpec, n_envs: int) -> str:
        """One line: how much is stored, how large, of how much."""
        total = _readable(self.memory_bytes(spec, n_envs))
        return (
            f"replay: {self.size:,} transitions x {_readable(self._row_bytes(spec))} = {total} of "
            f"{self._place(self._limit_bytes())}"
        )

    def _row_bytes(self, spec: EnvSpec) -> int:
        """Bytes for one row of one environment, those of the selector included."""
        from rlcli.replay.layout import row_bytes

        return row_bytes(spec)

    def _limit_bytes(self) -> int:
        from rlcli.core import machine

        return machine.available_memory() if self.memory_map_dir is None else machine.free_space(self.memory_map_dir)

    def _place(self, limit: int) -> str:
        where = "free RAM" if self.memory_map_dir is None else f"free disk in {self.memory_map_dir}"
        return f"{limit / 1e9:,.1f} GB {where}"


@dataclass
class UniformReplayConfig(StorageOptions):
    """Replay that draws every stored transition with the same probability."""

    def build(
        self, spec: EnvSpec, n_envs: int, *, seed: int, discount: float, n_step: int, n_steps: int | None = None
    ) -> Replay:
        """See `BuildsReplay`."""
        from rlcli.core.rng import Purpose, generator
        from rlcli.replay.selectors import Uniform

        refuse_unfit(self, spec, n_envs, n_step, f"{n_step}-step window")
        return transitions(self, spec, n_envs, Uniform(generator(seed, Purpose.REPLAY)), discount, n_step)


@dataclass
class PrioritizedReplayConfig(StorageOptions):
    """Replay that draws transitions the more often the larger their TD error was (Schaul et al. 2016)."""

    alpha: float = option(
        0.6, "How much priorities count in the draw; 0: not at all (Schaul 2016, table 3, proportional).", ge=0, le=1
    )
    beta: float = option(
        0.4,
        "Exponent of the importance weights at the start; 1 takes back all of the bias (Schaul 2016, table 3).",
        ge=0,
        le=1,
        at_resume="warned",
    )
    beta_final: float = option(
        1.0, "Exponent at `beta_steps` and from there on (Schaul 2016, section 3.4).", ge=0, le=1, at_resume="warned"
    )
    beta_steps: int | None = option(
        None, "Env steps over which the exponent moves, in a line; null: `n_steps`.", ge=0, at_resume="warned"
    )
    priority_eps: float = option(
        1e-6, "Added to each priority, so that nothing is left out for ever (OpenAI Baselines).", gt=0
    )
    unique: bool = option(
        False, "Whether a batch holds no transition twice; Schaul 2016 draws with replacement.", at_resume="warned"
    )

    def build(
        self, spec: EnvSpec, n_envs: int, *, seed: int, discount: float, n_step: int, n_steps: int | None = None
    ) -> Replay:
        """See `BuildsReplay`."""
        refuse_unfit(self, spec, n_envs, n_step, f"{n_step}-step window")
        selector = prioritized(self, spec, n_envs, seed, n_steps, unique=self.unique)
        return transitions(self, spec, n_envs, selector, discount, n_step)

    def _row_bytes(self, spec: EnvSpec) -> int:
        from rlcli.replay.layout import row_bytes
        from rlcli.replay.sum_tree import SumTree

        return row_bytes(spec) + SumTree.bytes_for(1)


@dataclass
class SequenceReplayConfig(StorageOptions):
    """Replay that draws sequences for a recurrent learner (R2D1, after Kapturowski et al. 2019)."""

    draws: ClassVar[str] = "sequences"

    burn_in_T: int = option(
        40,
        "Rows before the trained ones, which only bring the recurrent state up to date (Kapturowski 2019, section 3).",
        ge=0,
    )
    train_T: int = option(80, "Trained rows of a sequence (Kapturowski 2019, section 2.3).", ge=1)
    state_interval: int = option(
        40,
        "Rows between two stored recurrent states, where sequences begin (Kapturowski 2019: they overlap by 40); 0: "
        "none is stored, sequences begin anywhere with the state of an episode's start.",
        ge=0,
    )
    prioritized: bool = option(True, "Whether sequences with large TD errors are drawn more often (Kapturowski 2019).")
    alpha: float = option(
        0.9, "How much priorities count in the draw; 0: not at all (Kapturowski 2019, table 2).", ge=0, le=1
    )
    beta: float = option(
        0.6,
        "Exponent of the importance weights at the start (Kapturowski 2019, table 2).",
        ge=0,
        le=1,
        at_resume="warned",
    )
    beta_final: float = option(
        0.6, "Exponent at `beta_steps` and from there on (Kapturowski 2019: constant).", ge=0, le=1, at_resume="warned"
    )
    beta_steps: int | None = option(
        None, "Env steps over which the exponent moves, in a line; null: `n_steps`.", ge=0, at_resume="warned"
    )
    eta: float = option(
        0.9,
        "Share of the largest TD error in a sequence's priority, the rest is of the mean (Kapturowski 2019).",
        ge=0,
        le=1,
    )
    priority_eps: float = option(
        1e-6, "Added to each priority, so that nothing is left out for ever (OpenAI Baselines).", gt=0
    )

    def build(
        self,
        spec: EnvSpec,
        n_envs: int,
        *,
        seed: int,
        discount: float,
        n_step: int,
        n_steps: int | None = None,
        state: Tree = None,
    ) -> SequenceReplay:
        """See `BuildsReplay`; ``state`` is the agent's initial one, tensors [any number, ...], None if it has none."""
        import numpy as np

        from rlcli.replay.sequences import PRIORITY, SequenceReplay, Sequences
        from rlcli.replay.states import example_of, state_bytes

        example, every = example_of(state), max(1, self.state_interval)
        more_bytes = -(-state_bytes(example) // every) if self.state_interval else 0
        n_rows = self.burn_in_T + self.train_T + n_step
        refuse_unfit(self, spec, n_envs, n_rows + every - 1, f"{n_rows}-row sequence", more_bytes)
        view = Sequences(self.burn_in_T, self.train_T, n_step, every, self.eta if self.prioritized else None)
        storage = storage_for(self)
        states = self._states(spec, n_envs, example, storage)
        more = {PRIORITY: np.zeros((), np.float32)} if self.prioritized else {}
        store = store_for(self, spec, n_envs, storage, states, more)
        return SequenceReplay(store, self._selector(spec, n_envs, seed, n_steps, view), view)

    def _states(self, spec: EnvSpec, n_envs: int, example: Tree, storage: InMemory | OnDisk) -> States | NoStates:
        from rlcli.replay.layout import rows_for
        from rlcli.replay.states import NoStates, States

        if example is None or not self.state_interval:
            return NoStates(example)
        return States(example, self.state_interval, rows_for(self.size, spec, n_envs), n_envs, storage)

    def _selector(self, spec: EnvSpec, n_envs: int, seed: int, n_steps: int | None, view: Sequences) -> Selector:
        from rlcli.core.rng import Purpose, generator
        from rlcli.replay.selectors import Uniform

        every = max(1, self.state_interval)
        if not self.prioritized:
            return Uniform(generator(seed, Purpose.REPLAY), every)
        return prioritized(self, spec, n_envs, seed, n_steps, unique=False, every=every, initial=view.initial_priority)

    def _row_bytes(self, spec: EnvSpec) -> int:
        from rlcli.replay.layout import row_bytes
        from rlcli.replay.sum_tree import SumTree

        if not self.prioritized:
            return row_bytes(spec)
        return row_bytes(spec) + 4 + -(-SumTree.bytes_for(1) // max(1, self.state_interval))


def _folder_problem(folder: str) -> str:
    import os
    from pathlib import Path

    if Path(folder).is_dir() and os.access(folder, os.W_OK):
        return ""
    return f"memory_map_dir: {folder!r} is not a folder that can be written to"


def _readable(n_bytes: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:,.1f} {unit}"
    return f"{n_bytes} B"
