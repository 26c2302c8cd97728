"""A run that goes on from a checkpoint: which one, and putting what it holds into freshly built parts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcli.core.errors import ConfigError, SnapshotError

if TYPE_CHECKING:
    from rlcli.core.protocols import Agent, Algo
    from rlcli.record.checkpoint import Loaded

HISTORY = "resumes.jsonl"
"""In the run folder: a line for each time that the run was resumed."""


@dataclass(frozen=True)
class GoingOn:
    """What `rlcli resume` found out before anything is built."""

    folder: Path
    checkpoints: Callable[[Callable[[str], None]], Iterator[Loaded]]
    """Those that can be read, newest first; takes where to say which cannot."""
    has_any: bool
    """Whether the run has a checkpoint at all, be it damaged."""
    notes: tuple[str, ...]
    """Lines for the user."""
    changes: Mapping[str, tuple[Any, Any]]
    """Key -> old and new value."""


Build = Callable[[], "tuple[Agent, Algo]"]


def load_newest(going_on: GoingOn, build: Build, notes: list[str]) -> tuple[Agent, Algo, Loaded | None]:
    """Agent and algorithm as the newest checkpoint has them that can be loaded whole, replay included.

    Args:
        going_on: Whose checkpoints.
        build: Makes both anew, for each that is tried.
        notes: Gets a line for each that was left out.

    Returns:
        Both, and the checkpoint; None if the run had not come to its first one.

    Raises:
        ConfigError: There are checkpoints, but none can be loaded, or they do not fit what was built.
    """
    left_out: list[str] = []
    for loaded in going_on.checkpoints(left_out.append):
        agent, algo = build()
        try:
            _put(loaded, agent, algo)
        except SnapshotError as error:
            algo.close()
            left_out.append(f"checkpoint left out: {error}")
        except BaseException:
            algo.close()
            raise
        else:
            notes += left_out
            return agent, algo, loaded
    if going_on.has_any:
        folder = going_on.folder
        raise ConfigError([f"run: {folder} has no checkpoint that can be loaded", *left_out, other_way(folder)])
    notes.append("the run had not come to its first checkpoint: it begins again")
    return *build(), None


def note_in_history(folder: Path, going_on: GoingOn, step: int, argv: Sequence[str]) -> None:
    """Append to the run's history: when, from where, with what changed."""
    entry = {
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
        "from_step": step,
        "command": list(argv),
        "folder": str(Path.cwd()),
        "changes": {key: list(values) for key, values in going_on.changes.items()},
    }
    line = json.dumps(entry) + "\n"
    try:
        with (folder / HISTORY).open("a", encoding="utf-8", newline="\n") as file:
            file.write(line)
    except OSError as error:
        raise SnapshotError(f"{folder / HISTORY}: not written: {error.strerror or error}") from error


def tidy_up(folder: Path) -> None:
    """Remove what a killed run left half-written beside its files."""
    for left in folder.glob(".*.tmp"):
        with suppress(OSError):
            left.unlink()


def read_history(folder: Path) -> list[dict[str, Any]]:
    """What `note_in_history` wrote, in order; a line cut short is left out."""
    path, found = folder / HISTORY, []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def _put(loaded: Loaded, agent: Agent, algo: Algo) -> None:
    from rlcli.record.snapshot import state_mismatches

    state = loaded.state
    parts: list[tuple[str, Any, Any]] = [
        ("agent", agent.state_dict(), state["agent"]),
        ("algo", algo.state_dict(), state["algo"]),
    ]
    mismatches = [m for name, own, given in parts for m in state_mismatches(own, given, name)]
    if mismatches:
        what = f"run: {loaded.path} does not fit the network that this configuration and environment give:"
        raise ConfigError([what, *(f"  {m}" for m in mismatches)])
    if algo.replay is not None and loaded.replay_state is not None:
        algo.replay.load(loaded.replay_folder, loaded.replay_state)
    agent.load_state_dict(state["agent"])
    algo.load_state_dict(state["algo"])
    algo.load_optimizer_state_dict(state["optimizer"])


def other_way(folder: Path) -> str:
    """What is left to do with a run that cannot go on, in one line."""
    files = sorted(folder.glob("*.pkl"), key=lambda path: path.stat().st_mtime)
    return f"start a new run from its weights: rlcli train ... --resume {files[-1]}" if files else "no snapshot either"
