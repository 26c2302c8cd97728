"""What may change when a run is resumed: free keys, those with a warning, and those on which saved state hangs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlcli.cli import schema
from rlcli.cli.config import RunConfig, as_dict
from rlcli.register import GROUPS

_GROUPS = {"env": "locked", "model": "locked", "replay": "locked", "algo": "warned", "epsilon": "warned"}
"""What holds for the keys of a group whose field says nothing else; all others are free."""
_KINDS = {"sampler": "free", "epsilon": "warned", "logger": "free"}
"""Groups of which another option may be chosen; of the others the chosen one is locked."""


@dataclass(frozen=True)
class Change:
    """One key that differs from what the run had."""

    key: str
    old: Any
    new: Any
    rule: str
    """free, warned or locked."""

    def __str__(self) -> str:
        mark = "  (the run is no longer what it would have been)" if self.rule == "warned" else ""
        return f"{self.key}: {shown(self.old)} -> {shown(self.new)}{mark}"


def changes(before: RunConfig, after: RunConfig) -> list[Change]:
    """Every key in which two configurations differ, in their order; the names of chosen options are left out."""
    old, new = (dict(_flat({k: v for k, v in as_dict(c).items() if k != "choices"})) for c in (before, after))
    found = []
    for key in dict.fromkeys([*old, *new]):
        if old.get(key, schema.MISSING) != new.get(key, schema.MISSING):
            rule = _rule(key, before, after)
            found.append(Change(key, old.get(key), new.get(key), rule))
    return found


def shown(value: Any) -> str:
    """A value as one would write it on the command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _rule(key: str, before: RunConfig, after: RunConfig) -> str:
    group, _, rest = key.partition(".")
    if key == "n_steps" and _stretches(after):
        return "warned"
    if group not in GROUPS:
        return _declared(RunConfig, group) or "free"
    if rest == "kind":
        return _KINDS.get(group, "locked")
    # the fields of another kind are new or gone, and mean what its choice means
    declared = [_declared(type(getattr(config, group)), rest) for config in (after, before)]
    return next((rule for rule in declared if rule), _GROUPS.get(group, "free"))


def _stretches(config: RunConfig) -> bool:
    """Whether a schedule of the algorithm runs to the end of the budget."""
    fields = dataclasses.fields(config.algo)
    return any(f.name.endswith("_schedule") and getattr(config.algo, f.name) == "linear" for f in fields)


def _declared(cls: type, name: str) -> str | None:
    fields = {f.name: f for f in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else {}
    field = fields.get(name.partition(".")[0])
    return None if field is None else field.metadata.get("at_resume")


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
