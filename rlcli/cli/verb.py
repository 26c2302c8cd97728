"""What the verbs on saved agents share: their words, and how an end of theirs becomes an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlcli.cli import failure
from rlcli.core.errors import ConfigError, did_you_mean
from rlcli.core.stop import STOPPED, Stopped, StopSignals

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
"""Exit codes, with STOPPED."""


@dataclass(frozen=True)
class Flag:
    """A word that begins with two dashes."""

    name: str
    """As in ``--name``."""
    doc: str
    kind: type | None = None
    """int, float or str; None for a flag without a value."""
    value: str = ""
    """What the help calls the value."""
    ge: float | None = None
    """Smallest value allowed."""


@dataclass
class Words:
    """The words after a verb, sorted."""

    target: str = ""
    """RUN or FILE, empty if there is none."""
    overrides: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    """Flag -> its value, True for one without a value; only flags that were given."""
    help: bool = False


def parse(argv: Sequence[str], flags: Sequence[Flag]) -> Words:
    """Sort the words. The first that is no flag is the target, whatever is in it: paths may hold a ``=``.

    Raises:
        ConfigError: A flag is unknown, given twice, or its value is missing or wrong; or there is no target.
    """
    known = {flag.name: flag for flag in flags}
    words, rest, bare = Words(), list(argv), []
    while rest:
        word = rest.pop(0)
        if word in ("-h", "--help"):
            words.help = True
        elif word.startswith("-") and word != "-":
            _take(word, rest, known, words.values)
        else:
            bare.append(word)
    words.target, words.overrides = (bare or [""])[0], bare[1:]
    if not words.help:
        _refuse(words)
    return words


def run(verb: str, body: Callable[[StopSignals], int]) -> int:
    """Do what a verb does; every way in which it can end becomes a message and an exit code."""
    full = os.environ.get("HYDRA_FULL_ERROR") == "1"
    try:
        with StopSignals() as signals:
            return body(signals)
    except ConfigError as error:
        if full:
            print(failure.failure_text(error, full=True), file=sys.stderr)
        for line in error.problems:
            say(verb, line)
        return USAGE
    except KeyboardInterrupt:
        say(verb, "interrupted")
        return INTERRUPTED
    except Stopped as stop:
        say(verb, str(stop))
        return STOPPED
    except BrokenPipeError:  # whoever reads has seen enough; main deals with it
        raise
    except Exception as error:
        print(failure.failure_text(error, full=full), file=sys.stderr)
        say(verb, f"failed{'' if full else ' (HYDRA_FULL_ERROR=1 shows every frame)'}")
        return FAILED


def say(verb: str, line: str) -> None:
    """Print a line for the user beside the verb's output."""
    print(f"rlcli {verb}: {line}", file=sys.stderr)


def flag_lines(flags: Sequence[Flag]) -> str:
    """The flags for a help text, one a line."""
    return "\n".join(f"  {f'--{f.name} {f.value}'.strip():<18} {f.doc}" for f in flags)


def _take(word: str, rest: list[str], known: dict[str, Flag], values: dict[str, Any]) -> None:
    name, has_value, value = word.removeprefix("--").partition("=")
    flag = known.get(name) if word.startswith("--") else None
    if flag is None:
        names = [f"--{name}" for name in known]
        hint = did_you_mean(word.partition("=")[0], names)
        there = f"; there are: {', '.join(names)}" if names else "; keys are written without dashes: key=value"
        raise ConfigError(f"{word}: unknown flag{hint or there}")
    if name in values:
        raise ConfigError(f"--{name}: given twice")
    if flag.kind is None:
        if has_value:
            raise ConfigError(f"--{name}: takes no value")
        values[name] = True
        return
    if not has_value:
        if not rest:
            raise ConfigError(f"--{name}: needs a value")
        value = rest.pop(0)
    values[name] = _converted(flag, value)


def _converted(flag: Flag, text: str) -> Any:
    assert flag.kind is not None
    try:
        value = flag.kind(text)
    except ValueError:
        raise ConfigError(
            f"--{flag.name}: {text!r} is not {'an' if flag.kind is int else 'a'} {flag.kind.__name__}"
        ) from None
    if flag.ge is not None and not value >= flag.ge:
        raise ConfigError(f"--{flag.name}: {text} is not allowed, must be >= {flag.ge:g}")
    return value


def _refuse(words: Words) -> None:
    if not words.target:
        raise ConfigError("needs a run or a snapshot file: RUN is a run folder, the name of a run, or 'last'")
    strange = [word for word in words.overrides if "=" not in word]
    if strange:
        raise ConfigError(f"{strange[0]!r}: expected key=value or a flag; a path with spaces goes in quotes")
