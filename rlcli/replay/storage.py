"""Where the ring's arrays lie: in memory, or in files that vanish with the process."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rlcli.core import machine
from rlcli.core.errors import RlcliError


class InMemory:
    """Zeroed arrays; the system commits the pages as they are first written."""

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """A new array."""
        return np.zeros(shape, dtype)

    def close(self) -> None:
        """Nothing to free."""


class OnDisk:
    """Arrays mapped onto nameless temporary files, whose space is reserved at once.

    Nameless, so that no other process can meet them and no file outlives this process, however it ends; reserved,
    because a full disk met later, inside a write to the map, kills the process without a word.

    Args:
        folder: Where the files' space is taken.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._files: list[IO[bytes]] = []

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """A new array of zeros.

        Raises:
            RlcliError: if the folder is missing, not writable or has not enough space.
        """
        n_bytes = math.prod(shape) * dtype.itemsize
        try:
            file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - lives until close
            self._files.append(file)
            machine.reserve(file.fileno(), n_bytes)
        except OSError as error:
            self.close()
            raise RlcliError(f"memory_map_dir: {self._folder}: cannot take {n_bytes:,} bytes there: {error}") from error
        return np.asarray(np.memmap(file, dtype, mode="r+", shape=shape))

    def close(self) -> None:
        """Give the space back; safe to call twice. Arrays still in use keep theirs until they go."""
        while self._files:
            self._files.pop().close()
