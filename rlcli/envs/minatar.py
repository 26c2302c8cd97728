"""MinAtar's games (Young and Tian 2019) as environments, without the plotting that its package loads."""

from __future__ import annotations

import colorsys
import importlib.util
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rlcli.core.errors import ConfigError

if TYPE_CHECKING:
    from rlcli.envs.minatar_config import MinAtarConfig

Grid = npt.NDArray[np.bool_]
_ACTIONS = ("NOOP", "LEFT", "UP", "RIGHT", "DOWN", "FIRE")
"""In the order of the package's numbers."""
_PIXELS = 16
"""Side of a rendered cell."""


class MinAtarEnv(gymnasium.Env[Grid, Any]):
    """One game; for the same seed and actions it is as ``minatar.Environment``, bit for bit.

    The observation is bool [C, 10, 10], a channel for each kind of object; the package gives the channels last. The
    reward is the game's own. An episode ends where the package says so, in Freeway after 2,500 steps.

    ``reset(seed=s)`` seeds sticky actions and the game, which share one stream, with exactly s; other resets go on in
    it. The action that may be repeated outlives a reset, as in the package.

    Args:
        config: Every setting.

    Raises:
        ConfigError: MinAtar is not installed.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}
    render_mode = "rgb_array"

    def __init__(self, config: MinAtarConfig) -> None:
        self._game: Any = game_class(config.module)(ramping=config.difficulty_ramping)
        self._random: np.random.RandomState = self._game.random
        self._sticky = config.sticky
        self._last_action = 0
        self._moves: list[int] = (
            self._game.minimal_action_set() if config.minimal_actions else list(range(len(_ACTIONS)))
        )
        height, width, n_channels = self._game.state_shape()
        self.action_space = gymnasium.spaces.Discrete(len(self._moves))
        grids: Any = gymnasium.spaces.Box(0, 1, (n_channels, height, width), np.bool_)
        self.observation_space = grids

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Grid, dict[str, Any]]:
        """Start an episode; with ``seed`` also the random stream."""
        super().reset(seed=seed)
        if seed is not None:
            self._random = self._game.random = np.random.RandomState(seed)
        self._game.reset()
        return self._observe(), {}

    def step(self, action: int) -> tuple[Grid, float, bool, bool, dict[str, Any]]:
        """One step of the game with this action, or with the one before it."""
        if not 0 <= action < len(self._moves):
            raise ValueError(f"action {action} is not one of 0 .. {len(self._moves) - 1}")
        if self._random.rand() >= self._sticky:
            self._last_action = self._moves[action]
        reward, over = self._game.act(self._last_action)
        return self._observe(), float(reward), bool(over), False, {}

    def render(self) -> npt.NDArray[np.uint8]:
        """A picture, uint8 [160, 160, 3]: each cell in the colour of its last channel that is on."""
        grid: Grid = self._game.state()
        n_channels = grid.shape[-1]
        colours = [colorsys.hsv_to_rgb(i / n_channels, 0.6, 1.0) for i in range(n_channels)]
        palette = (np.array([(0.0, 0.0, 0.0), *colours]) * 255).astype(np.uint8)
        last_on = (grid * np.arange(1, n_channels + 1)).max(axis=-1)
        picture: npt.NDArray[np.uint8] = palette[last_on].repeat(_PIXELS, axis=0).repeat(_PIXELS, axis=1)
        return picture

    def get_action_meanings(self) -> list[str]:
        """The name of each action: NOOP, LEFT, UP ..."""
        return [_ACTIONS[move] for move in self._moves]

    def _observe(self) -> Grid:
        grid: Grid = self._game.state().transpose(2, 0, 1)
        return np.ascontiguousarray(grid)


@cache
def game_class(module: str) -> type:
    """The class of a game, from its file alone.

    Importing the package would load matplotlib, seaborn and pandas (a second or more in every worker), or without them
    write warnings; the games need numpy only.

    Args:
        module: ``breakout``, ``space_invaders`` ...

    Raises:
        ConfigError: MinAtar is not installed.
    """
    name = f"minatar.environments.{module}"
    package = importlib.util.find_spec("minatar")
    for folder in (package and package.submodule_search_locations) or ():
        path = Path(folder) / "environments" / f"{module}.py"
        spec = importlib.util.spec_from_file_location(name, path) if path.is_file() else None
        if spec is not None and spec.loader is not None:
            loaded = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(loaded)
            found: type = loaded.Env
            return found
    raise ConfigError("env: MinAtar is not installed; pip install 'rlcli[minatar]'")
