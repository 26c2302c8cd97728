"""Checkpoints: everything that a run needs to go on exactly, in a folder that is never half there."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rlcli.core.errors import SnapshotError
from rlcli.record.tree_file import read_tree, write_tree

FORMAT = 1
"""Version of a checkpoint's content; a reader refuses any other."""
FOLDER = "checkpoint"
KEPT = 2

_STATE, _REPLAY, _CSV, _MANIFEST = "state.tree", "replay.tree", "progress.csv", "manifest.json"
_REPLAY_FOLDER = "replay"
_NAME = re.compile(r"\d{12,}")
_TEMPORARY = ".new-"


class Replay(Protocol):
    """What a checkpoint asks of a replay; see `core.protocols.ReplayLog`."""

    def save(self, folder: Path) -> Any:
        """Append what is new."""

    def prune(self, folder: Path, states: Sequence[Any]) -> None:
        """Delete what no state needs."""


@dataclass(frozen=True, slots=True)
class Written:
    """What writing one checkpoint cost."""

    n_bytes: int
    """Bytes of all checkpoints on the disk, replay included."""
    seconds: float


class Checkpoints:
    """The checkpoints of one run; the last two are kept.

    ``checkpoint/<env steps>/`` holds one, ``checkpoint/replay/`` the files of the replay that they share. A checkpoint
    is written beside them under another name and renamed when it is whole and on the disk.

    Args:
        run_folder: The run folder.
        replay: The algorithm's replay, None if there is none or if it is not to be saved.
    """

    def __init__(self, run_folder: Path, replay: Replay | None) -> None:
        self._run_folder, self._folder, self._replay = run_folder, run_folder / FOLDER, replay
        self._replay_states: dict[str, Any] = {}
        self._abandoned: set[str] = set()
        """Newer than the one that the run went on from: they could not be loaded."""

    def save(self, step: int, state: Mapping[str, Any]) -> Written:
        """Write a checkpoint, and remove those that are older than the last two.

        Args:
            step: Env steps done.
            state: A plain tree.

        Raises:
            SnapshotError: The file system refuses; the older checkpoints stay whole.
        """
        begin = time.perf_counter()
        name = f"{step:012d}"
        new = self._folder / f"{_TEMPORARY}{name}"
        try:
            self._folder.mkdir(exist_ok=True)
            if self._replay is not None:
                (self._folder / _REPLAY_FOLDER).mkdir(exist_ok=True)
                self._replay_states[name] = self._replay.save(self._folder / _REPLAY_FOLDER)
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            self._fill(new, step, state, self._replay_states.get(name))
            self._put_in_place(new, self._folder / name)
            self._abandoned.discard(name)
            self._remove_older()
        except (OSError, SnapshotError) as error:
            shutil.rmtree(new, ignore_errors=True)
            if isinstance(error, SnapshotError):
                raise
            raise SnapshotError(
                f"{self._folder / name}: checkpoint not written: {error.strerror or error}; the one before it stays"
            ) from error
        return Written(_size(self._folder), time.perf_counter() - begin)

    def note_loaded(self, loaded: Loaded) -> None:
        """Go on from a checkpoint: what it needs of the replay's files is kept as long as it is."""
        for path in complete(self._run_folder):
            if path.name > loaded.path.name:
                self._abandoned.add(path.name)
            else:
                with suppress(SnapshotError):  # an older one that is damaged needs nothing any more
                    self._replay_states[path.name] = read_tree(path / _REPLAY)

    def _fill(self, folder: Path, step: int, state: Mapping[str, Any], replay_state: Any) -> None:
        write_tree(folder / _STATE, state)
        write_tree(folder / _REPLAY, replay_state)
        rows = (self._run_folder / _CSV).read_bytes() if (self._run_folder / _CSV).exists() else b""
        _write(folder / _CSV, rows)
        files = {name: (folder / name).stat().st_size for name in (_STATE, _REPLAY, _CSV)}
        manifest = {"format": FORMAT, "step": step, "files": files, "crc32": {_CSV: zlib.crc32(rows)}}
        _write(folder / _MANIFEST, json.dumps(manifest, indent=2).encode())

    def _put_in_place(self, new: Path, final: Path) -> None:
        _sync(new)
        shutil.rmtree(final, ignore_errors=True)  # one that could not be loaded: the run went on from an older one
        new.rename(final)
        _sync(self._folder)

    def _remove_older(self) -> None:
        kept = [path.name for path in complete(self._run_folder) if path.name not in self._abandoned][:KEPT]
        for path in self._folder.iterdir():
            if path.is_dir() and path.name != _REPLAY_FOLDER and path.name not in kept:
                doomed = path.rename(self._folder / f"{_TEMPORARY}{path.name}") if _NAME.fullmatch(path.name) else path
                shutil.rmtree(doomed, ignore_errors=True)
        self._replay_states = {name: state for name, state in self._replay_states.items() if name in kept}
        if self._replay is not None:
            states = [state for state in self._replay_states.values() if state is not None]
            self._replay.prune(self._folder / _REPLAY_FOLDER, states)


@dataclass(frozen=True)
class Loaded:
    """The content of a checkpoint."""

    path: Path
    step: int
    state: Mapping[str, Any]
    replay_state: Any
    """None if the run has no replay, or does not save it."""
    rows: str
    """progress.csv as it was."""

    @property
    def replay_folder(self) -> Path:
        """Where the files of the replay are."""
        return self.path.parent / _REPLAY_FOLDER


def complete(run_folder: Path) -> list[Path]:
    """The checkpoints of a run, newest first; those that were not finished are not among them."""
    folder = run_folder / FOLDER
    names = (
        sorted((p.name for p in folder.iterdir() if _NAME.fullmatch(p.name)), reverse=True) if folder.is_dir() else []
    )
    return [folder / name for name in names]


def newest_first(run_folder: Path, say: Callable[[str], None]) -> Iterator[Loaded]:
    """The checkpoints of a run that can be read, newest first.

    Args:
        run_folder: The run folder.
        say: Takes a line for each that cannot be read.
    """
    for path in complete(run_folder):
        try:
            loaded = read_checkpoint(path)
        except SnapshotError as error:
            say(f"checkpoint left out: {error}")
        else:
            yield loaded


def read_checkpoint(path: Path) -> Loaded:
    """The content of one checkpoint but for the replay's files; runs no code that it may hold.

    Raises:
        SnapshotError: It is damaged, or of another format; one line.
    """
    try:
        manifest = json.loads((path / _MANIFEST).read_bytes())
        number, step = manifest["format"], manifest["step"]
        if number != FORMAT:
            raise SnapshotError(f"{path}: has format {number!r}, this rlcli reads format {FORMAT}")
        if f"{step:012d}" != path.name:
            raise SnapshotError(f"{path / _MANIFEST}: damaged: it says step {step!r}")
        sizes, rows = manifest["files"], (path / _CSV).read_bytes()
        for name, size in sizes.items():
            if (got := (path / name).stat().st_size) != size:
                raise SnapshotError(f"{path / name}: damaged: {got:,} bytes of {size:,}")
        if zlib.crc32(rows) != manifest["crc32"][_CSV]:
            raise SnapshotError(f"{path / _CSV}: damaged: it does not match its checksum")
        return Loaded(path, step, read_tree(path / _STATE), read_tree(path / _REPLAY), rows.decode())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SnapshotError(f"{path}: damaged: {type(error).__name__}: {error}") from error


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    if not hasattr(os, "O_DIRECTORY"):  # elsewhere a folder cannot be opened, and renames need no help
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
