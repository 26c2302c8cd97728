"""Config dataclasses of the environments. Whatever takes time to import waits until an environment is built."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Self

from rlcli.core.errors import ConfigError, EnvError, did_you_mean
from rlcli.core.options import option
from rlcli.envs.atari_names import load_ale, rom_id
from rlcli.envs.mujoco_warnings import tell_in_terminal

if TYPE_CHECKING:
    import gymnasium

    from rlcli.core.protocols import VectorEnv


class EnvConfig(Protocol):
    """What rlcli needs of an environment's config; any dataclass with a `build` will do."""

    def build(self) -> gymnasium.Env[Any, Any]:
        """A new environment, not yet reset."""


def evaluation_config(config: EnvConfig) -> EnvConfig:
    """The config of the evaluation environments: what ``for_evaluation()`` gives, else the same."""
    for_evaluation = getattr(config, "for_evaluation", None)
    return config if for_evaluation is None else for_evaluation()


def short_name(config: EnvConfig) -> str:
    """A name for folders: ``label``, else the class's name in small letters without Config."""
    label = getattr(config, "label", None)
    return type(config).__name__.removesuffix("Config").lower() if label is None else str(label)


@dataclass
class AtariConfig:
    """An Atari 2600 game with the usual preprocessing; the defaults are Mnih et al. 2015, with OpenAI's no-ops."""

    game: str = option(
        "pong",
        "Any game that comes with ale_py: pong, ms_pacman, MsPacman. ALE/Pong-v5, PongNoFrameskip-v4 and "
        "PongDeterministic-v4 mean the same env; the keys below decide on frame skip and sticky actions.",
    )
    frame_skip: int = option(
        4, "Emulator frames that one agent step lasts; the screen is the maximum over the last two (Mnih 2015).", ge=1
    )
    frame_stack: int = option(4, "Screens in one observation, oldest first (Mnih 2015).", ge=1)
    image_size: int = option(84, "Height, and width, of a screen after area resizing, pixels (Mnih 2015).", ge=1)
    image_width: int | None = option(None, "Width of a screen, pixels; null: as image_size.", ge=1)
    grayscale: bool = option(True, "Gray screens [stack, H, W]; False: colours [stack * 3, H, W] (Mnih 2015: gray).")
    sticky: float = option(
        0.0,
        "Probability, in each emulator frame, that the last action is repeated; Machado et al. 2018 use 0.25.",
        ge=0,
        lt=1,
    )
    noop_max: int = option(
        30,
        "A game starts with up to this many no-ops, a random number of emulator frames, a FIRE counted as one of "
        "them; 0: none (Mnih 2015: up to 30).",
        ge=0,
    )
    fire_reset: bool = option(
        True, "Press FIRE once at the start of a game that has the button (OpenAI Baselines, without its second UP)."
    )
    episodic_life: bool = option(True, "A lost life ends the learning episode while the game goes on (Mnih 2015).")
    clip_reward: bool = option(True, "Learn from the sign of the reward (Mnih 2015); scores stay unclipped.")
    full_action_space: bool = option(False, "All 18 actions instead of those that the game knows.")
    mode: int | None = option(None, "Game mode; None: the game's default (Machado 2018).")
    difficulty: int | None = option(None, "Game difficulty; None: the game's default (Machado 2018).")
    max_frames: int = option(
        108_000, "Emulator frames after which a game is truncated, start not counted; 30 minutes (Mnih 2015).", ge=1
    )
    backend: str = option(
        "python",
        "What steps the games: python, one after another; ale, the C++ threads of ale_py, all of a process together. "
        "The samples are the same.",
        choices=("python", "ale"),
    )

    @property
    def rom(self) -> str:
        """The ROM's id, such as ms_pacman.

        Raises:
            ConfigError: There is no such game.
        """
        return rom_id(self.game)

    @property
    def width(self) -> int:
        """Width of a screen, pixels; its height is ``image_size``."""
        return self.image_size if self.image_width is None else self.image_width

    @property
    def label(self) -> str:
        """Short name, safe in a folder's name."""
        return self.rom

    @property
    def native_vector(self) -> bool:
        """Whether `build_vector` gives a vector env, whose threads take the place of worker processes."""
        return self.backend == "ale"

    def problems(self) -> list[str]:
        """The game's name, checked without loading it, and what the backend cannot do."""
        try:
            rom_id(self.game)
        except ConfigError as error:
            return error.problems
        if self.backend != "ale":
            return []
        found = [
            f"{key}: backend=ale cannot set it, leave it at null or take env.backend=python"
            for key in ("mode", "difficulty")
            if getattr(self, key) is not None
        ]
        if self.frame_skip == 1:  # its maximum would be over this screen alone
            found.append("frame_skip: 1 is not allowed with backend=ale, must be >= 2, or take env.backend=python")
        return found

    def for_evaluation(self) -> Self:
        """The same game with whole games and true rewards."""
        return replace(self, episodic_life=False, clip_reward=False)

    def build(self) -> gymnasium.Env[Any, Any]:
        """A new environment, not yet reset.

        Raises:
            ConfigError: No such game, mode or difficulty.
        """
        from rlcli.envs.atari import AtariEnv

        refuse(self.problems())
        return AtariEnv(self)

    def build_vector(self, env_ids: Sequence[int], seed: int, **rest: Any) -> VectorEnv | None:
        """All games of a process in one vector env, None if each is to be built and stepped for itself.

        Args:
            env_ids: Global ids.
            seed: Run seed.
            rest: The other arguments of `rlcli.envs.build.build_vector_env`.

        Raises:
            ConfigError: No such game, or something that the backend cannot do.
        """
        if not self.native_vector:
            return None
        from rlcli.envs.ale_vector import AleVectorEnv

        return AleVectorEnv(self, env_ids, seed, **rest)


