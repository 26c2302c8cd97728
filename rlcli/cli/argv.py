"""The words after ``rlcli train``, sorted into overrides and flags. Loads nothing but the standard library."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rlcli.core.errors import ConfigError, did_you_mean

_ALIASES = {
    "-h": "--help",
    "-m": "--multirun",
    "-c": "--cfg",
    "-p": "--package",
    "-i": "--info",
    "-cd": "--config-dir",
    "-cn": "--config-name",
}
_WITH_VALUE = ("--cfg", "--package", "--config-dir", "--config-name", "--resume", "--info")
LIST_FLAGS = ("-cd", "--config-dir", "-h", "--help")
"""Those that the verb list has."""

_FLAGS = (*_WITH_VALUE, "--help", "--multirun", "--resolve", "--hydra-help", "--version")
_WORDS = {
    "--cfg": ("job", "hydra", "all"),
    "--info": ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath"),
}
_KEY = re.compile(r"[~+]*[A-Za-z_][\w./@:$-]*")


@dataclass
class Request:
    """What the user asked for."""

    overrides: list[str] = field(default_factory=list)
    """key=value, as typed; --resume FILE has become one."""
    config_dirs: list[Path] = field(default_factory=list)
    """Folders of -cd, absolute."""
    config_name: str = "train"
    multirun: bool = False
    resume_run: str | None = None
    """Value of --resume that is no file: a run to go on with."""
    help: bool = False
    version: bool = False
    show: list[str] = field(default_factory=list)
    """Hydra's flags that print something instead of running."""


def parse(argv: Sequence[str]) -> Request:
    """Sort the words; flags and overrides may come in any order.

    Raises:
        ConfigError: A word is neither, a flag is unknown, or a key is given twice.
    """
    request = Request()
    words = list(argv)
    while words:
        word = words.pop(0)
        if word.startswith("-"):
            _take_flag(word, words, request)
        else:
            request.overrides.append(_override(word))
    _refuse_twice(request.overrides)
    if request.show and request.multirun:
        raise ConfigError(f"-m: {request.show[0]} shows one job and runs none; leave out -m")
    if request.show and request.show[0] in ("--package", "--resolve") and "--cfg" not in request.show:
        raise ConfigError(f"{request.show[0]}: goes with --cfg job")
    return request


def key_of(override: str) -> str:
    """The key of an override without the signs before it."""
    return override.partition("=")[0].lstrip("~+")


def quoted(text: str) -> str:
    """``text`` as a value that Hydra reads as it stands, whatever is in it."""
    inner = re.sub(r'(\\*)(")', r"\1\1\\\2", text)
    inner = re.sub(r"(\\+)$", r"\1\1", inner)
    return f'"{inner}"'


def quoting_hint(override: str) -> str:
    """How the override is written in a shell so that its value is one text."""
    key, _, value = override.partition("=")
    return f"if it is one text, quote it: {shlex.quote(f'{key}={quoted(value)}')}"


def raw_texts(overrides: Sequence[str]) -> dict[str, str]:
    """Key -> value as typed."""
    return {key_of(o): o.partition("=")[2] for o in overrides if "=" in o}


def _take_flag(word: str, rest: list[str], request: Request) -> None:
    name, has_value, value = word.partition("=")
    name = _ALIASES.get(name, name)
    if name not in _FLAGS:
        raise ConfigError(_unknown_flag(word))
    if name in _WITH_VALUE and not has_value:
        value = _next_word(name, rest)
    elif has_value and name not in _WITH_VALUE:
        raise ConfigError(f"{name}: takes no value")
    _apply_flag(name, value, request)


def _next_word(name: str, rest: list[str]) -> str:
    if name == "--info" and (not rest or rest[0] not in _WORDS["--info"]):
        return "all"
    if not rest or (name != "--resume" and rest[0].startswith("-")):
        raise ConfigError(f"{name}: needs a value")
    return rest.pop(0)


def _apply_flag(name: str, value: str, request: Request) -> None:
    if name in _WORDS and value not in _WORDS[name]:
        raise ConfigError(f"{name}: {value!r} is not allowed, must be one of {', '.join(_WORDS[name])}")
    if name == "--multirun":
        request.multirun = True
    elif name == "--help":
        request.help = True
    elif name == "--version":
        request.version = True
    elif name == "--config-name":
        request.config_name = value.removesuffix(".yaml")
    elif name == "--config-dir":
        request.config_dirs.append(_folder(value))
    elif name == "--resume":
        path = Path(value).expanduser().absolute()
        if path.is_file() or (path.suffix == ".pkl" and not path.is_dir()):
            request.overrides.append(f"resume={quoted(str(path))}")
        elif request.resume_run is not None:
            raise ConfigError("--resume: given twice")
        else:
            request.resume_run = value
    else:
        request.show += [name, value] if value else [name]


def _folder(text: str) -> Path:
    folder = Path(text).expanduser().absolute()
    if not folder.is_dir():
        raise ConfigError(f"-cd: there is no folder {text!r}")
    return folder


def _unknown_flag(word: str) -> str:
    name, _, value = word.partition("=")
    bare = name.lstrip("-").replace("-", "_")
    if name == "-cp" or name == "--config-path":
        return "-cp: would replace rlcli's own configuration; -cd DIR adds a folder to it"
    hint = did_you_mean(name, _FLAGS)
    if not hint and bare.isidentifier():
        hint = f"; keys are written without dashes: {bare}={value or '...'}"
    return f"{name}: unknown flag{hint or '; see rlcli train --help'}"


def _override(word: str) -> str:
    if "=" not in word and not word.startswith("~"):
        return _refuse(f"{word}: expected key=value (no space around the =) or a flag; see rlcli train --help")
    key = word.partition("=")[0]
    if not _KEY.fullmatch(key):
        return _refuse(f"{word}: expected key=value, but {key!r} is no key")
    return word


def _refuse(line: str) -> str:
    raise ConfigError(line)


def _refuse_twice(overrides: Sequence[str]) -> None:
    lines = list(_twice(overrides))
    if lines:
        raise ConfigError(lines)


def _twice(overrides: Sequence[str]) -> Iterator[str]:
    seen: dict[str, str] = {}
    for override in overrides:
        key = key_of(override)
        if key in seen:
            yield f"{key}: given twice, {seen[key]!r} and {override!r}"
        seen[key] = override
