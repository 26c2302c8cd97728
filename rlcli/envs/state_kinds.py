"""The kinds of things that an environment's state is made of, each with a way into a record and back."""

from __future__ import annotations

import functools
import inspect
import logging
import re
from collections import OrderedDict, defaultdict, deque
from contextlib import suppress
from enum import Enum
from pathlib import PurePath
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from rlcli.core.errors import InexactError
from rlcli.envs.state_adapters import ADAPTERS
from rlcli.envs.state_names import CONTAINERS, NOTHING, builtin_base, find, find_class, label, named

if TYPE_CHECKING:
    from rlcli.envs.state import Loader, Saver

Record = dict[str, Any]
_BY_ADDRESS: Any = object.__hash__


class Kind(Protocol):
    """One kind; stateless."""

    def holds(self, value: Any) -> bool:
        """Whether ``value`` is of this kind."""

    def save(self, value: Any, saver: Saver, path: str) -> Record:
        """What `load` needs, copied."""

    def load(self, record: Record, live: Any, loader: Loader, number: int, path: str) -> Any:
        """The object of a record; ``live`` is what is in its place now."""


class _Constant:
    """What is left alone: only its name is saved, to see that it is the same."""

    types = (type, ModuleType, np.dtype, np.ufunc, EnvSpec, logging.Logger, re.Pattern, PurePath, type(np.clip))
    plain = (object, type(Ellipsis), type(NotImplemented))

    def holds(self, value: Any) -> bool:
        if isinstance(value, ModuleType) and value.__name__ in ("random", "numpy.random"):
            return False  # its stream is everybody's
        return isinstance(value, self.types) or type(value) in self.plain or self._is_free_function(value)

    def save(self, value: Any, saver: Saver, path: str) -> Record:
        return {"name": self._name(value)}

    def load(self, record: Record, live: Any, loader: Loader, number: int, path: str) -> Any:
        if live is not NOTHING and self.holds(live) and self._name(live) == record["name"]:
            return live
        found = find(record["name"], loader.packages)
        if found is None:
            raise InexactError(f"{path} was {record['name']}, which cannot be put back")
        return found

    def _is_free_function(self, value: Any) -> bool:
        return isinstance(value, BuiltinFunctionType) and isinstance(value.__self__, ModuleType | None)

    def _name(self, value: Any) -> str:
        if isinstance(value, type | BuiltinFunctionType):
            return named(value)
        if isinstance(value, np.dtype | re.Pattern):
            return repr(value)
        if isinstance(value, EnvSpec):
            return f"EnvSpec {value.id}"
        # paths are those of the machine that the env runs on
        return label(value) if isinstance(value, PurePath) else f"{label(value)} {getattr(value, '__name__', '')}"


class _Function:
    """Code is left alone; the variables that it shares with the function around it are state."""

    def holds(self, value: Any) -> bool:
        return isinstance(value, FunctionType)

    def save(self, value: Any, saver: Saver, path: str) -> Record:
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        return {"name": named(value), "cells": [saver.value(cell, f"{path}.{name}") for name, cell in cells]}

    def load(self, record: Record, live: Any, loader: Loader, number: int, path: str) -> Any:
        if not isinstance(live, FunctionType) or named(live) != record["name"]:
            live = find(record["name"], loader.packages)
        cells = record["cells"]
        if not isinstance(live, FunctionType) or len(live.__closure__ or ()) != len(cells):
            raise InexactError(f"{path} was the function {record['name']}, which cannot be put back")
        if not cells:
            return live
        # filled later: one may hold this very function
        todo = [(cell_number, now) for (cell_number,), now in zip(cells, live.__closure__ or (), strict=True)]
        todo = [(cell_number, now) for cell_number, now in todo if not loader.is_made(cell_number)]
        for cell_number, _ in todo:
            loader.note(cell_number, CellType())
        closure = [loader.value(cell, NOTHING, path) for cell in cells]
        made = FunctionType(live.__code__, live.__globals__, live.__name__, live.__defaults__, tuple(closure))
        made.__kwdefaults__, made.__dict__, made.__qualname__ = live.__kwdefaults__, live.__dict__, live.__qualname__
        loader.note(number, made)
        for cell_number, now in todo:
            self._fill(loader.value([cell_number], NOTHING, path), loader.records[cell_number], now, loader, path)
        return made

    def _fill(self, cell: CellType, record: Record, now: CellType, loader: Loader, path: str) -> None:
        if "content" in record:
            try:
                inside = now.cell_contents
            except ValueError:  # not set
                inside = NOTHING
            cell.cell_contents = loader.value(record["content"], inside, path)


class _Cell:
    """A variable of the function around; made and filled with its function."""

    def holds(self, value: Any) -> bool:
        return isinstance(value, CellType)

    def save(self, value: Any, saver: Saver, path: str) -> Record:
        try:
            return {"content": saver.value(value.cell_contents, path)}
        except ValueError:  # not set
            return {}

    def load(self, record: Record, live: Any, loader: Loader, number: int, path: str) -> Any:
        raise InexactError(f"{path} is a variable without its function")


