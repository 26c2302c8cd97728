"""Which Atari game an id means, whatever the style it is written in."""

from __future__ import annotations

import re
from functools import cache
from types import ModuleType

from rlcli.core.errors import ConfigError, did_you_mean

_ID = re.compile(r"(?P<ale>ALE/)?(?P<game>[A-Za-z0-9_]+?)(?P<fixed>NoFrameskip|Deterministic)?(?:-v(?P<version>\d+))?")

_MULTI_PLAYER = frozenset({"combat", "joust", "maze_craze", "warlords"})
"""Bundled ROMs without a single-player game; loading one ends the process."""


def load_ale() -> ModuleType:
    """The module ale_py, which registers its ids with gymnasium; its banner and its notes are off."""
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return ale_py


@cache
def rom_ids() -> tuple[str, ...]:
    """The single-player games that come with ale_py, such as ``ms_pacman``."""
    from ale_py import roms

    return tuple(sorted(set(roms.get_all_rom_ids()) - _MULTI_PLAYER))


def rom_id(game: str) -> str:
    """The ROM that ``game`` means.

    Args:
        game: ``ms_pacman``, ``MsPacman``, ``ALE/MsPacman-v5``, ``MsPacmanNoFrameskip-v4`` or
            ``MsPacmanDeterministic-v4`` (the last two also with -v0).

    Raises:
        ConfigError: No such game, or an id that stands for a random frame skip. Its line begins with ``game:``.
    """
    match = _ID.fullmatch(game)
    if match is None:
        raise ConfigError(f"game: {game!r} is no Atari id{did_you_mean(game.lower(), rom_ids())}")
    name = match["game"].lower()
    if name.replace("_", "") in {r.replace("_", "") for r in _MULTI_PLAYER}:
        raise ConfigError(f"game: {game!r} can only be played by two")
    rom = {r.replace("_", ""): r for r in rom_ids()}.get(name.replace("_", ""))
    if rom is None:
        raise ConfigError(f"game: no Atari game {game!r}{did_you_mean(name, rom_ids())}")
    if match["version"] is not None or match["ale"] or match["fixed"]:
        _check_style(game, rom, match)
    return rom


def _check_style(game: str, rom: str, match: re.Match[str]) -> None:
    version, fixed = match["version"], match["fixed"]
    if match["ale"]:
        fits = not fixed and version in (None, "5")
    elif fixed:
        fits = version in (None, "0", "4")
    elif version in ("0", "4"):
        raise ConfigError(
            f"game: {game!r} stands for a random frame skip (2 to 4 emulator frames, drawn at each step), "
            f"write {rom!r} or 'ALE/{rom.title().replace('_', '')}-v5'; env.frame_skip and env.sticky set the rest"
        )
    else:
        fits = False
    if not fits:
        raise ConfigError(f"game: there is no version {game!r}, write {rom!r}")