@dataclass
class GymConfig:
    """Any environment registered with gymnasium, as gymnasium makes it."""

    id: str = option(
        "", "Registered id (CartPole-v1), or module:Id, where importing the module registers the id (my_envs:Maze-v0)."
    )
    kwargs: dict[str, Any] = option({}, "Keyword arguments for the environment's constructor.")
    max_episode_steps: int | None = option(
        None, "Agent steps after which an episode is truncated; None: as registered.", ge=1
    )

    @property
    def label(self) -> str:
        """Short name, safe in a folder's name: the id without namespace, module and version, in small letters."""
        name = re.sub(r"-v\d+$", "", self._name.rpartition("/")[2]).lower()
        return re.sub(r"[^a-z0-9_.-]+", "_", name).strip(".") or "gym"

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines worth telling the user once."""
        import gymnasium

        spec = gymnasium.registry.get(self._name)
        if spec is None or spec.entry_point != "ale_py.env:AtariEnv":
            return ()
        usual = f"env=atari env.game={spec.kwargs['game']} gives the usual Atari preprocessing"
        return (f"{self._name} runs as gymnasium registers it, without preprocessing; {usual}",)

    def problems(self) -> list[str]:
        """Whether the id is registered; imports the module that the id names.

        Raises:
            EnvError: The module's own code failed.
        """
        if not self._name:
            return ["id: must be given, such as CartPole-v1 or my_module:MyEnv-v0"]
        module = self._import_module()
        if module:
            return [f"id: {module}"]
        options = _registered_ids(self._name)
        known = self._name in options or any(re.fullmatch(re.escape(self._name) + r"-v\d+", o) for o in options)
        return [] if known else [f"id: no environment {self._name!r} is registered{did_you_mean(self._name, options)}"]

    def for_evaluation(self) -> Self:
        """The same environment."""
        return self

    def build(self) -> gymnasium.Env[Any, Any]:
        """A new environment, not yet reset.

        Raises:
            ConfigError: Unknown id, unknown keyword argument, or a package that is not installed.
        """
        import gymnasium

        refuse(self.problems())
        limit = {} if self.max_episode_steps is None else {"max_episode_steps": self.max_episode_steps}
        if self._of_mujoco():
            tell_in_terminal()
        try:
            # the checker of gymnasium warns where rlcli's own check of the border raises or explains
            return gymnasium.make(self._name, disable_env_checker=True, **limit, **self.kwargs)
        except (gymnasium.error.DependencyNotInstalled, ModuleNotFoundError) as error:
            raise ConfigError(f"env.id: {self._name} needs a package that is missing; {self._cure(error)}") from error
        except TypeError as error:
            for key in self.kwargs:
                if f"unexpected keyword argument '{key}'" in str(error):
                    raise ConfigError(f"env.kwargs.{key}: {self._name} takes no such argument") from error
            raise

    @property
    def _module(self) -> str:
        return self.id.rpartition(":")[0]

    @property
    def _name(self) -> str:
        return self.id.rpartition(":")[2]

    def _import_module(self) -> str:
        if not self._module:
            return ""
        try:
            importlib.import_module(self._module)
        except ModuleNotFoundError as error:
            missing = error.name or ""
            if f"{self._module}.".startswith(f"{missing}."):
                return f"there is no module {missing!r} on the import path (PYTHONPATH)"
            return f"module {self._module!r} cannot be imported: {error}"
        except Exception as error:
            raise EnvError(f"importing {self._module} raised {type(error).__name__}: {error}") from error
        return ""

    def _cure(self, error: Exception) -> str:
        return "pip install 'rlcli[mujoco]'" if self._of_mujoco() else str(error)

    def _of_mujoco(self) -> bool:
        import gymnasium

        spec = gymnasium.registry.get(self._name)
        return spec is not None and "mujoco" in str(spec.entry_point)


def _registered_ids(name: str) -> list[str]:
    import gymnasium

    if name not in gymnasium.registry:
        load_ale()  # its ids become known by importing it
    elif gymnasium.registry[name].entry_point == "ale_py.env:AtariEnv":
        load_ale()
    return list(gymnasium.registry)


def refuse(problems: Sequence[str]) -> None:
    """Raise what an env config's ``problems()`` found, if anything, as a ConfigError."""
    if problems:
        raise ConfigError([f"env.{line}" for line in problems])
