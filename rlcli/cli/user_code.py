"""Modules from outside that the user wants imported before anything is composed."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path

from rlcli.core.errors import ConfigError

VARIABLE = "RLCLI_IMPORTS"
"""Environment variable with modules to import, separated by commas."""


def modules_of_environment(environ: Mapping[str, str]) -> list[str]:
    """The modules that the environment variable names."""
    return [name.strip() for name in environ.get(VARIABLE, "").split(",") if name.strip()]


def add_to_path(config_dirs: Iterable[Path]) -> None:
    """Let modules be found in the current folder, in each configuration folder and beside it.

    The folders go to the end, so that they hide nothing that is installed.
    """
    for place in (Path.cwd(), *(place for folder in config_dirs for place in (folder, folder.parent))):
        if str(place) not in sys.path:
            sys.path.append(str(place))


def import_modules(names: Iterable[str]) -> None:
    """Import each module.

    Raises:
        ConfigError: One cannot be imported; says why, and where in the user's file.
    """
    for name in names:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:
            raise ConfigError(f"imports: cannot import {name!r}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split()) or "no message"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
    last = frames[-1]
    inside = "" if last.filename in (__file__, importlib.__file__) else f" ({last.filename}:{last.lineno})"
    return f"{type(error).__name__}: {text}{inside}"
