"""``key=value`` on a stored configuration: what an evaluation may do otherwise than its training did."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rlcli.cli import argv
from rlcli.cli.config import RunConfig
from rlcli.cli.messages import translated
from rlcli.core.errors import ConfigError, did_you_mean

SAMPLERS = ("serial", "cpu", "gpu")
"""Samplers that an evaluation can run on."""

_KEYS = ("eval.n_envs", "eval.n_episodes", "eval.max_steps", "epsilon.eval", "device", "torch_threads", "imports")
_FREE = "env."
_OWN = ("batch_T", "batch_B", "max_decorrelation_steps", "reset")
_ALLOWED = (
    "an evaluation takes eval.n_envs, eval.n_episodes, eval.max_steps, epsilon.eval, env.*, sampler and sampler.*"
)


def changed(tree: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A copy of a stored configuration with the overrides in it and the sampler serial unless one is chosen.

    Args:
        tree: The configuration as plain containers.
        overrides: key=value texts, values as Hydra reads them.

    Raises:
        ConfigError: A text cannot be read, or its key is one of training's; all problems at once.
    """
    values = override_values(overrides)
    problems = [line for key in values if (line := _problem(key, values[key]))]
    if problems:
        raise ConfigError(problems)
    new = copy.deepcopy(dict(tree))
    sampler = values.pop("sampler", "serial")
    new["sampler"] = {"kind": sampler}
    new["choices"] = {**tree.get("choices", {}), "sampler": sampler}
    for key, value in values.items():
        put(new, key.split("."), value)
    return new


def override_values(overrides: Sequence[str]) -> dict[str, Any]:
    """Key -> value, as Hydra reads key=value texts; each key once, no sweeps, no deletions.

    Raises:
        ConfigError: A text is none of that.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    values: dict[str, Any] = {}
    with translated():
        for override in OverridesParser.create().parse_overrides(list(overrides)):
            text, key = override.input_line or "", override.key_or_group
            if override.is_delete() or override.package is not None:
                raise ConfigError(f"{text}: expected key=value")
            if override.is_sweep_override():
                raise ConfigError(f"{key}: several values, one is taken; {argv.quoting_hint(text)}")
            if key in values:
                raise ConfigError(f"{key}: given twice")
            values[key] = override.value()
    return values


def _problem(key: str, value: Any) -> str | None:
    """Why a key is refused, None if it is not."""
    group, _, name = key.partition(".")
    if key == "sampler":
        known = isinstance(value, str) and value in SAMPLERS
        hint = did_you_mean(str(value), SAMPLERS)
        return None if known else f"sampler: {value!r} is not allowed, must be one of {', '.join(SAMPLERS)}{hint}"
    if group == "sampler":
        return f"{key}: is set by the evaluation itself (eval.n_envs)" if name in _OWN else None
    if key == "env.kind" or key in ("env", "eval", "epsilon"):
        return f"{key}: cannot be changed as a whole, only its keys"
    if key.startswith(_FREE) or key in _KEYS:
        return None
    if key == "seed":
        return "seed: write --seed"
    is_ours = group in {f.name for f in dataclasses.fields(RunConfig)}
    what = "belongs to training" if is_ours else "no such key"
    return f"{key}: {what}{did_you_mean(key, _KEYS)}; {_ALLOWED}"


def put(tree: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set one value; what does not exist on the way is made, and `check` tells if it should not."""
    *groups, name = path
    for group in groups:
        if not isinstance(tree.get(group), dict):
            tree[group] = {}
        tree = tree[group]
    tree[name] = value
