"""Names for what a state refers to, and the way back; nothing is imported on the way."""

from __future__ import annotations

import struct
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, SimpleNamespace
from typing import Any, Final

from rlcli.core.errors import InexactError

NOTHING: Final = type("Nothing", (), {"__repr__": lambda self: "nothing"})()
"""Stands for the value at a place where there is none."""
_POINTER = struct.calcsize("P")
CONTAINERS = (OrderedDict, defaultdict, dict, list, deque, set, frozenset, tuple, bytearray)
"""A class comes before its base class."""
_BUILT_IN: dict[str, type] = {f"{c.__module__}:{c.__qualname__}": c for c in (*CONTAINERS, Counter, SimpleNamespace)}


def named(value: Any) -> str:
    """``module:qualified.name`` of a class or function."""
    return f"{value.__module__}:{value.__qualname__}"


def label(value: Any) -> str:
    """The name of a value's class."""
    return named(type(value))


def wording(value: Any) -> str:
    """What a value is, for an error: ``a socket of socket``."""
    if value is NOTHING:
        return "nothing"
    cls = type(value)
    article = "an" if cls.__qualname__[0].lower() in "aeiou" else "a"
    return f"{article} {cls.__qualname__}" + ("" if cls.__module__ == "builtins" else f" of {cls.__module__}")


def find_class(name: str, live: Any, packages: frozenset[str], path: str) -> type:
    """The class of a name: that of what is at the place now, a container's, or one of the packages.

    Raises:
        InexactError: It is none of these.
    """
    if live is not NOTHING and label(live) == name:
        return type(live)
    found = _BUILT_IN.get(name) or find(name, packages)
    if not isinstance(found, type):
        raise InexactError(f"{path}: {name} is not among the classes of the env's own packages, it cannot be made anew")
    return found


def find(name: str, packages: frozenset[str]) -> Any:
    """The class or function of a name in a loaded module of one of the packages, else None."""
    module_name, _, path = name.partition(":")
    module = sys.modules.get(module_name) if module_name.partition(".")[0] in packages else None
    found: Any = module
    for part in path.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found if isinstance(found, type | FunctionType) and named(found) == name else None


def builtin_base(cls: type) -> type | None:
    """The first class of the bases that Python code does not define, None if one has memory that no attribute shows.

    It is `object` for a class whose state is in attributes and slots alone.
    """
    base = next((base for base in cls.__mro__ if _has_own_new(base)), object)
    n_slots = sum(isinstance(v, MemberDescriptorType) for c in _above(cls, base) for v in vars(c).values())
    has_dict = cls.__dictoffset__ > 0 and not base.__dictoffset__
    has_weak = cls.__weakrefoffset__ > 0 and not base.__weakrefoffset__
    hidden = cls.__basicsize__ - base.__basicsize__ - (n_slots + has_dict + has_weak) * _POINTER
    return base if hidden <= 0 and cls.__itemsize__ == base.__itemsize__ else None


def _has_own_new(cls: type) -> bool:
    new = cls.__dict__.get("__new__")
    return isinstance(new, BuiltinFunctionType) and getattr(new, "__self__", None) is cls


def _above(cls: type, base: type) -> list[type]:
    return [c for c in cls.__mro__ if c not in base.__mro__]
