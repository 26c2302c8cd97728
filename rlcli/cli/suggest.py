"""What a user may have meant by a key that does not exist."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rlcli.cli import schema
from rlcli.cli.convert import Unknown
from rlcli.core.errors import did_you_mean, near
from rlcli.register import GROUPS

SYNONYMS = {
    "lr": "learning_rate",
    "gamma": "discount",
    "eps": "epsilon",
    "batchsize": "batch_size",
    "steps": "n_steps",
    "total_steps": "n_steps",
    "total_timesteps": "n_steps",
    "num_envs": "batch_B",
    "n_envs": "batch_B",
    "num_workers": "n_workers",
    "workers": "n_workers",
    "buffer_size": "size",
    "replay_size": "size",
}
"""Names used elsewhere -> ours."""


def explain(unknown: Unknown, tree: Mapping[str, Any], choices: Mapping[str, str]) -> str:
    """One line about an unknown key, with the nearest keys that exist."""
    key, group = unknown.key, unknown.prefix.removesuffix(".")
    if group in GROUPS:
        here = f"{key}: no such key with {group}={choices.get(group)}"
        others = _kinds_that_have(unknown.name, group, unknown.cls)
        if others:
            return f"{here}; {group}={' or '.join(others)} has it"
    names = [f.name for f in dataclasses.fields(unknown.cls) if f.name != "choices"]
    words = [f"{unknown.prefix}{word}" for word in _near(unknown.name, names)]
    if not words:
        words = _elsewhere(unknown, tree)
    if not words and not unknown.prefix:
        words = near(key, [k for k in _dotted(tree) if k.partition(".")[0] != key])[:2]
    return f"{key}: no such key{did_you_mean_these(words)}"


def did_you_mean_these(words: Iterable[str]) -> str:
    """``; did you mean 'a' or 'b'?``, empty without words."""
    quoted = [repr(word) for word in words]
    return f"; did you mean {' or '.join(quoted)}?" if quoted else ""


def no_option(group: str, name: str, options: Iterable[str]) -> str:
    """One line about an option that a group does not have."""
    listed = sorted(options)
    return f"{group}: there is no {name!r}{did_you_mean(name, listed)} (there are: {', '.join(listed)})"


def _near(name: str, names: list[str]) -> list[str]:
    """Names like ``name``, best first; a synonym counts as the name it stands for."""
    stands_for = {name: name for name in names}
    stands_for |= {word: ours for word, ours in SYNONYMS.items() if ours in names and word not in stands_for}
    if name in stands_for:
        return [stands_for[name]]
    return list(dict.fromkeys(stands_for[word] for word in near(name, stands_for)))[:2]


def _kinds_that_have(name: str, group: str, cls: type) -> list[str]:
    found = []
    for kind in schema.kinds(group):
        other = schema.config_class(group, kind)
        if other is not None and other is not cls and name in {f.name for f in dataclasses.fields(other)}:
            found.append(kind)
    return found


def _elsewhere(unknown: Unknown, tree: Mapping[str, Any]) -> list[str]:
    wanted = {unknown.name, SYNONYMS.get(unknown.name, unknown.name)}
    return [key for key in _dotted(tree) if key.rpartition(".")[2] in wanted and key != unknown.key][:2]


def _dotted(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in tree.items():
        if name != "kind":
            yield f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{name}.")
