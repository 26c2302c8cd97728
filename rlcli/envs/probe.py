"""One example step of an environment, before anything is built on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rlcli.core.errors import ConfigError, EnvError, RlcliError
from rlcli.core.rng import Purpose, generator, integer_seed
from rlcli.core.spec import EnvSpec
from rlcli.core.stop import Stopped
from rlcli.core.tree import map_tree
from rlcli.envs.gym import (
    action_converter,
    checked_reset,
    checked_step,
    obs_array,
    obs_parts,
    random_action,
    tuple_keys,
)

if TYPE_CHECKING:
    from rlcli.envs.config import EnvConfig

_ARRAYS = (
    gymnasium.spaces.Box,
    gymnasium.spaces.Discrete,
    gymnasium.spaces.MultiDiscrete,
    gymnasium.spaces.MultiBinary,
)
"""Spaces whose elements are arrays of one shape and dtype."""


def probe(config: EnvConfig, seed: int = 0) -> EnvSpec:
    """Build one environment, reset it, take one random step and close it.

    An environment that stacks frames along the first axis of its observation says how many in an attribute
    ``frame_stack``; a config may have lines for the user in an attribute ``notes``.

    Args:
        config: Anything with ``build() -> gymnasium.Env``.
        seed: Run seed; the probe has a stream of its own.

    Raises:
        ConfigError: A space that rlcli does not support, or a request that the environment cannot meet.
        EnvError: The environment raised (its exception is the cause), or broke its own spaces.
    """
    env: gymnasium.Env[Any, Any] = _call("building the environment", config.build)
    try:
        return _examine(env, seed, tuple(getattr(config, "notes", ())))
    finally:
        _call("close()", env.close)


def _examine(env: gymnasium.Env[Any, Any], seed: int, notes: tuple[str, ...]) -> EnvSpec:
    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(env, name, None), gymnasium.Space):
            raise EnvError(f"{name} must be a gymnasium space, it is {getattr(env, name, None)!r}")
    space = entering_space(env.observation_space)
    convert = action_converter(env.action_space)
    action = random_action(env.action_space, generator(seed, Purpose.PROBE))

    found: dict[str, None] = dict.fromkeys(notes)  # an ordered set
    first = _call("reset()", lambda: checked_reset(env, integer_seed(seed, Purpose.PROBE)))
    example = _example(space, first, found)
    outcome = _call("step()", lambda: checked_step(env, convert(action)))
    _example(space, outcome.obs, found)
    return EnvSpec(
        observation_space=space,
        action_space=env.action_space,
        example_obs=example,
        example_action=map_tree(np.asarray, action),
        frame_stack=int(getattr(env, "frame_stack", 1)),
        stacked_key=getattr(env, "stacked_key", None),
        notes=tuple(found),
    )


def entering_space(space: gymnasium.Space[Any], path: str = "obs") -> gymnasium.Space[Any]:
    """The space of observations as they enter the program: a Tuple has become a Dict with the keys "0", "1" ...

    Raises:
        ConfigError: A space that cannot become an array or a dict of arrays; names it and its place.
    """
    if isinstance(space, _ARRAYS):
        return space
    if isinstance(space, gymnasium.spaces.Dict):
        parts = list(space.spaces.items())
    elif isinstance(space, gymnasium.spaces.Tuple):
        parts = list(zip(tuple_keys(len(space.spaces)), space.spaces, strict=True))
    else:
        name = type(space).__name__
        raise ConfigError(
            f"env: {path} is a {name} space, which is not supported; supported are Box, Discrete, MultiDiscrete, "
            "MultiBinary, and Dict and Tuple of them"
        )
    if not parts:
        raise ConfigError(f"env: {path} is a space without parts: {space}")
    for key, _ in parts:
        if not isinstance(key, str):
            raise ConfigError(f"env: {path} has the key {key!r}, the keys of a Dict space must be strings")
    # pairs, because from a dict the keys would be sorted as words: "10" before "2"
    return gymnasium.spaces.Dict([(key, entering_space(part, f"{path}.{key}")) for key, part in parts])


def _example(space: gymnasium.Space[Any], obs: Any, notes: dict[str, None], path: str = "obs") -> Any:
    """``obs`` as it enters the program, checked against its space."""
    if isinstance(space, gymnasium.spaces.Dict):
        parts = obs_parts(obs, space.spaces.keys(), path)
        return {key: _example(part, parts[key], notes, f"{path}.{key}") for key, part in space.items()}
    declared = np.dtype(space.dtype)
    value = obs_array(obs, declared, space.shape or (), path)
    if np.float64 in (declared, value.dtype) and declared.kind == "f":
        notes[f"{path}: float64 is cast to float32"] = None
    if isinstance(space, gymnasium.spaces.Box):
        _note_bounds(space, value, notes, path)
    return value.astype(np.float32 if declared == np.float64 else declared)


def _note_bounds(space: gymnasium.spaces.Box, value: npt.NDArray[Any], notes: dict[str, None], path: str) -> None:
    outside = (value < space.low) | (value > space.high)
    if outside.any():
        place = tuple(int(i) for i in np.argwhere(outside)[0])
        low, high = space.low[place], space.high[place]
        notes[f"{path}{list(place)}: {value[place]} lies outside the declared bounds [{low}, {high}]"] = None


def _call(what: str, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except (RlcliError, Stopped):  # Stopped is a SystemExit too, but ours
        raise
    except (Exception, SystemExit) as error:
        raise EnvError(f"{what} raised {type(error).__name__}: {error}") from error
