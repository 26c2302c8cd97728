"""How a user's own package adds a config class that the command line can choose."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

from rlcli.core.errors import ConfigError, did_you_mean

GROUPS = ("env", "algo", "model", "sampler", "epsilon", "replay", "logger")
"""The groups whose options are config classes."""

C = TypeVar("C", bound=type)

_classes: dict[tuple[str, str], type] = {}


def register(group: str, kind: str) -> Callable[[C], C]:
    """Add a config dataclass under ``schema/<group>/<kind>``.

    Used as a decorator above ``@dataclass`` in a module that ``imports=[...]`` names::

        @rlcli.register("env", "my_env")
        @dataclass
        class MyEnvConfig: ...

    A YAML file ``conf/env/mine.yaml`` in a folder given with ``-cd`` then begins with
    ``defaults: [/schema/env/my_env@_here_]``, and ``env=mine`` chooses it.

    Args:
        group: One of GROUPS.
        kind: The name of the class in that group; a name of rlcli's own is taken.

    Raises:
        ConfigError: The group is unknown, the name is taken, or the class is no dataclass.
    """
    if group not in GROUPS:
        raise ConfigError(f"register: no group {group!r}{did_you_mean(group, GROUPS)} (there are: {', '.join(GROUPS)})")

    def add(cls: C) -> C:
        name = f"{cls.__module__}.{cls.__qualname__}"
        if not dataclasses.is_dataclass(cls):
            raise ConfigError(f"register: {name} is no dataclass; write @register above @dataclass")
        other = _classes.get((group, kind))
        if other is not None and f"{other.__module__}.{other.__qualname__}" != name:
            raise ConfigError(f"register: {group} {kind!r} is taken by {other.__module__}.{other.__qualname__}")
        _classes[group, kind] = cls
        return cls

    return add


def registered() -> dict[tuple[str, str], type]:
    """What was added so far: (group, kind) -> class."""
    return dict(_classes)
