"""A picture of the environment with what the agent thinks of it beside: step, score, a bar for each action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.uint8]
"""[H, W, 3], red first."""

_WIDTH, _ROW, _MARGIN = 260, 20, 8
_BAR_LEFT, _BAR_RIGHT = 118, 190
_BACK, _INK, _BAR, _CHOSEN = (24, 24, 28), (225, 225, 225), (70, 110, 160), (240, 170, 50)
_FONT, _SIZE = cv2.FONT_HERSHEY_SIMPLEX, 0.42
_MAX_NAME = 13


@dataclass(frozen=True)
class Thought:
    """What the agent thinks at one step."""

    scores: Sequence[float]
    """One for each action."""
    chosen: int | None
    """Index of the action that was taken, None where the episode is over."""


def enlarged(picture: Picture, scale: int) -> Picture:
    """The picture with each pixel ``scale`` times as wide and high, its edges as they were."""
    bigger = np.repeat(np.repeat(picture, scale, axis=0), scale, axis=1)
    return np.ascontiguousarray(bigger)


def with_panel(picture: Picture, head: Sequence[str], names: Sequence[str], thought: Thought, unit: str) -> Picture:
    """The picture and a panel to its right; as high as the higher of them.

    Args:
        picture: Of the environment.
        head: Lines above the bars.
        names: Of the actions.
        thought: Bars and numbers; the chosen action has a colour of its own.
        unit: What the numbers are. ``probabilities`` have bars from 0 to 1, others from the smallest to the largest.
    """
    height = max(picture.shape[0], 2 * _MARGIN + _ROW * (len(head) + 1 + len(thought.scores)))
    canvas = np.full((height, picture.shape[1] + _WIDTH, 3), _BACK, np.uint8)
    canvas[: picture.shape[0], : picture.shape[1]] = picture
    panel = np.ascontiguousarray(canvas[:, picture.shape[1] :])
    lengths = _lengths(thought.scores, unit)
    for i, line in enumerate([*head, f"action {unit}"]):
        _write(panel, i, _MARGIN, line, _INK)
    for i, (name, score, length) in enumerate(zip(names, thought.scores, lengths, strict=True)):
        row, colour = len(head) + 1 + i, _CHOSEN if i == thought.chosen else _BAR
        _write(panel, row, _MARGIN, name[:_MAX_NAME], _CHOSEN if i == thought.chosen else _INK)
        top = _MARGIN + row * _ROW
        right = _BAR_LEFT + round(length * (_BAR_RIGHT - _BAR_LEFT))
        cv2.rectangle(panel, (_BAR_LEFT, top + 4), (right, top + _ROW - 5), colour, -1)
        _write(panel, row, _BAR_RIGHT + _MARGIN, f"{score:.3g}", _INK)
    canvas[:, picture.shape[1] :] = panel
    return canvas


def even(picture: Picture) -> Picture:
    """The picture with a last line or column repeated where a side is odd, which video formats do not take."""
    height, width = picture.shape[:2]
    return np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")


def _lengths(scores: Sequence[float], unit: str) -> list[float]:
    """Of the bars, 0 to 1."""
    if unit == "probabilities":
        return [min(1.0, max(0.0, score)) for score in scores]
    low, high = min(scores), max(scores)
    return [(score - low) / (high - low) if high > low else 0.0 for score in scores]


def _write(panel: Picture, row: int, left: int, text: str, colour: tuple[int, int, int]) -> None:
    place = (left, _MARGIN + row * _ROW + _ROW - 6)
    cv2.putText(panel, text, place, _FONT, _SIZE, colour, 1, cv2.LINE_AA)
