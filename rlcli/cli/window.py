"""A window that shows pictures at their pace."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcli.core.errors import ConfigError


def has_display() -> bool:
    """Whether a window can be opened here, or SDL is told what to draw on."""
    named = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    return sys.platform in ("win32", "darwin") or any(os.environ.get(name) for name in named)


def check_window() -> None:
    """Refuse a window that could not be opened, before anything is made.

    Raises:
        ConfigError: No display, or pygame is missing.
    """
    if not has_display():
        raise ConfigError("there is no display to open a window on; write a video: --video out.mp4")
    if importlib.util.find_spec("pygame") is None:
        raise ConfigError("a window needs pygame: pip install 'rlcli[play]'; or write a video: --video out.mp4")


@contextmanager
def headless_drawing() -> Iterator[None]:
    """Let pygame, with which many environments draw, work where there is no display and no sound."""
    before = dict(os.environ)
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    if not has_display():
        os.environ["SDL_VIDEODRIVER"] = os.environ["SDL_AUDIODRIVER"] = "dummy"
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


class Window:
    """One window; ESC or its closing button ends the play.

    Args:
        title: In its frame.
        fps: Pictures per second.

    Raises:
        ConfigError: The display refuses.
    """

    def __init__(self, title: str, fps: float) -> None:
        import pygame

        self._pygame: Any = pygame
        self._title, self._fps = title, fps
        self._surface: Any = None
        self._clock = pygame.time.Clock()

    def show(self, picture: npt.NDArray[np.uint8]) -> bool:
        """Show a picture [H, W, 3] and wait for its time to pass; False: the user has seen enough."""
        pygame = self._pygame
        if self._surface is None:
            self._surface = self._open((picture.shape[1], picture.shape[0]))
        self._surface.blit(pygame.surfarray.make_surface(picture.swapaxes(0, 1)), (0, 0))
        pygame.display.flip()
        self._clock.tick(self._fps)
        events = pygame.event.get()
        return not any(e.type == pygame.QUIT or (e.type == pygame.KEYDOWN and e.key == pygame.K_ESCAPE) for e in events)

    def __enter__(self) -> Window:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pygame.display.quit()

    def _open(self, size: tuple[int, int]) -> Any:
        pygame = self._pygame
        try:
            pygame.display.init()
            surface = pygame.display.set_mode(size)
        except pygame.error as error:
            raise ConfigError(f"the display refuses a window ({error}); write a video: --video out.mp4") from error
        pygame.display.set_caption(self._title)
        return surface
