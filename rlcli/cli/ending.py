"""What a run says when it ends early: how, and the command that goes on with it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from rlcli.cli import failure
from rlcli.core.stop import Stopped

if TYPE_CHECKING:
    from rlcli.record.console import Console


def say_how_to_go_on(console: Console, folder: Path, error: BaseException) -> None:
    """The last lines of a run that did not come to its end."""
    from rlcli.record.checkpoint import complete

    saved = sorted(folder.glob("*.pkl"), key=lambda path: path.stat().st_mtime)
    console.say(_how_it_ended(error))
    console.say(f"last snapshot: {saved[-1]}" if saved else "no snapshot had been saved")
    checkpoints = complete(folder)
    if checkpoints:
        console.say(f"go on from step {int(checkpoints[0].name):,}: {resume_command(folder)}")
    elif saved:
        console.say(f"start from it: the same command with --resume {shlex.quote(str(saved[-1]))}")
    console.say(f"run folder: {folder}")


def resume_command(folder: Path) -> str:
    """The command line that goes on with a run."""
    return f"rlcli resume {shlex.quote(str(folder))}"


def _how_it_ended(error: BaseException) -> str:
    where = "".join(f" {note}" for note in failure.notes(error))
    if isinstance(error, KeyboardInterrupt):
        return f"interrupted{where}"
    if isinstance(error, Stopped):
        return f"{error}{where}"
    return f"the run ended early{where}: {type(error).__name__}: {error}"
