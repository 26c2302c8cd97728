"""What was run, on what: config.yaml, command.txt, params.json, versions.json. Imports no torch."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from rlcli import __version__
from rlcli.core.errors import SnapshotError

_PACKAGES = ("torch", "numpy", "gymnasium", "ale-py", "hydra-core", "omegaconf")


def write_description(folder: Path, config: Mapping[str, Any], argv: Sequence[str] | None) -> None:
    """Write the four files that say what was run; each holds the old text or the new one, whole, at any moment.

    Args:
        folder: The run folder.
        config: The whole config: nested dicts of lists, strings, numbers, bools and None.
        argv: The command line, the program's name included; None leaves command.txt as it is.
    """
    files = {
        "config.yaml": yaml.dump(config, Dumper=_ConfigDumper, sort_keys=False, allow_unicode=True, width=120),
        **({} if argv is None else {"command.txt": f"{shlex.join(argv)}\n{Path.cwd()}\n"}),
        "params.json": _json({"exp_name": folder.name, **config}),
        "versions.json": _json(versions()),
    }
    for name, text in files.items():
        temporary = folder / f".{name}.{os.getpid()}.tmp"
        try:
            temporary.write_text(text, encoding="utf-8", newline="\n")
            temporary.replace(folder / name)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise SnapshotError(f"{folder / name}: not written: {error.strerror or error}") from error


def versions() -> dict[str, Any]:
    """Versions of what a result may hang on; None for a package that is not installed."""
    found: dict[str, Any] = {"rlcli": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return {**found, "platform": platform.platform(), "cpus": os.cpu_count()}


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(_pure(content), indent=2, allow_nan=False) + "\n"


def _pure(value: Any) -> Any:
    """JSON has no inf and no nan, and its keys are strings."""
    if isinstance(value, Mapping):
        return {str(k): _pure(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_pure(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value


class _ConfigDumper(yaml.SafeDumper):  # type: ignore[misc]
    """Writes YAML that Hydra reads back as the same values."""


# Hydra takes a bare 1e6 for a number, YAML 1.1 does not: a string that looks so must be quoted.
_ConfigDumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)
