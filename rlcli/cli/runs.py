"""Finding the run that a user means: by path, by name, or the newest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rlcli.core.errors import ConfigError, did_you_mean
from rlcli.record.folder import LOG_FILE, safe_name

LAST = "last"
"""Means the newest run below runs/."""

_INSIDE_A_RUN = ("checkpoint", "videos", "tensorboard")
"""Folders of a run that hold no runs; they may hold many files."""


def find_run(text: str | os.PathLike[str], base: Path | None = None) -> Path:
    """The run folder that ``text`` means.

    In this order: ``last``, the newest run below ``runs/``; a path of a run folder, or of a folder with runs below
    it, of which the newest is taken; a name, as in ``runs/<name>/``, the newest run below it; the name of a run folder
    itself, as ``20261130_101010_s0``.

    Args:
        text: What the user wrote; nothing in it is special.
        base: Where relative paths and ``runs/`` begin; None for the current folder.

    Returns:
        Absolute path.

    Raises:
        ConfigError: There is no such run, or several folders have this name; says what was looked for, and where.
    """
    text, base = os.fspath(text), Path.cwd() if base is None else base.absolute()
    runs = base / "runs"
    if not text.strip():
        raise ConfigError("run: needs a run folder, the name of a run, or 'last'")
    if text == LAST:
        return _newest_below(runs, f"run: there is no run below {runs}")
    given = base / Path(text).expanduser()
    for place in (given, runs / text, runs / safe_name(text)):
        if place.is_dir() and _holds_run(place):
            return place.absolute() if is_run(place) else _newest_below(place, "")
    named = [run for run in _runs_below(runs) if run.name == text]
    if len(named) > 1:
        raise ConfigError([f"run: {len(named)} runs are called {text!r}, give one's path:", *map(str, named)])
    if named:
        return named[0]
    raise ConfigError(_not_found(text, given, runs))


def is_run(folder: Path) -> bool:
    """Whether ``folder`` is that of a run."""
    return (folder / "config.yaml").is_file() and (folder / LOG_FILE).is_file()


def starting_folders(run: Path) -> list[Path]:
    """The folder in which a run was started, where its own modules were found; empty if it is not known any more."""
    try:
        lines = (run / "command.txt").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []
    return [Path(lines[1])] if len(lines) > 1 and Path(lines[1]).is_dir() else []


def last_sign_of_life(run: Path) -> float:
    """When the run last wrote a line or a row, seconds since 1970."""
    files = (run / LOG_FILE, run / "progress.csv")
    return max((file.stat().st_mtime for file in files if file.is_file()), default=0.0)


def _holds_run(folder: Path) -> bool:
    return next(_runs_below(folder), None) is not None


def _runs_below(folder: Path) -> Iterator[Path]:
    """Run folders at and below ``folder``, in the order of their paths."""
    for place, inner, _ in os.walk(folder):
        inner[:] = sorted(name for name in inner if name not in _INSIDE_A_RUN and not name.startswith("."))
        if is_run(Path(place)):
            yield Path(place).absolute()


def _newest_below(folder: Path, problem: str) -> Path:
    runs = list(_runs_below(folder))
    if not runs:
        raise ConfigError(problem)
    return max(runs, key=lambda run: (last_sign_of_life(run), str(run)))


def _not_found(text: str, given: Path, runs: Path) -> str:
    if given.is_file():
        return f"run: {text!r} is a file; a run is a folder with config.yaml and {LOG_FILE}"
    if given.is_dir():
        return f"run: {given} is no run folder (it has no config.yaml and {LOG_FILE}), and there is none below it"
    known = [run.relative_to(runs) for run in _runs_below(runs)]
    names = {str(part) for path in known for part in (path, *path.parents, path.name) if str(part) != "."}
    near = did_you_mean(text, [LAST, *sorted(names)])
    return f"run: there is no {text!r}; looked for the folder {given} and for the name below {runs}{near}"
