"""How a field of a config dataclass is declared: default, meaning and range in one place."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any


def option(
    default: Any,
    doc: str,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    choices: tuple[str, ...] | None = None,
    at_resume: str | None = None,
) -> Any:
    """A dataclass field with its meaning and range.

    Args:
        default: The default value; a list or dict is copied for each instance.
        doc: Meaning, unit and the source of the default.
        ge: Smallest allowed value.
        gt: Bound that the value must exceed.
        le: Largest allowed value.
        lt: Bound that the value must stay below.
        choices: The allowed words.
        at_resume: What a change of it means when a run is resumed: free, warned (the run is no longer the one that it
            would have been) or locked (saved state hangs on it); None: what holds for its group.

    Bounds hold for each element of a list; None always passes where the type allows it.
    """
    metadata = {"doc": doc, "ge": ge, "gt": gt, "le": le, "lt": lt, "choices": choices, "at_resume": at_resume}
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def rule(metadata: Any) -> str:
    """The range of a field in words, empty if it has none."""
    if metadata.get("choices"):
        return "one of " + ", ".join(metadata["choices"])
    words = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    return " and ".join(f"{sign} {metadata[k]}" for k, sign in words.items() if metadata.get(k) is not None)


def range_problems(config: Any, prefix: str = "", known: Collection[str] = ()) -> list[str]:
    """Every field of a config dataclass, nested ones included, that is out of its declared range.

    A dataclass may add checks across its fields with a method ``problems() -> list[str]``, whose lines begin
    with the field's name.

    Args:
        config: The dataclass instance.
        prefix: Goes before each field's name.
        known: Keys, prefix included, in which something is wrong already: the checks across fields of their
            dataclass are left out.
    """
    found: list[str] = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        key = f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            found += range_problems(value, f"{key}.", known)
        elif not all(_in_range(v, field.metadata) for v in (value if isinstance(value, list) else [value])):
            found.append(f"{key}: {value!r} is not allowed, must be {rule(field.metadata) or 'a number'}")
    if not found and hasattr(config, "problems") and not any(key.startswith(prefix) for key in known):
        found += [f"{prefix}{line}" for line in config.problems()]
    return found


def _in_range(value: Any, metadata: Any) -> bool:
    if value is None or not metadata:
        return True
    if metadata.get("choices"):
        return value in metadata["choices"]
    if not isinstance(value, int | float) or isinstance(value, bool):
        return True
    return (
        value == value  # nan has no range
        and (metadata.get("ge") is None or value >= metadata["ge"])
        and (metadata.get("gt") is None or value > metadata["gt"])
        and (metadata.get("le") is None or value <= metadata["le"])
        and (metadata.get("lt") is None or value < metadata["lt"])
    )
