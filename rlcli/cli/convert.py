"""Plain containers into config dataclasses, with every problem noted instead of the first one raised."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlcli.cli.schema import MISSING

BAD = object()
"""Stands for a value that could not be converted; its problem has been noted."""


@dataclass
class Unknown:
    """A key that its dataclass does not have."""

    prefix: str
    """Dotted path of the dataclass with a dot at its end, empty for the root."""
    name: str
    cls: type

    @property
    def key(self) -> str:
        """The dotted key."""
        return f"{self.prefix}{self.name}"


@dataclass
class Report:
    """What was wrong, in the order of the fields."""

    problems: dict[str, str] = field(default_factory=dict)
    """Dotted key -> what is wrong and what is allowed."""
    unknown: list[Unknown] = field(default_factory=list)
    raw: Mapping[str, str] = field(default_factory=dict)
    """Dotted key -> the text that the user typed: 007 stays 007 where a str is wanted."""

    def keys(self) -> list[str]:
        """Dotted keys with which something is wrong."""
        return [*self.problems, *(u.key for u in self.unknown)]


def to_dataclass(cls: type, tree: Mapping[str, Any], prefix: str, report: Report) -> Any:
    """An instance of ``cls``; a field that cannot be converted keeps its default.

    Returns:
        The instance, or None if a field without a default is not there.
    """
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}
    report.unknown += [Unknown(prefix, str(name), cls) for name in tree if name not in fields]
    values = {}
    for name, declared in fields.items():
        value = convert(tree.get(name, default_of(declared)), hints[name], f"{prefix}{name}", report)
        values[name] = default_of(declared) if value is BAD else value
    return None if MISSING in [v for v in values.values() if isinstance(v, str)] else cls(**values)


def default_of(declared: dataclasses.Field[Any]) -> Any:
    """The default of a field, ``???`` if it has none."""
    if declared.default_factory is not dataclasses.MISSING:
        return declared.default_factory()
    return MISSING if declared.default is dataclasses.MISSING else declared.default


def convert(value: Any, hint: Any, key: str, report: Report) -> Any:
    """``value`` as the type ``hint``, or BAD with the problem noted under ``key``."""
    if isinstance(value, str) and value == MISSING:
        return _note(report, key, f"needs a value: {key}=...")
    if hint is Any:
        return value
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _union(value, typing.get_args(hint), key, report)
    if origin is typing.Literal:
        allowed = typing.get_args(hint)
        return value if value in allowed else _note(report, key, f"{show(value)} is not one of {allowed}")
    if dataclasses.is_dataclass(hint):
        return _dataclass(value, typing.cast(type, hint), key, report)
    if origin in (list, tuple) or hint in (list, tuple):
        return _sequence(value, hint, key, report)
    if origin is dict or hint is dict:
        return _mapping(value, hint, key, report)
    if hint in _SCALARS:
        return _scalar(value, hint, key, report)
    raise TypeError(f"{key}: config fields of type {hint} are not supported")


def show(value: Any) -> str:
    """``value`` as the user would have typed it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _note(report: Report, key: str, text: str) -> Any:
    report.problems.setdefault(key, text)
    return BAD


def _scalar(value: Any, hint: type, key: str, report: Report) -> Any:
    convert_to, name = _SCALARS[hint]
    if hint is str and key in report.raw and isinstance(value, int | float):
        return report.raw[key]
    converted = convert_to(value)
    return _note(report, key, f"{show(value)} is not {name}") if converted is BAD else converted


def _to_bool(value: Any) -> Any:
    return value if isinstance(value, bool) else BAD


def _to_int(value: Any) -> Any:
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else BAD


def _to_float(value: Any) -> Any:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else BAD


def _to_str(value: Any) -> Any:
    if isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return value if isinstance(value, str) else BAD


_SCALARS: dict[Any, tuple[Any, str]] = {
    bool: (_to_bool, "a bool (true or false)"),
    int: (_to_int, "an int"),
    float: (_to_float, "a float"),
    str: (_to_str, "a str"),
}


def _union(value: Any, hints: tuple[Any, ...], key: str, report: Report) -> Any:
    if value is None and type(None) in hints:
        return None
    # A value keeps its own type where the union has it; only then is it converted.
    others = sorted((h for h in hints if h is not type(None)), key=lambda h: h is not type(value))
    trials = []
    for hint in others:
        trial = Report(raw=report.raw)
        converted = convert(value, hint, key, trial)
        if converted is not BAD and not trial.keys():
            return converted
        trials.append(trial)
    if len(trials) > 1:
        names = " or ".join(_SCALARS[h][1] if h in _SCALARS else str(h) for h in others)
        return _note(report, key, f"{show(value)} is not {names}")
    for name, text in trials[0].problems.items():
        _note(report, name, text)
    report.unknown += trials[0].unknown
    return BAD


def _dataclass(value: Any, cls: type, key: str, report: Report) -> Any:
    if isinstance(value, cls):
        return value
    if not isinstance(value, Mapping):
        return _note(report, key, f"{show(value)} is not a group of keys ({key}.<name>=...)")
    instance = to_dataclass(cls, value, f"{key}.", report)
    return BAD if instance is None else instance


def _sequence(value: Any, hint: Any, key: str, report: Report) -> Any:
    if not isinstance(value, list | tuple):
        return _note(report, key, f"{show(value)} is not a list ([a, b, ...])")
    kind = typing.get_origin(hint) or hint
    args = [a for a in typing.get_args(hint) if a is not ...] or [Any]
    if kind is tuple and len(args) > 1 and len(args) != len(value):
        return _note(report, key, f"{show(list(value))} has {len(value)} items, must have {len(args)}")
    hints = args if len(args) > 1 else args * len(value)
    items = [convert(v, h, f"{key}[{i}]", report) for i, (v, h) in enumerate(zip(value, hints, strict=True))]
    return BAD if BAD in items else kind(items)


def _mapping(value: Any, hint: Any, key: str, report: Report) -> Any:
    if not isinstance(value, Mapping):
        return _note(report, key, f"{show(value)} is not a dict ({{a: 1, b: 2}} or {key}.<name>=...)")
    args = typing.get_args(hint)
    item = args[1] if args else Any
    items = {str(k): convert(v, item, f"{key}.{k}", report) for k, v in value.items()}
    return BAD if any(v is BAD for v in items.values()) else items
