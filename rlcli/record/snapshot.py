"""Snapshots: which are due, how they are written so that none is ever half there, and how they are read safely."""

from __future__ import annotations

import math
import os
import pickle
import zipfile
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcli.core.errors import SnapshotError
from rlcli.record.config import SNAPSHOT_MODES

__all__ = [
    "BEST_FILE",
    "FORMAT",
    "LAST_FILE",
    "SNAPSHOT_MODES",
    "Snapshots",
    "as_snapshot",
    "files_due",
    "read_content",
    "read_snapshot",
    "snapshot_state",
    "state_mismatches",
    "write_snapshot",
]

FORMAT = 1
"""Version of a snapshot's content; a reader refuses any other."""
LAST_FILE = "params.pkl"
BEST_FILE = "best.pkl"

_KEYS = ("format", "itr", "cum_steps", "agent_state_dict", "optimizer_state_dict", "algo_state_dict", "config")
_NAMED_MISMATCHES = 5
_OLD_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""How a file of torch before 1.6 begins: its magic number, pickled."""


def files_due(mode: str, gap: int, *, itr: int, row_number: int | None, final: bool) -> list[str]:
    """Names of the files to write now.

    Args:
        mode: One of SNAPSHOT_MODES.
        gap: Log rows between two files that are kept, for gap and last_gap.
        itr: Iterations done; part of the kept files' names.
        row_number: Which log row was just written, from 1; None if none was.
        final: Whether the run ends here.
    """
    is_row = row_number is not None
    is_gap_row = row_number is not None and row_number % gap == 0
    last = mode in ("last", "last_gap") and (is_row or final)
    kept = {
        "none": False,
        "last": False,
        "all": is_row or final,
        "gap": is_gap_row or final,
        "last_gap": is_gap_row,
    }[mode]
    return [LAST_FILE] * last + [f"itr_{itr}.pkl"] * kept


class Snapshots:
    """The snapshots of one run.

    Args:
        folder: The run folder.
        mode: One of SNAPSHOT_MODES.
        gap: Log rows between two files that are kept, at least 1.
        keep_best: Whether best.pkl holds the weights of the best evaluation.
    """

    def __init__(self, folder: Path, mode: str, gap: int, keep_best: bool = False) -> None:
        if mode not in SNAPSHOT_MODES:
            raise ValueError(f"mode {mode!r} must be one of {', '.join(SNAPSHOT_MODES)}")
        if gap < 1:
            raise ValueError(f"gap {gap} must be >= 1")
        self._folder, self._mode, self._gap = folder, mode, gap
        self._written: dict[str, int] = {}
        self._keep_best = keep_best
        self.best_score = -math.inf
        """The highest score that was saved so far."""

    def save_best(self, score: float, state_fn: Callable[[], dict[str, Any]]) -> Path | None:
        """Write best.pkl if no evaluation before had as high a score; nan is no score."""
        if not self._keep_best or not score > self.best_score:
            return None
        write_snapshot(self._folder / BEST_FILE, state_fn())
        self.best_score = score
        return self._folder / BEST_FILE

    def save(
        self, itr: int, state_fn: Callable[[], dict[str, Any]], *, row_number: int | None = None, final: bool = False
    ) -> list[Path]:
        """Write what is due, once: the end of a run that is also a log row writes no file twice.

        Args:
            itr: Iterations done.
            state_fn: Gives the content (`snapshot_state`); not called if nothing is due.
            row_number: Which log row was just written, from 1; None if none was.
            final: Whether the run ends here.

        Returns:
            The files written.

        Raises:
            SnapshotError: See `write_snapshot`.
        """
        due = files_due(self._mode, self._gap, itr=itr, row_number=row_number, final=final)
        names = [name for name in due if self._written.get(name) != itr]
        if not names:
            return []
        state = state_fn()
        for name in names:
            write_snapshot(self._folder / name, state)
            self._written[name] = itr
        return [self._folder / name for name in names]


def snapshot_state(
    *,
    itr: int,
    cum_steps: int,
    agent_state_dict: Mapping[str, Any],
    optimizer_state_dict: Mapping[str, Any],
    algo_state_dict: Mapping[str, Any],
    config: Mapping[str, Any],
) -> dict[str, Any]:
    """The content of a snapshot: copies on the CPU that nothing else changes, in plain containers.

    Args:
        itr: Iterations done.
        cum_steps: Env steps done.
        agent_state_dict: The agent's `state_dict`.
        optimizer_state_dict: The algorithm's `optimizer_state_dict`.
        algo_state_dict: The algorithm's `state_dict`.
        config: The whole config as nested dicts.

    Raises:
        TypeError: Something is neither a tensor, a number, text, None, nor a dict, list or tuple of them.
    """
    content = {
        "format": FORMAT,
        "itr": itr,
        "cum_steps": cum_steps,
        "agent_state_dict": agent_state_dict,
        "optimizer_state_dict": optimizer_state_dict,
        "algo_state_dict": algo_state_dict,
        "config": config,
    }
    return {key: _plain(value, key) for key, value in content.items()}


def write_snapshot(path: Path, state: Mapping[str, Any]) -> None:
    """Write a snapshot so that ``path`` holds the old file or the new one, whole, at any moment.

    Raises:
        SnapshotError: The agent's weights are not finite, or the file system refuses; the file that was there stays.
    """
    for name, tensor in _tensors(state["agent_state_dict"], "agent_state_dict"):
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise SnapshotError(f"{path}: not written: {name} holds values that are not finite (nan or inf)")
    # Serialized in memory first: torch's writer turns a full disk into errors of its own, plain writes do not.
    buffer = BytesIO()
    torch.save(dict(state), buffer)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(buffer.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise SnapshotError(f"{path}: not written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def read_snapshot(path: Path | str, device: str = "cpu") -> dict[str, Any]:
    """The content of a snapshot; never runs code that a file may hold.

    Args:
        path: A file that `write_snapshot` made.
        device: Where its tensors go.

    Raises:
        SnapshotError: There is no such file, or it is damaged, or no snapshot, or of another format; one line.
    """
    return as_snapshot(path, read_content(path, device))


def read_content(path: Path | str, device: str = "cpu") -> Any:
    """What any file of torch.save holds, if that is tensors and plain values; never runs code that a file may hold.

    Args:
        path: The file; it may be of the format that torch wrote before its version 1.6.
        device: Where its tensors go.

    Raises:
        SnapshotError: There is no such file, or it is damaged, or holds anything else; one line.
    """
    path = Path(path)
    if not path.is_file():
        raise SnapshotError(f"{path}: {'is a folder, not a snapshot' if path.is_dir() else 'no such file'}")
    if not _is_of_old_torch(path):
        _check_archive(path)
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except pickle.UnpicklingError:
        raise SnapshotError(f"{path}: holds more than tensors and plain values; reading it could run code") from None
    except Exception as error:  # torch raises many kinds, and the reader of the message needs none of them
        reason = (str(error).splitlines() or [""])[0][:200]
        raise SnapshotError(f"{path}: cannot be read: {type(error).__name__}: {reason}") from error


def as_snapshot(path: Path | str, content: Any) -> dict[str, Any]:
    """What `read_content` gave, if it is a whole snapshot.

    Raises:
        SnapshotError: It is no snapshot, or of another format; the line begins with ``path``.
    """
    if not isinstance(content, dict) or "format" not in content:
        raise SnapshotError(f"{path}: not a snapshot of rlcli: it names no format")
    if content["format"] != FORMAT:
        raise SnapshotError(f"{path}: has format {content['format']!r}, this rlcli reads format {FORMAT}")
    missing = [key for key in _KEYS if key not in content]
    if missing:
        raise SnapshotError(f"{path}: not a whole snapshot: {', '.join(missing)} missing")
    return dict(content)


def state_mismatches(expected: Mapping[str, Any], given: Mapping[str, Any], prefix: str = "") -> list[str]:
    """How a file's state dict differs from the one this run has: names and shapes, never values.

    Args:
        expected: The state dict of what is to be loaded into.
        given: The one from the file.
        prefix: Put before each name.

    Returns:
        One line for each of the first 5 differences, in the order of ``expected``, then ``and 7 more``; empty if
        they fit. An optimizer that has not stepped yet has no state to compare with.
    """
    found = list(_mismatches(expected, given, prefix))
    more = len(found) - _NAMED_MISMATCHES
    return found if more <= 0 else [*found[:_NAMED_MISMATCHES], f"and {more} more"]


def _mismatches(expected: Any, given: Any, name: str) -> Iterator[str]:
    branches, given_branches = _branches(expected), _branches(given)
    if branches is None or given_branches is None:
        if _describe(expected) != _describe(given):
            yield f"{name}: file has {_describe(given)}, this run needs {_describe(expected)}"
        return
    for key, value in branches.items():
        path = f"{name}.{key}" if name else str(key)
        if key in given_branches:
            yield from _mismatches(value, given_branches[key], path)
        else:
            yield f"{path}: missing in the file, this run needs {_describe(value)}"
    for key, value in given_branches.items():
        if key not in branches:
            yield f"{f'{name}.{key}' if name else key}: file has {_describe(value)}, this run has no such name"


def _branches(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, Mapping):
        return value
    return dict(enumerate(value)) if isinstance(value, list | tuple) else None


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return str(tuple(value.shape))
    branches = _branches(value)
    return "a number or text" if branches is None else f"a group of {len(branches)}"


def _plain(value: Any, path: str) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to("cpu").clone(memory_format=torch.contiguous_format)
    if isinstance(value, Mapping):
        return {_plain(k, path): _plain(v, f"{path}.{k}") for k, v in value.items()}
    if isinstance(value, list | tuple):
        items = [_plain(v, f"{path}.{i}") for i, v in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    return _plain_leaf(value, path)


def _plain_leaf(value: Any, path: str) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float):
        if isinstance(value, kind):  # also an IntEnum, which a reader without rlcli could not load
            return kind(value)
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{path}: a {type(value).__name__} does not belong into a snapshot, only tensors and plain values")


def _tensors(value: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield path, value
    for key, branch in (_branches(value) or {}).items():
        yield from _tensors(branch, f"{path}.{key}")


def _sync_folder(folder: Path) -> None:
    if not hasattr(os, "O_DIRECTORY"):  # elsewhere a folder cannot be opened, and renames need no help
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _is_of_old_torch(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_OLD_TORCH)) == _OLD_TORCH
    except OSError as error:
        raise SnapshotError(f"{path}: cannot be read: {error.strerror or error}") from error


def _check_archive(path: Path) -> None:
    """Refuse what is no whole zip archive, before torch sees it: torch does not check the checksums."""
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    # a damaged header can claim encryption or a compression that zipfile meets with the 3rd and 4th of these
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise SnapshotError(f"{path}: damaged, cut short or not a snapshot: {error}") from None
    if damaged is not None:
        raise SnapshotError(f"{path}: damaged: its part {damaged} does not match its checksum")
