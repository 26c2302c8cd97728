"""The border between one gymnasium environment and the program: what goes in and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from rlcli.core.errors import ConfigError, EnvError

RAW_REWARD = "rlcli.raw_reward"
"""Key of a step's info: the reward before clipping or scaling; without it the reward itself is raw."""
LIFE_LOST = "rlcli.life_lost"
"""Key of a step's info: the learning episode ended while the game goes on."""


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
        EnvError: reset() gave something else than (observation, info).
    """
    got = env.reset() if seed is None else env.reset(seed=seed)
    if not isinstance(got, tuple) or len(got) != 2 or not isinstance(got[1], Mapping | None):
        raise EnvError(f"reset() must return (observation, info), it returned {_shown(got)}")
    return got[0]


def checked_step(env: gymnasium.Env[Any, Any], action: Any) -> Outcome:
    """One step; everything in ``info`` but rlcli's own keys is ignored.

    Raises:
        EnvError: step() gave something else than (observation, reward, terminated, truncated, info).
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
    raw_reward, life_lost = reward, False
    if isinstance(info, Mapping):
        if RAW_REWARD in info:
            raw_reward = _number(info[RAW_REWARD], RAW_REWARD)
        life_lost = bool(info.get(LIFE_LOST, False))
    return Outcome(obs, reward, raw_reward, bool(terminated), bool(truncated), life_lost)


_ARITY = "step() must return (observation, reward, terminated, truncated, info), it returned {}"


def write_obs(out: Any, row: int, obs: Any, path: str = "obs") -> None:
    """Copy one observation into row ``row`` of ``out``, an array or a dict of them ([B, ...] leaves).

    Raises:
        EnvError: Another shape, a value that ``out`` cannot hold, or other keys. Nothing is broadcast.
    """
    if isinstance(out, dict):
        if not isinstance(obs, Mapping) or obs.keys() != out.keys():
            keys = sorted(map(str, obs)) if isinstance(obs, Mapping) else _shown(obs)
            raise EnvError(f"{path}: expected the keys {sorted(out)}, got {keys}")
        for key, leaf in out.items():
            write_obs(leaf, row, obs[key], f"{path}.{key}")
        return
    value = np.asarray(obs)
    if value.shape != out.shape[1:] or (value.dtype != out.dtype and not fits(value.dtype, out.dtype)):
        expected, got = f"{out.dtype} {out.shape[1:]}", f"{value.dtype} {value.shape}"
        raise EnvError(f"{path}: expected {expected}, got {got}")
    out[row] = value


def fits(dtype: np.dtype[Any], into: np.dtype[Any]) -> bool:
    """Whether one dtype may be stored as another: float64 as float32 and ints as floats, never floats as ints."""
    return bool(np.can_cast(dtype, into, "same_kind"))


def action_converter(space: gymnasium.Space[Any]) -> Callable[[Any], Any]:
    """What turns an agent's action for one environment into the environment's own.

    Agents give an index from 0 for Discrete (whose ``start`` is added here) and float32 for Box.

    Raises:
        ConfigError: Any other space.
    """
    if isinstance(space, gymnasium.spaces.Discrete):
        start = int(space.start)
        return lambda index: start + int(index)
    if isinstance(space, gymnasium.spaces.Box) and np.issubdtype(space.dtype, np.floating):
        dtype = space.dtype
        return lambda action: np.array(action, dtype)  # a copy: the environment may change it
    raise ConfigError(f"env: actions of {space} are not supported, only Discrete and Box of floats are")


def random_action(space: gymnasium.Space[Any], rng: np.random.Generator) -> Any:
    """An action as an agent would give it, uniform over ``space``; normal where a Box has no bounds."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return np.int64(rng.integers(int(space.n)))
    assert isinstance(space, gymnasium.spaces.Box)
    uniform, normal = rng.random(space.shape), rng.standard_normal(space.shape)
    bounded = space.bounded_below & space.bounded_above
    low, high = (np.where(bounded, bound, 0.0).astype(np.float64) for bound in (space.low, space.high))
    action = np.where(bounded, low + uniform * (high - low), normal)
    return np.clip(action, space.low, space.high).astype(np.float32)


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
