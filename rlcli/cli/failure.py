"""How a run that failed is told to the user: the message, and the part of the traceback that is theirs."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from rlcli.core.errors import ConfigError, EnvError, InexactError, RlcliError, SnapshotError, WorkerError

LOG_FILE = "debug.log"

_FINDINGS = tuple(f"{kind.__name__}: " for kind in (EnvError, ConfigError, SnapshotError, InexactError, RlcliError))
"""How the reason of a worker's failure begins where rlcli raised it on purpose, with a message that says all."""

_PACKAGE = re.escape(str(Path(__file__).resolve().parents[1]))
_OURS = re.compile(rf"{_PACKAGE}[\\/]|<frozen |.*[\\/](hydra|omegaconf|multiprocessing|gymnasium)[\\/]")
_CHAIN = re.compile(
    r"\n\n(?:The above exception was the direct cause of the following exception"
    r"|During handling of the above exception, another exception occurred):\n\n"
)


def failure_text(error: BaseException, *, full: bool = False) -> str:
    """What is printed about an exception that ended a run.

    Args:
        error: The exception.
        full: Every frame of it, rlcli's and Hydra's included.
    """
    own = "".join(traceback.format_exception(error))
    if full:
        return own
    if isinstance(error, WorkerError):
        # the traceback of an error that rlcli found itself, with no code of the user's in it, tells nothing
        found_by_us = error.reason.startswith(_FINDINGS)
        return _with_notes(f"{_theirs(error.remote_traceback, whole=not found_by_us)}{error}", error)
    if isinstance(error, EnvError):
        cause = error.__cause__
        theirs = _theirs("".join(traceback.format_exception(cause))) if cause else ""
        return _with_notes(f"{theirs}{error}", error)
    if isinstance(error, RlcliError):
        return _with_notes(str(error), error)
    return own.rstrip("\n")


def append_to_log(error: BaseException, text: str) -> None:
    """Put the text into the debug.log of the run folder, if the run came so far as to have one."""
    folder = run_folder(error)
    if folder is not None and folder.is_dir():
        with (folder / LOG_FILE).open("a", encoding="utf-8") as log:
            log.write(f"{text}\n")


def run_folder(error: BaseException) -> Path | None:
    """The run folder that build.run noted on the exception, None if there was none."""
    folder = getattr(error, "run_dir", None)
    return None if folder is None else Path(folder)


def notes(error: BaseException) -> list[str]:
    """What the runner noted on the exception: in which iteration, at which step."""
    return list(getattr(error, "__notes__", []))


def _with_notes(text: str, error: BaseException) -> str:
    return "\n".join([text, *notes(error)])


def _theirs(text: str, *, whole: bool = True) -> str:
    """A chain of tracebacks without the frames of rlcli and what lies under it; ``whole`` if nothing would be left."""
    blocks = [trimmed for block in _CHAIN.split(text) if (trimmed := _trimmed(block))]
    lines = "\n\n".join(blocks) or (text.rstrip("\n") if whole else "")
    return f"{lines}\n" if lines else ""


def _trimmed(block: str) -> str:
    """One traceback with the user's frames alone, empty if it has none."""
    kept: list[str] = []
    n_frames, skipping = 0, False
    for line in block.strip("\n").splitlines():
        if found := re.match(r'  File "([^"]*)"', line):
            skipping = bool(_OURS.match(found[1]))
            n_frames += not skipping
        elif not line.startswith(("    ", "  [Previous")):
            skipping = False
        if not skipping:
            kept.append(line)
    return "\n".join(kept) if n_frames else ""