class _Method:
    """A Python method bound to an object."""

    def holds(self, value: Any) -> bool:
        return isinstance(value, MethodType) and isinstance(value.__func__, FunctionType)

    def save(self, value: Any, saver: Saver, path: str) -> Record:
        return {
            "owner": saver.value(value.__self__, f"{path}.__self__"),
            "function": saver.value(value.__func__, f"{path}.__func__"),
        }

    def load(self, record: Record, live: Any, loader: Loader, number: int, path: str) -> Any:
        now = live if self.holds(live) else None
        owner = loader.value(record["owner"], getattr(now, "__self__", NOTHING), f"{path}.__self__")
        function = loader.value(record["function"], getattr(now, "__func__", NOTHING), f"{path}.__func__")
        return MethodType(function, owner)


class _BuiltinMethod:
    """A method of an object that is written in C, such as a generator's or an emulator's."""

    def holds(self, value: Any) -> bool:
        owner = getattr(value, "__self__", None)
        is_method = isinstance(value, BuiltinFunctionType | MethodType) or type(value).__name__ == "nb_bound_method"
        return is_method and owner is not None and not isinstance(owner, ModuleType) and hasattr(value, "__name__")

    def save(self, value: Any, saver: Saver, path: str) -> Record:
        return {"owner": saver.value(value.__self__, f"{path}.__self__"), "name": value.__name__}

    def load(self, record: Record, live: Any, loader: Loader, number: int, path: str) -> Any:
        owner = loader.value(record["owner"], getattr(live, "__self__", NOTHING), f"{path}.__self__")
        static = inspect.getattr_static(type(owner), record["name"], None)
        if not inspect.isroutine(static) and type(static).__name__ != "nb_method":
            raise InexactError(f"{path} was the method {record['name']} of {label(owner)}, which it does not have")
        return getattr(owner, record["name"])


class _Partial:
    """functools.partial."""

    def holds(self, value: Any) -> bool:
        return type(value) is functools.partial

    def save(self, value: Any, saver: Saver, path: str) -> Record:
        parts = (value.func, value.args, value.keywords)
        return {"parts": saver.list_of(parts, path)}

    def load(self, record: Record, live: Any, loader: Loader, number: int, path: str) -> Any:
        now = (live.func, live.args, live.keywords) if self.holds(live) else NOTHING
        func, args, keywords = loader.list_of(record["parts"], now, path)
        return functools.partial(func, *args, **keywords)


class _EnumMember:
    """A member of an enum."""

    def holds(self, value: Any) -> bool:
        return isinstance(value, Enum)

    def save(self, value: Any, saver: Saver, path: str) -> Record:
        if value.name not in type(value).__members__:
            raise InexactError(f"{path} is {value!r}, which has no name of its own")
        return {"class": label(value), "name": value.name}

    def load(self, record: Record, live: Any, loader: Loader, number: int, path: str) -> Any:
        cls = find_class(record["class"], live, loader.packages, path)
        if not issubclass(cls, Enum) or record["name"] not in cls.__members__:
            raise InexactError(f"{path}: {record['class']} has no member {record['name']}")
        return cls.__members__[record["name"]]


class _Container:
    """list, tuple, dict, set, deque ... and classes made of them; always a new one, since others may know the old."""

    def holds(self, value: Any) -> bool:
        return isinstance(value, CONTAINERS) and builtin_base(type(value)) in CONTAINERS

    def save(self, value: Any, saver: Saver, path: str) -> Record:
        record: Record = {"class": label(value)}
        if hasattr(value, "__dict__"):
            record["fields"] = saver.dict_of(fields_of(value), path)
        if isinstance(value, dict):
            base = OrderedDict if isinstance(value, OrderedDict) else dict
            record["keys"] = saver.list_of(base.keys(value), f"{path}.keys()")
            record["items"] = [saver.value(v, f"{path}[{_shown(k)}]") for k, v in base.items(value)]
        elif isinstance(value, bytearray):
            record["items"] = bytes(value)
        elif isinstance(value, set | frozenset):
            record["items"] = saver.list_of(_ordered(value, path), path)
        else:
            record["items"] = saver.list_of(_base_of(type(value)).__iter__(value), path)
        if isinstance(value, deque):
            record["maxlen"] = value.maxlen
        if isinstance(value, defaultdict):
            record["factory"] = saver.value(value.default_factory, f"{path}.default_factory")
        return record

    def load(self, record: Record, live: Any, loader: Loader, number: int, path: str) -> Any:
        cls = find_class(record["class"], live, loader.packages, path)
        base = _base_of(cls)
        now = live if live is not NOTHING and isinstance(live, base) else NOTHING
        if issubclass(base, tuple | frozenset):
            made = base.__new__(cls, loader.list_of(record["items"], now, path))
        else:
            made = base.__new__(cls)
            loader.note(number, made)
            self._fill(made, base, record, now, loader, path)
        if "fields" in record:
            load_fields(made, record["fields"], fields_of(now), loader, path)
        return made

    def _fill(self, made: Any, base: Any, record: Record, now: Any, loader: Loader, path: str) -> None:
        if issubclass(base, dict):
            if issubclass(base, defaultdict):
                factory = getattr(now, "default_factory", NOTHING)
                made.default_factory = loader.value(record["factory"], factory, f"{path}.default_factory")
            keys = loader.list_of(record["keys"], now, f"{path}.keys()")
            for key, value in zip(keys, record["items"], strict=True):
                here = NOTHING if now is NOTHING else base.get(now, key, NOTHING)
                base.__setitem__(made, key, loader.value(value, here, f"{path}[{_shown(key)}]"))
        elif issubclass(base, bytearray):
            base.extend(made, record["items"])
        else:
            if issubclass(base, deque):
                base.__init__(made, (), record["maxlen"])
            (base.update if issubclass(base, set) else base.extend)(
                made, loader.list_of(record["items"], NOTHING if issubclass(base, set) else now, path)
            )


