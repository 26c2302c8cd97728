"""Settings of the replay, and what they cost. Imports neither torch nor numpy before a method needs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlcli.core.errors import ConfigError
from rlcli.core.options import option

if TYPE_CHECKING:
    from rlcli.core.spec import EnvSpec
    from rlcli.replay.replay import Replay


@dataclass
class UniformReplayConfig:
    """Replay that draws every stored transition with the same probability."""

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
        from rlcli.replay.layout import row_bytes, rows_for

        return rows_for(self.size, spec, n_envs) * n_envs * row_bytes(spec)

    def log_bytes(self, spec: EnvSpec, n_envs: int) -> int:
        """Bytes on disk of one save of a full replay: its rows, and the older ones that share a file with the oldest.

        Each save but the first also writes one row (of all environments) again; saves of few rows each come to more.
        """
        from rlcli.replay.layout import row_bytes
        from rlcli.replay.log import SEGMENT_BYTES

        return self.memory_bytes(spec, n_envs) + SEGMENT_BYTES + n_envs * row_bytes(spec)

    def memory_problems(self, spec: EnvSpec, n_envs: int) -> list[str]:
        """Why the replay cannot fit, with both numbers and the largest size that fits; empty if it can."""
        from rlcli.replay.layout import row_bytes, size_of

        if self.memory_map_dir is not None and (line := _folder_problem(self.memory_map_dir)):
            return [line]
        needed, limit = self.memory_bytes(spec, n_envs), self._limit_bytes()
        if needed <= limit:
            return []
        fits = size_of(limit // (n_envs * row_bytes(spec)), spec, n_envs)
        remedy = f"the largest size that fits is {fits:_}" if fits else "not even the smallest size fits"
        return [f"size: {self.size:_} transitions need {needed / 1e9:,.1f} GB of {self._place(limit)}; {remedy}"]

    def describe(self, spec: EnvSpec, n_envs: int) -> str:
        """One line: how much is stored, how large, of how much."""
        from rlcli.replay.layout import row_bytes

        total = _readable(self.memory_bytes(spec, n_envs))
        return (
            f"replay: {self.size:,} transitions x {_readable(row_bytes(spec))} = {total} of "
            f"{self._place(self._limit_bytes())}"
        )

    def build(self, spec: EnvSpec, n_envs: int, *, seed: int, discount: float, n_step: int) -> Replay:
        """An empty replay.

        Args:
            spec: The environment's, for shapes and dtypes.
            n_envs: B of the samples to come.
            seed: Run seed.
            discount: Per step, in [0, 1].
            n_step: Longest window of a transition, at least 1.

        Raises:
            ConfigError: if it does not fit, or is too small to hold one window.
        """
        from rlcli.core.rng import Purpose, generator
        from rlcli.replay.frames import Frames, Whole
        from rlcli.replay.layout import example_row, frames_apart, rows_for
        from rlcli.replay.replay import Replay
        from rlcli.replay.ring import Ring
        from rlcli.replay.selectors import Uniform
        from rlcli.replay.storage import InMemory, OnDisk
        from rlcli.replay.views import NStep

        if problems := self.memory_problems(spec, n_envs) or self._window_problems(n_envs, n_step):
            raise ConfigError([f"replay.{line}" for line in problems])
        k = frames_apart(spec)
        storage = InMemory() if self.memory_map_dir is None else OnDisk(self.memory_map_dir)
        return Replay(
            ring=Ring(example_row(spec), rows_for(self.size, spec, n_envs), n_envs, storage),
            observations=Whole() if k == 1 else Frames(k, n_envs),
            selector=Uniform(generator(seed, Purpose.REPLAY)),
            view=NStep(n_step, discount),
            storage=storage,
        )

    def _window_problems(self, n_envs: int, n_step: int) -> list[str]:
        if -(-self.size // n_envs) > n_step:
            return []
        least = n_step * n_envs + 1
        return [f"size: {self.size:_} holds no {n_step}-step window of {n_envs} environments, must be >= {least:_}"]

    def _limit_bytes(self) -> int:
        from rlcli.core import machine

        return machine.available_memory() if self.memory_map_dir is None else machine.free_space(self.memory_map_dir)

    def _place(self, limit: int) -> str:
        where = "free RAM" if self.memory_map_dir is None else f"free disk in {self.memory_map_dir}"
        return f"{limit / 1e9:,.1f} GB {where}"


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
