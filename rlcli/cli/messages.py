"""Hydra's and OmegaConf's exceptions in the words of rlcli."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from rlcli.cli import suggest
from rlcli.cli.argv import quoting_hint
from rlcli.core.errors import ConfigError

KIND_IS_FIXED = "cannot be changed; choose another option with {}=..."


@contextmanager
def translated() -> Iterator[None]:
    """Turn what Hydra raises about the user's request into a ConfigError.

    Raises:
        ConfigError: In place of an exception of Hydra, OmegaConf or the YAML parser.
    """
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError  # type: ignore[import-untyped]

    try:
        yield
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        raise ConfigError(describe(error)) from error


def describe(error: Exception) -> str:
    """One line that says what is wrong with which key, group or file."""
    from hydra.errors import MissingConfigException, OverrideParseException
    from omegaconf.errors import OmegaConfBaseException

    if isinstance(error, MissingConfigException):
        return _missing_config(error)
    if isinstance(error, OverrideParseException):
        return f"cannot read {error.override!r}; {quoting_hint(error.override)}"
    cause = error.__cause__ or error.__context__
    for candidate in (error, cause):
        if isinstance(candidate, OmegaConfBaseException):
            return _omegaconf(candidate)
    return _text(str(error)) or type(error).__name__


def _missing_config(error: Exception) -> str:
    name = str(getattr(error, "missing_cfg_file", None) or "").removesuffix(".yaml")
    options = getattr(error, "options", None)
    group, _, option = name.rpartition("/")
    if group and options is not None:
        return suggest.no_option(group, option, options)
    return _text(str(error)).partition(" Search path:")[0]


def _omegaconf(error: Exception) -> str:
    key = getattr(error, "full_key", None) or getattr(error, "key", None)
    line = (str(getattr(error, "msg", None) or error).splitlines() or [""])[0]
    if type(error).__name__ == "ReadonlyConfigError" and str(key).endswith(".kind"):
        group = str(key).removesuffix(".kind")
        return f"{key}: {KIND_IS_FIXED.format(group)}"
    if found := re.match(r"Cannot merge (Dict|List)Config with (Dict|List)Config", line):
        line = f"a {found[1].lower()} is given where a {found[2].lower()} is needed"
    return f"{key}: {line}" if key else line


def _text(text: str) -> str:
    """All lines as one, without Hydra's advice to add a ``+``, which would only hide the mistake."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and (found := re.match(r"Could not override '([^']*)'", lines[0])):
        group = found[1].partition("@")[0]
        return f"{group}: cannot be chosen here, the chosen algo has no {group}"
    if lines and (found := re.match(r"Could not delete from config.* '([^']*)' does not exist", lines[0])):
        return f"{found[1]}: there is no such key to remove"
    kept = [line for line in lines if not re.match(r"To append to your|You can add|Did you mean", line)]
    return " ".join(kept)
