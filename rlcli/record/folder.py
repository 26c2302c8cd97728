"""The folder of one run: made so that two runs never share one."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from pathlib import Path

from rlcli.core.errors import ConfigError

LOG_FILE = "debug.log"
"""All console lines; its creation is what claims a folder."""

_MAX_NAME = 100  # characters; file systems allow 255 bytes, and people paste the path


def safe_name(name: str) -> str:
    """``name`` as one folder name: letters, digits and ``._+=,-``, not hidden, no option, never empty."""
    return re.sub(r"[^A-Za-z0-9._+=,-]+", "_", name).strip("_").lstrip(".-_")[:_MAX_NAME] or "run"


def create_run_folder(*, run_dir: str | None, name: str, seed: int, now: datetime | None = None) -> Path:
    """Make the folder of a run.

    The folder holds an empty debug.log afterwards: creating that file exclusively is what claims the folder, also
    among processes that start at the same moment.

    Args:
        run_dir: The folder itself; None for ``runs/<name>/<date>_<time>_s<seed>[_k]`` in the current folder, where
            ``_1``, ``_2`` ... is appended if the name is taken.
        name: Name of the run; characters that do not belong into a folder name become ``_``.
        seed: The run's seed.
        now: Local time of the start; None for the clock's.

    Returns:
        Absolute path of the new folder.

    Raises:
        ConfigError: ``run_dir`` is taken, or the folder cannot be made.
    """
    try:
        if run_dir is not None:
            return _claim_given(run_dir)
        return _claim_new(Path.cwd() / "runs" / safe_name(name), f"{now or datetime.now():%Y%m%d_%H%M%S}_s{seed}")
    except OSError as error:
        raise ConfigError(f"run_dir: cannot make the run folder: {error.strerror or error}: {error.filename}") from None


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold a run folder, so that no second process goes on with the run while this one writes to it.

    The system lets go of it when the process ends, however it does. Does nothing where files cannot be locked.

    Raises:
        ConfigError: Another process holds it.
    """
    try:
        log = (folder / LOG_FILE).open("a")
    except OSError as error:
        raise ConfigError(f"run: {folder} cannot be written to: {error.strerror or error}: {error.filename}") from None
    with log:
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(f"run: {folder} is being written by another process that still runs") from None
            except OSError:  # a file system without locks
                pass
        yield


def _claim_new(parent: Path, stem: str) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    for k in count():
        folder = parent / (f"{stem}_{k}" if k else stem)
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        (folder / LOG_FILE).touch(exist_ok=False)
        return folder
    raise AssertionError("count() ends never")


def _claim_given(run_dir: str) -> Path:
    if not run_dir.strip():
        raise ConfigError(f"run_dir: {run_dir!r} is no path; leave it out or give null for a folder below runs/")
    folder = Path(run_dir).expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"run_dir: {folder} is a file, must be a folder that is empty or does not exist")
    folder.mkdir(parents=True, exist_ok=True)
    taken = f"run_dir: {folder} is not empty, must be a folder that is empty or does not exist"
    if any(folder.iterdir()):
        raise ConfigError(taken)
    try:
        (folder / LOG_FILE).touch(exist_ok=False)
    except FileExistsError:
        raise ConfigError(taken) from None
    return folder
