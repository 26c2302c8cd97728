"""One Atari 2600 game straight on the emulator: frame skip, screens, stacks, lives and rewards in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cv2
import gymnasium
import numpy as np
import numpy.typing as npt

from rlcli.core.errors import ConfigError
from rlcli.envs.atari_names import load_ale
from rlcli.envs.gym import LIFE_LOST, RAW_REWARD
from rlcli.envs.start_noops import StartNoops

if TYPE_CHECKING:
    from rlcli.envs.config import AtariConfig

Screen = npt.NDArray[np.uint8]


class AtariEnv(gymnasium.Env[Screen, Any]):
    """A game as a gymnasium environment; ``terminated`` means game over, never a lost life.

    The observation is uint8, [stack, H, W] or, in colour, [stack * 3, H, W]: the last screens, oldest first, zeros
    before the game's first. ``info`` of a step holds ``rlcli.raw_reward``, the unclipped reward, and
    ``rlcli.life_lost``, whether a life was lost with the game going on and `episodic_life` asked to be told.

    ``reset(seed=s)`` seeds the emulator and the no-ops with exactly s, other resets go on in the same streams. So
    everything is as in ale_py's AtariVectorEnv for the same seed (`rlcli.envs.ale_vector`), bit for bit.

    Args:
        config: Every setting.

    Raises:
        ConfigError: The game has no such mode or difficulty.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 60}
    render_mode = "rgb_array"

    def __init__(self, config: AtariConfig) -> None:
        ale_py = load_ale()
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", config.sticky)
        self._config = config
        self._rom = ale_py.roms.get_rom_path(config.rom)
        # ALE's own default seed is the second of the day: environments made together would be one and the same
        self._seed(int(np.random.SeedSequence().generate_state(1)[0] >> 1))

        moves = self.ale.getLegalActionSet() if config.full_action_space else self.ale.getMinimalActionSet()
        self._moves = list(moves)
        self._noop, self._fire = ale_py.Action.NOOP, ale_py.Action.FIRE
        self._press_fire = config.fire_reset and self._fire in self._moves
        self.action_space = gymnasium.spaces.Discrete(len(self._moves))

        self.frame_stack = config.frame_stack
        self._channels = 1 if config.grayscale else 3
        shape = (config.frame_stack * self._channels, config.image_size, config.width)
        self.observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        self.metadata = {**self.metadata, "render_fps": max(1, 60 // config.frame_skip)}

        screen = self.ale.getScreenDims() if config.grayscale else (*self.ale.getScreenDims(), 3)
        self._read = self.ale.getScreenGrayscale if config.grayscale else self.ale.getScreenRGB
        self._earlier, self._later, self._pooled = (np.zeros(screen, np.uint8) for _ in range(3))
        self._stack = np.zeros(shape, np.uint8)
        self._n_frames = self._lives = 0
        cv2.setNumThreads(1)  # a screen is too small for threads to help; workers share the cores

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Screen, dict[str, Any]]:
        """Start a game; with ``seed`` also the random streams of emulator and no-ops."""
        super().reset(seed=seed)
        if seed is not None:
            self._seed(seed)
        self.ale.reset_game()
        self._start()
        self._n_frames = 0
        self._lives = self.ale.lives()
        self._earlier.fill(0)
        self._stack.fill(0)
        self._read(self._later)
        np.copyto(self._pooled, self._later)
        return self._observe(), {}

    def step(self, action: int) -> tuple[Screen, float, bool, bool, dict[str, Any]]:
        """Hold an action for `frame_skip` emulator frames, fewer if the game ends or `max_frames` is reached."""
        if not 0 <= action < len(self._moves):
            raise ValueError(f"action {action} is not one of 0 .. {len(self._moves) - 1}")
        raw_reward, game_over = self._play(self._moves[action])
        truncated = not game_over and self._n_frames >= self._config.max_frames

        lives = self.ale.lives()
        # some games show 0 lives for a while before they are over: that end is told once, as game over
        life_lost = self._config.episodic_life and 0 < lives < self._lives and not game_over
        self._lives = lives
        reward = float(raw_reward)
        if self._config.clip_reward:
            reward = float((raw_reward > 0) - (raw_reward < 0))
        info = {RAW_REWARD: float(raw_reward), LIFE_LOST: life_lost}
        return self._observe(), reward, game_over, truncated, info

    def render(self) -> Screen:
        """The emulator's screen in colour, uint8 [210, 160, 3] (a few games have more lines)."""
        screen: Screen = self.ale.getScreenRGB()
        return screen

    def get_action_meanings(self) -> list[str]:
        """The name of each action: NOOP, FIRE, UP ..."""
        return [move.name for move in self._moves]

    def _seed(self, seed: int) -> None:
        config = self._config
        self._noops = StartNoops(seed)
        self.ale.setInt("random_seed", seed)  # takes effect on loading
        self.ale.loadROM(self._rom)
        if config.mode is not None:
            _check("mode", config.mode, self.ale.getAvailableModes(), config.rom)
            self.ale.setMode(config.mode)
        if config.difficulty is not None:
            _check("difficulty", config.difficulty, self.ale.getAvailableDifficulties(), config.rom)
            self.ale.setDifficulty(config.difficulty)

    def _start(self) -> None:
        """FIRE, then no-ops, after which alone a game over is looked for: all as in ALE's vector env."""
        if self._press_fire:
            self.ale.act(self._fire)
        for _ in range(self._noops.draw(self._config.noop_max) - self._press_fire):
            self.ale.act(self._noop)
            if self.ale.game_over():
                self.ale.reset_game()

    def _play(self, move: Any) -> tuple[int, bool]:
        """Raw reward and whether the game is over; leaves the maximum of the last two screens in ``_pooled``."""
        ale, n_frames = self.ale, self._config.frame_skip
        raw_reward = 0
        for n_left in range(n_frames - 1, -1, -1):
            raw_reward += ale.act(move)
            self._n_frames += 1
            game_over = ale.game_over()
            if game_over or self._n_frames >= self._config.max_frames:
                # as in ALE's vector env: no screen after the end, only what was seen before it
                np.maximum(self._pooled, self._earlier, out=self._pooled)
                return raw_reward, game_over
            if n_left == 1:
                self._read(self._earlier)
            elif n_left == 0:
                if n_frames == 1:
                    self._earlier, self._later = self._later, self._earlier
                self._read(self._later)
        np.maximum(self._earlier, self._later, out=self._pooled)
        return raw_reward, False

    def _observe(self) -> Screen:
        """The stack with the pooled screen behind it, in an array of its own."""
        n, size = self._channels, (self._config.width, self._config.image_size)  # cv2 has the width first
        self._stack[:-n] = self._stack[n:]
        if n == 1:
            cv2.resize(self._pooled, size, dst=self._stack[-1], interpolation=cv2.INTER_AREA)
        else:
            small = cv2.resize(self._pooled, size, interpolation=cv2.INTER_AREA)
            self._stack[-n:] = small.transpose(2, 0, 1)
        return self._stack.copy()


def _check(key: str, value: int, available: list[int], rom: str) -> None:
    if value not in available:
        raise ConfigError(f"env.{key}: {value} is not one of those of {rom}: {', '.join(map(str, available))}")
