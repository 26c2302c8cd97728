"""Config of the MinAtar games."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlcli.core.errors import did_you_mean
from rlcli.core.options import option
from rlcli.envs.config import refuse

if TYPE_CHECKING:
    import gymnasium

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")


@dataclass
class MinAtarConfig:
    """A game of MinAtar (Young and Tian 2019, arXiv 1903.03176), which must be installed: ``rlcli[minatar]``."""

    game: str = option("breakout", f"One of {', '.join(GAMES)}; SpaceInvaders means space_invaders.")
    sticky: float = option(
        0.1, "Probability, in each step, that the last action is repeated (Young and Tian 2019).", ge=0, le=1
    )
    difficulty_ramping: bool = option(
        True, "Asterix, Seaquest and Space Invaders become harder as an episode goes on (Young and Tian 2019)."
    )
    minimal_actions: bool = option(
        False, "Only the actions that do something in this game; false: all 6 in every game (Young and Tian 2019)."
    )

    @property
    def module(self) -> str:
        """The game as the package calls it; only of a name without `problems`."""
        return _by_letters()[_letters(self.game)]

    @property
    def label(self) -> str:
        """Short name, safe in a folder's name."""
        return f"minatar_{self.module}"

    def problems(self) -> list[str]:
        """The game's name; whether MinAtar is installed is seen when it is built."""
        if _letters(self.game) in _by_letters():
            return []
        return [f"game: no MinAtar game {self.game!r}, must be one of {', '.join(GAMES)}{self._nearest()}"]

    def build(self) -> gymnasium.Env[Any, Any]:
        """A new environment, not yet reset.

        Raises:
            ConfigError: No such game, or MinAtar is not installed.
        """
        from rlcli.envs.minatar import MinAtarEnv

        refuse(self.problems())
        return MinAtarEnv(self)

    def _nearest(self) -> str:
        return did_you_mean(self.game.lower(), GAMES)


def _by_letters() -> dict[str, str]:
    return {_letters(game): game for game in GAMES}


def _letters(game: str) -> str:
    return game.lower().replace("_", "")
