"""The border between one gymnasium environment and the program: what goes in and what comes out."""

from __future__ import annotations

from collections.abc import Callable, KeysView, Mapping
from math import isfinite
from operator import index
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rlcli.core.errors import ConfigError, EnvError

RAW_REWARD = "rlcli.raw_reward"
"""Key of a step's info: the reward before clipping or scaling; without it the reward itself is raw."""
LIFE_LOST = "rlcli.life_lost"
"""Key of a step's info: the learning episode ended while the game goes on."""
_LARGEST = float(np.finfo(np.float32).max)


class Outcome(NamedTuple):
    """One step of one environment."""

    obs: Any
    """As the environment gave it."""
    reward: float
    raw_reward: float
    terminated: bool
    """The game is over."""
    truncated: bool
    life_lost: bool


def checked_reset(env: gymnasium.Env[Any, Any], seed: int | None = None) -> Any:
    """The first observation of a new episode; without ``seed`` the random stream goes on.

    Raises:
        EnvError: reset() takes no seed, or gave something else than (observation, info).
    """
    try:
        got = env.reset() if seed is None else env.reset(seed=seed)
    except TypeError as error:
        if "unexpected keyword argument 'seed'" in str(error):
            raise EnvError("reset() must take the keyword seed, without it this is the old API of gym") from error
        raise
    if not isinstance(got, tuple) or len(got) != 2 or not isinstance(got[1], Mapping | None):
        raise EnvError(f"reset() must return (observation, info), it returned {_shown(got)}")
    return got[0]


def checked_step(env: gymnasium.Env[Any, Any], action: Any) -> Outcome:
    """One step; everything in ``info`` but rlcli's own keys is ignored.

    Raises:
        EnvError: step() gave something else than (observation, reward, terminated, truncated, info), or a reward
            that float32 cannot hold; NaN and infinities are left to whoever checks whole batches.
    """
    try:
        got: Any = env.step(action)
    except ValueError as error:
        if "expected 5, got 4" in str(error):  # a wrapper of gymnasium's choked on it before we could see it
            raise EnvError(_ARITY.format("4 values, the old API of gym")) from error
        raise
    if not isinstance(got, tuple) or len(got) != 5:
        n = len(got) if isinstance(got, tuple) else 0
        raise EnvError(_ARITY.format("4 values, the old API of gym" if n == 4 else _shown(got)))
    obs, reward, terminated, truncated, info = got
    reward = reward if type(reward) is float else _number(reward, "reward")
    if abs(reward) > _LARGEST and isfinite(reward):
        raise EnvError(f"reward is {reward}, must be at most {_LARGEST:.3g} in size, what float32 holds")
    terminated = terminated if type(terminated) is bool else _flag(terminated, "terminated")
    truncated = truncated if type(truncated) is bool else _flag(truncated, "truncated")
    raw_reward, life_lost = reward, False
    if isinstance(info, Mapping):
        if RAW_REWARD in info:
            raw_reward = _number(info[RAW_REWARD], RAW_REWARD)
            if not isfinite(raw_reward):
                raise EnvError(f"info[{RAW_REWARD!r}] is {raw_reward}, must be finite")
        life_lost = info.get(LIFE_LOST, False)
        life_lost = life_lost if type(life_lost) is bool else _flag(life_lost, LIFE_LOST)
    return Outcome(obs, reward, raw_reward, terminated, truncated, life_lost)


_ARITY = "step() must return (observation, reward, terminated, truncated, info), it returned {}"


def write_obs(out: Any, row: int, obs: Any, path: str = "obs") -> None:
    """Copy one observation into row ``row`` of ``out``, an array or a dict of them ([B, ...] leaves).

    Raises:
        EnvError: Another shape, a value that ``out`` cannot hold, or other parts. Nothing is broadcast.
    """
    if isinstance(out, dict):
        parts = obs_parts(obs, out.keys(), path)
        for key, leaf in out.items():
            write_obs(leaf, row, parts[key], f"{path}.{key}")
    else:
        out[row] = obs_array(obs, out.dtype, out.shape[1:], path)


def obs_parts(obs: Any, keys: KeysView[str], path: str) -> Mapping[str, Any]:
    """The parts of a composite observation by key; those of a tuple or list are "0", "1" ...

    Raises:
        EnvError: Other parts than ``keys``.
    """
    parts = dict(zip(tuple_keys(len(obs)), obs, strict=True)) if isinstance(obs, tuple | list) else obs
    if not isinstance(parts, Mapping) or parts.keys() != keys:
        expected = f"a tuple of {len(keys)}" if keys == set(tuple_keys(len(keys))) else f"the keys {sorted(keys)}"
        got = f"the keys {sorted(map(str, obs))}" if isinstance(obs, Mapping) else _shown(obs)
        raise EnvError(f"{path}: expected {expected}, got {got}")
    return parts


