"""``rlcli list``: what can be chosen, what it is, and the file it comes from."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlcli.cli import argv, paths
from rlcli.core.errors import ConfigError, did_you_mean

_USAGE = """usage: rlcli list [group ...] [-cd DIR]

Prints each option of the groups, what it is, and the YAML file it comes from; of all groups if none is named.
Groups: {groups}"""


def command(words: Sequence[str]) -> int:
    """``rlcli list`` with these words; returns the exit code."""
    try:
        wanted, folders, asks_help = _parse(words)
        known = paths.groups(folders)
        if asks_help:
            print(_USAGE.format(groups=", ".join(known)))
            return 0
        groups = [_group(name, known) for name in wanted] or known
    except ConfigError as error:
        for line in error.problems:
            print(f"rlcli list: {line}", file=sys.stderr)
        return 2
    print("\n\n".join("\n".join(_lines(group, folders)) for group in groups))
    return 0


def _parse(words: Sequence[str]) -> tuple[list[str], list[Path], bool]:
    """Names of groups, folders to look in, whether help is wanted."""
    names: list[str] = []
    flags: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            names.append(word)
        else:
            flags.append(word)
            if word in ("-cd", "--config-dir") and rest:
                flags.append(rest.pop(0))
    request = argv.parse(flags)
    others = [f for f in flags if f.startswith("-") and f.partition("=")[0] not in argv.LIST_FLAGS]
    if others:
        raise ConfigError(f"{others[0]}: no flag of this verb; it has {' '.join(argv.LIST_FLAGS)}")
    return names, [paths.conf_dir(), *request.config_dirs], request.help


def _group(name: str, known: Sequence[str]) -> str:
    """The group that a user means by its name or its plural."""
    for group in known:
        if name in (group, f"{group}s"):
            return group
    raise ConfigError(f"there is no group {name!r}{did_you_mean(name, known)} (there are: {', '.join(known)})")


def _lines(group: str, folders: Sequence[Path]) -> Iterator[str]:
    found = paths.options(folders, group)
    rows = [(f"{group}={name}", paths.first_comment(file), str(file)) for name, file in found.items()]
    width = max((len(row[0]) for row in rows), default=0)
    doc_width = max((len(row[1]) for row in rows), default=0)
    for option, doc, file in rows:
        yield f"{option:<{width}}  {doc:<{doc_width}}  {file}"