class _Object:
    """An object of a class written in Python, with attributes or slots; an environment is filled, others are made."""

    def holds(self, value: Any) -> bool:
        return builtin_base(type(value)) in (object, SimpleNamespace) and type(value) is not object

    def save(self, value: Any, saver: Saver, path: str) -> Record:
        return {"class": label(value), "fields": saver.dict_of(fields_of(value), path)}

    def load(self, record: Record, live: Any, loader: Loader, number: int, path: str) -> Any:
        cls = find_class(record["class"], live, loader.packages, path)
        same = live is not NOTHING and type(live) is cls
        if same and isinstance(live, gymnasium.Env):
            made, path = live, cls.__name__
        elif builtin_base(cls) in (object, SimpleNamespace):
            base: Any = builtin_base(cls)
            made = base.__new__(cls)
        else:
            raise InexactError(f"{path}: {record['class']} is no class written in Python, it cannot be made anew")
        loader.note(number, made)
        load_fields(made, record["fields"], fields_of(live), loader, path)
        return made


def fields_of(value: Any) -> dict[str, Any]:
    """Attributes and slots of an object itself, not its class's."""
    found = {}
    for name, slot in _slots(type(value)).items():
        with suppress(AttributeError):  # not set
            found[name] = slot.__get__(value)
    return {**found, **getattr(value, "__dict__", {})}


def load_fields(made: Any, saved: Record, now: dict[str, Any], loader: Loader, path: str) -> None:
    """Give an object exactly the saved attributes and slots; no ``__setattr__`` of its own is asked."""
    slots = _slots(type(made))
    values = {name: loader.value(v, now.get(name, NOTHING), f"{path}.{name}") for name, v in saved.items()}
    for name, slot in slots.items():
        if name in values:
            slot.__set__(made, values.pop(name))
        else:
            with suppress(AttributeError):
                slot.__delete__(made)
    if hasattr(made, "__dict__"):
        attributes = made.__dict__
        attributes.clear()
        attributes.update(values)
    elif values:
        raise InexactError(f"{path} has no attribute {next(iter(values))}")


def _slots(cls: type) -> dict[str, Any]:
    """Descriptors of the slots by name, a private one's as it is stored."""
    found = {}
    for base in cls.__mro__:
        names = base.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            private = name.startswith("__") and not name.endswith("__")
            stored = f"_{base.__name__.lstrip('_')}{name}" if private else name
            if name not in ("__dict__", "__weakref__"):
                found[stored] = base.__dict__[stored]
    return found


def _base_of(cls: type) -> Any:
    return next(base for base in CONTAINERS if issubclass(cls, base))


def _ordered(values: Any, path: str) -> list[Any]:
    """The elements of a set in an order of insertion that gives a new set the same order.

    A set's order hangs on hashes and on all that was ever inserted and removed, which no new one can repeat. So the
    set itself is emptied and filled again: then it and the new one have the same past. (The order of strings changes
    from process to process whatever one does.)
    """
    order = list(values)
    if len(order) > 1 and any(getattr(type(value), "__hash__", None) is _BY_ADDRESS for value in order):
        raise InexactError(f"{path} is a set in the order of its elements' addresses; a dict keeps its own order")
    if isinstance(values, set):
        set.clear(values)
        set.update(values, order)
    elif any(a is not b for a, b in zip(order, frozenset(order), strict=True)):
        raise InexactError(f"{path} is a frozenset whose order no new one has; a tuple keeps its order")
    return order


def _shown(key: Any) -> str:
    text = repr(key)
    return text if len(text) <= 40 else f"{text[:40]}..."


KINDS: dict[str, Kind] = {
    "enum": _EnumMember(),
    **ADAPTERS,
    "constant": _Constant(),
    "function": _Function(),
    "cell": _Cell(),
    "method": _Method(),
    "builtin_method": _BuiltinMethod(),
    "partial": _Partial(),
    "container": _Container(),
    "object": _Object(),
}
"""Name in a record -> kind; the first that holds a value takes it."""