def tuple_keys(n_parts: int) -> list[str]:
    """What the parts of a Tuple space are called inside the program."""
    return [str(i) for i in range(n_parts)]


def obs_array(obs: Any, dtype: np.dtype[Any], shape: tuple[int, ...], path: str) -> npt.NDArray[Any]:
    """An observation without parts as an array; it is neither copied nor cast if it is one.

    Raises:
        EnvError: Another shape, or values that ``dtype`` cannot hold.
    """
    try:
        value = np.asarray(obs)
    except ValueError as error:  # lists of different lengths
        raise EnvError(f"{path}: expected {dtype} {shape}, got {_shown(obs)}") from error
    if value.shape != shape or (value.dtype != dtype and not np.can_cast(value.dtype, dtype, "same_kind")):
        raise EnvError(f"{path}: expected {dtype} {shape}, got {value.dtype} {value.shape}")
    return value


def action_converter(space: gymnasium.Space[Any]) -> Callable[[Any], Any]:
    """What turns an agent's action for one environment into the environment's own, a copy.

    Agents give int64 indices from 0 for Discrete and MultiDiscrete (whose ``start`` is added here), int8 for
    MultiBinary, float32 for a Box of floats and int64 for one of integers, for a Dict or Tuple a dict of these (a
    Tuple's keys are "0", "1" ...). The converter raises `EnvError` for an action that the space does not have. In a Box
    of floats that is only one that is not finite: what lies outside the bounds is the environment's to clip or to
    refuse.

    Raises:
        ConfigError: Any other space, or a Dict or Tuple without parts.
    """
    return _converter(space, "action")


def _converter(space: gymnasium.Space[Any], path: str) -> Callable[[Any], Any]:
    """``path`` is how messages call the action."""
    if isinstance(space, spaces.Discrete):
        return _index_converter(space, path)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return _float_converter(space, path)
    if isinstance(space, spaces.Box):
        return _integer_converter(space, path, space.low, space.high)
    if isinstance(space, spaces.MultiDiscrete):
        return _integer_converter(space, path, np.zeros_like(space.nvec), space.nvec - 1, space.start)
    if isinstance(space, spaces.MultiBinary):
        return _integer_converter(space, path, np.zeros(space.shape, np.int8), np.ones(space.shape, np.int8))
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _parts_converter(space, path)
    name, what = type(space).__name__, "the actions are" if path == "action" else f"{path} is"
    raise ConfigError(
        f"env: {what} a {name} space, which is not supported; supported are Discrete, MultiDiscrete, MultiBinary, "
        "Box, and Dict and Tuple of them"
    )


def action_parts(space: gymnasium.Space[Any]) -> dict[str, gymnasium.Space[Any]]:
    """The parts of a Dict or Tuple space by the names under which an agent gives their actions.

    Raises:
        ConfigError: There are none, or a key is no string.
    """
    if isinstance(space, spaces.Tuple):
        parts = dict(zip(tuple_keys(len(space.spaces)), space.spaces, strict=True))
    else:
        assert isinstance(space, spaces.Dict)
        parts = dict(space.spaces)
    if not parts:
        raise ConfigError(f"env: the actions are a space without parts: {space}")
    for key in parts:
        if not isinstance(key, str):
            raise ConfigError(f"env: the actions have the key {key!r}, the keys of a Dict space must be strings")
    return parts


def _parts_converter(space: gymnasium.Space[Any], path: str) -> Callable[[Any], Any]:
    converters = {key: _converter(part, f"{path}.{key}") for key, part in action_parts(space).items()}
    is_tuple = isinstance(space, spaces.Tuple)

    def convert(action: Any) -> Any:
        if not isinstance(action, Mapping) or action.keys() != converters.keys():
            got = f"the keys {sorted(map(str, action))}" if isinstance(action, Mapping) else _shown(action)
            raise EnvError(f"{path} must have the keys {sorted(converters)}, it is {got}")
        converted = {key: part(action[key]) for key, part in converters.items()}
        return tuple(converted.values()) if is_tuple else converted

    return convert


