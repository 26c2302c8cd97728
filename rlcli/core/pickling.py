"""Objects for other processes as bytes; what cannot be sent is named. Imports no torch."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from typing import Any

from rlcli.core.errors import ConfigError

_DEPTH = 6


def pickled(what: str, value: Any) -> bytes:
    """``value`` as bytes, by value: tensors too.

    Raises:
        ConfigError: It cannot be pickled; the line names the innermost object that cannot.
    """
    try:
        return pickle.dumps(value)
    except Exception as error:
        raise ConfigError(
            f"{culprit(what, value)} cannot be sent to a worker process: {error}; "
            "use things that can be pickled (no lambdas, local classes, open files), or sampler=serial"
        ) from error


def culprit(path: str, value: Any, depth: int = _DEPTH) -> str:
    """The dotted path of the innermost part of ``value`` that cannot be pickled, with its type."""
    if depth:
        for name, part in _parts(value):
            try:
                pickle.dumps(part)
            except Exception:
                return culprit(f"{path}.{name}", part, depth - 1)
    return f"{path} ({type(value).__name__})"


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, list | tuple):
        yield from ((str(i), part) for i, part in enumerate(value))
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        yield from vars(value).items()
