"""The previous action and reward as parts of an observation, for models that ask for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rlcli.core.errors import ConfigError
from rlcli.envs.build import has_native_vector
from rlcli.envs.config import evaluation_config
from rlcli.envs.gym import action_parts

if TYPE_CHECKING:
    from rlcli.envs.config import EnvConfig

OBS, ACTION, REWARD = "obs", "previous_action", "previous_reward"

Vector = npt.NDArray[np.float32]


class PreviousActionReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Observes {"obs": ..., "previous_action": [D], "previous_reward": [1]}, the latter two zero after a reset.

    A discrete action is one-hot, several ones are one after another, numbers stand as they are. It is the action that
    the environment got. A lost life changes nothing: the game goes on.

    Args:
        env: Of any supported action space.
        sign: Whether to observe the reward's sign alone: what learning sees where rewards are clipped, also in an
            evaluation whose rewards are not.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], sign: bool = False) -> None:
        super().__init__(env)
        self._encode, self._n = action_encoder(env.action_space)
        self._sign = sign
        if not isinstance(env.observation_space, spaces.Dict | spaces.Tuple):  # then nothing says what is stacked
            self.frame_stack = int(getattr(env, "frame_stack", 1))
            self.stacked_key = OBS if self.frame_stack > 1 else None
        self.observation_space = spaces.Dict(
            [
                (OBS, env.observation_space),
                (ACTION, spaces.Box(-np.inf, np.inf, (self._n,), np.float32)),
                (REWARD, spaces.Box(-np.inf, np.inf, (1,), np.float32)),
            ]
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """See gymnasium."""
        obs, info = self.env.reset(seed=seed, options=options)
        return self._with(obs, np.zeros(self._n, np.float32), 0.0), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """See gymnasium."""
        vector = self._encode(action)  # before the environment may write into it
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._with(obs, vector, float(reward)), reward, terminated, truncated, info

    def _with(self, obs: Any, action: Vector, reward: float) -> dict[str, Any]:
        seen = np.sign(reward) if self._sign else reward
        return {OBS: obs, ACTION: action, REWARD: np.array([seen], np.float32)}


@dataclass
class PreviousConfig:
    """An environment's config with the previous action and reward added to its observations; see `with_previous`."""

    env: EnvConfig
    """Of the environment itself."""
    sign: bool = False
    """See `PreviousActionReward`."""

    @property
    def label(self) -> Any:
        """That of the environment."""
        return getattr(self.env, "label", type(self.env).__name__.removesuffix("Config").lower())

    @property
    def notes(self) -> tuple[str, ...]:
        """Those of the environment."""
        return tuple(getattr(self.env, "notes", ()))

    def for_evaluation(self) -> Self:
        """The evaluation environment, with the rewards observed as in training."""
        return replace(self, env=evaluation_config(self.env))

    def build(self) -> gymnasium.Env[Any, Any]:
        """A new environment, not yet reset."""
        return PreviousActionReward(self.env.build(), self.sign)


def with_previous(env: EnvConfig, model: Any) -> EnvConfig:
    """The config of the environments that a model is to see: with the previous action and reward if it asks for them.

    Args:
        env: Any config of an environment.
        model: Config of the model; asks with ``adds_previous``, if it has that.

    Raises:
        ConfigError: The environments step in native code, which adds nothing.
    """
    if not getattr(model, "adds_previous", False):
        return env
    if has_native_vector(env):
        backend = getattr(env, "backend", None)
        key, value = ("env", "its own vector env") if backend is None else ("env.backend", str(backend))
        raise ConfigError(
            f"{key}: {value} cannot add the previous action and reward to observations, as the model asks; take "
            f"{'an env without it' if backend is None else 'env.backend=python'} or model.observe_previous=false"
        )
    return PreviousConfig(env, sign=bool(getattr(env, "clip_reward", False)))


def action_encoder(space: gymnasium.Space[Any]) -> tuple[Callable[[Any], Vector], int]:
    """What turns an environment's own action into a vector, and the vector's length."""
    if isinstance(space, spaces.Discrete):
        return _one_hot([int(space.n)], [int(space.start)])
    if isinstance(space, spaces.MultiDiscrete):
        return _one_hot(space.nvec.ravel().tolist(), space.start.ravel().tolist())
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _joined(space)

    def numbers(action: Any) -> Vector:
        return np.array(action, np.float32).reshape(-1)

    return numbers, int(np.prod(space.shape or (), dtype=np.int64))


def _one_hot(sizes: list[int], starts: list[int]) -> tuple[Callable[[Any], Vector], int]:
    places = np.cumsum([0, *sizes[:-1]]) - np.array(starts)

    def encode(action: Any) -> Vector:
        vector = np.zeros(sum(sizes), np.float32)
        vector[places + np.asarray(action).reshape(-1)] = 1.0
        return vector

    return encode, sum(sizes)


def _joined(space: gymnasium.Space[Any]) -> tuple[Callable[[Any], Vector], int]:
    parts = {key: action_encoder(part) for key, part in action_parts(space).items()}
    is_tuple = isinstance(space, spaces.Tuple)

    def encode(action: Any) -> Vector:
        given = dict(zip(parts, action, strict=True)) if is_tuple else action
        return np.concatenate([encoder(given[key]) for key, (encoder, _) in parts.items()])

    return encode, sum(n for _, n in parts.values())