def _index_converter(space: spaces.Discrete, path: str) -> Callable[[Any], int]:
    n, start = int(space.n), int(space.start)

    def convert(action: Any) -> int:
        try:
            i = index(action)
        except TypeError as error:
            raise EnvError(f"{path} must be one integer, it is {_shown(action)}") from error
        if not 0 <= i < n:
            raise EnvError(f"{path} is {i}, allowed are 0 to {n - 1}")
        return start + i

    return convert


def _integer_converter(space: Any, path: str, low: Any, high: Any, start: Any = 0) -> Callable[[Any], npt.NDArray[Any]]:
    """``low`` and ``high``, both allowed, are bounds of the agent's numbers, before ``start`` is added."""
    dtype, shape = space.dtype, space.shape

    def convert(action: Any) -> npt.NDArray[Any]:
        value = np.asarray(action)
        if value.shape != shape or value.dtype.kind not in "iub":
            raise EnvError(f"{path} must be integers {shape}, it is {_shown(value)}")
        outside = (value < low) | (value > high)
        if outside.any():
            at = _first(outside)
            raise EnvError(f"{path}{list(at) or ''} is {value[at]}, allowed are {low[at]} to {high[at]}")
        converted: npt.NDArray[Any] = (value + start).astype(dtype)
        return converted

    return convert


def _float_converter(space: spaces.Box, path: str) -> Callable[[Any], npt.NDArray[Any]]:
    dtype, shape = space.dtype, space.shape

    def convert(action: Any) -> npt.NDArray[Any]:
        value = np.array(action, dtype)
        if value.shape != shape:
            raise EnvError(f"{path} must be floats {shape}, it is {_shown(value)}")
        finite = np.isfinite(value)
        if not finite.all():
            at = _first(~finite)
            raise EnvError(f"{path}{list(at) or ''} is {value[at]}, it must be finite")
        return value

    return convert


def random_action(space: gymnasium.Space[Any], rng: np.random.Generator) -> Any:
    """An action as an agent would give it, uniform over ``space``; normal where a Box of floats has no bounds.

    That of a Dict or Tuple space is a dict.

    Args:
        space: One that `action_converter` takes.
        rng: All the randomness.
    """
    if isinstance(space, spaces.Discrete):
        return np.int64(rng.integers(int(space.n)))
    if isinstance(space, spaces.MultiDiscrete):
        return np.asarray(rng.integers(space.nvec), np.int64)
    if isinstance(space, spaces.MultiBinary):
        return rng.integers(2, size=space.shape, dtype=np.int8)
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return {key: random_action(part, rng) for key, part in action_parts(space).items()}
    assert isinstance(space, spaces.Box)
    return _random_floats(space, rng) if np.issubdtype(space.dtype, np.floating) else _random_integers(space, rng)


def _random_integers(space: spaces.Box, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    high: Any = space.high
    if high.dtype == np.uint64:
        high = np.minimum(high, np.uint64(np.iinfo(np.int64).max))
    low, high = space.low.astype(np.int64), high.astype(np.int64)
    return np.asarray(rng.integers(low, high, endpoint=True, dtype=np.int64))


def _random_floats(space: spaces.Box, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    uniform, normal = rng.random(space.shape), rng.standard_normal(space.shape)
    widest = np.finfo(np.float32).max  # float64 bounds beyond it are none to an agent
    bounded = (space.low >= -widest) & (space.high <= widest)
    low, high = (np.where(bounded, bound, 0.0).astype(np.float64) for bound in (space.low, space.high))
    action = np.where(bounded, low + uniform * (high - low), normal)
    return np.clip(action, space.low, space.high).astype(np.float32)


def _first(mask: npt.NDArray[np.bool_]) -> tuple[int, ...]:
    """Where ``mask`` is True first; () in an array without dimensions."""
    return tuple(int(i) for i in np.argwhere(mask)[0])


def _flag(value: Any, what: str) -> bool:
    """A bool; also 0 and 1, and arrays of one such element."""
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf" or array.reshape(()) not in (0, 1):
        raise EnvError(f"{what} must be true or false, got {_shown(value)}")
    return bool(array.reshape(()))


def _number(value: Any, what: str) -> float:
    if isinstance(value, int | float | np.number | np.bool_):
        return float(value)
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "fiub":
        raise EnvError(f"{what} must be one number, got {_shown(value)}")
    return float(array.reshape(()))


def _shown(value: Any) -> str:
    """A value in few words."""
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype} {value.shape}"
    if isinstance(value, tuple):
        return f"{len(value)} values ({', '.join(type(v).__name__ for v in value)})"
    text = repr(value)
    return text if len(text) <= 60 else f"{type(value).__name__} {text[:60]}..."
