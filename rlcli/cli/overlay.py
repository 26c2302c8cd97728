"""A picture of the environment with a panel beside it: lines, bars, marks between bounds, charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import cv2
import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.uint8]
"""[H, W, 3], red first."""

_WIDTH, _ROW, _MARGIN = 260, 20, 8
_BAR_LEFT, _BAR_RIGHT = 118, 190
_BACK, _INK, _DIM, _BAR, _CHOSEN = (24, 24, 28), (225, 225, 225), (90, 90, 98), (70, 110, 160), (240, 170, 50)
_FONT, _SIZE = cv2.FONT_HERSHEY_SIMPLEX, 0.42
_MAX_NAME, _MAX_LINE = 13, 38
_CHART_ROWS = 3


@dataclass(frozen=True)
class Bar:
    """A name, a bar, a number."""

    name: str
    text: str
    length: float
    """0 to 1."""
    chosen: bool = False
    """Has a colour of its own."""


@dataclass(frozen=True)
class Mark:
    """A line of text, and below it a place between two bounds, with a band around it."""

    text: str
    place: float
    """0 to 1, as the band's ends; what is outside is drawn at the edge."""
    band: tuple[float, float] | None = None


@dataclass(frozen=True)
class Chart:
    """Columns side by side, and what stands below the first and the last of them."""

    heights: Sequence[float]
    """0 to 1."""
    left: str
    right: str


Row: TypeAlias = str | Bar | Mark | Chart


def scaled(scores: Sequence[float]) -> list[float]:
    """Lengths from 0 for the smallest to 1 for the largest; 0 where all are equal."""
    low, high = min(scores), max(scores)
    return [(score - low) / (high - low) if high > low else 0.0 for score in scores]


def enlarged(picture: Picture, scale: int) -> Picture:
    """The picture with each pixel ``scale`` times as wide and high, its edges as they were."""
    bigger = np.repeat(np.repeat(picture, scale, axis=0), scale, axis=1)
    return np.ascontiguousarray(bigger)


def with_panel(picture: Picture, rows: Sequence[Row]) -> Picture:
    """The picture and a panel of rows to its right; as high as the higher of them."""
    height = max(picture.shape[0], 2 * _MARGIN + _ROW * sum(_n_lines(row) for row in rows))
    canvas = np.full((height, picture.shape[1] + _WIDTH, 3), _BACK, np.uint8)
    canvas[: picture.shape[0], : picture.shape[1]] = picture
    panel = np.ascontiguousarray(canvas[:, picture.shape[1] :])
    top = _MARGIN
    for row in rows:
        if isinstance(row, Bar):
            _draw_bar(panel, top, row)
        elif isinstance(row, Mark):
            _draw_mark(panel, top, row)
        elif isinstance(row, Chart):
            _draw_chart(panel, top, row)
        else:
            _write(panel, top, _MARGIN, row[:_MAX_LINE], _INK)
        top += _ROW * _n_lines(row)
    canvas[:, picture.shape[1] :] = panel
    return canvas


def even(picture: Picture) -> Picture:
    """The picture with a last line or column repeated where a side is odd, which video formats do not take."""
    height, width = picture.shape[:2]
    return np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")


def _n_lines(row: Row) -> int:
    if isinstance(row, Chart):
        return _CHART_ROWS + 1
    return 2 if isinstance(row, Mark) else 1


def _draw_bar(panel: Picture, top: int, bar: Bar) -> None:
    _write(panel, top, _MARGIN, bar.name[:_MAX_NAME], _CHOSEN if bar.chosen else _INK)
    right = _BAR_LEFT + round(_inside(bar.length) * (_BAR_RIGHT - _BAR_LEFT))
    colour = _CHOSEN if bar.chosen else _BAR
    cv2.rectangle(panel, (_BAR_LEFT, top + 4), (right, top + _ROW - 5), colour, -1)
    _write(panel, top, _BAR_RIGHT + _MARGIN, bar.text, _INK)


def _draw_mark(panel: Picture, top: int, mark: Mark) -> None:
    _write(panel, top, _MARGIN, mark.text[:_MAX_LINE], _INK)
    middle = top + _ROW + _ROW // 2
    cv2.line(panel, (_across(0), middle), (_across(1), middle), _DIM, 1)
    if mark.band is not None:
        low, high = mark.band
        cv2.rectangle(panel, (_across(low), middle - 4), (_across(high), middle + 4), _BAR, -1)
    place = _across(mark.place)
    cv2.rectangle(panel, (place - 1, middle - 7), (place + 1, middle + 7), _CHOSEN, -1)


def _draw_chart(panel: Picture, top: int, chart: Chart) -> None:
    bottom = top + _CHART_ROWS * _ROW
    n = len(chart.heights)
    for i, height in enumerate(chart.heights):
        left, right = _across(i / n), _across((i + 1) / n) - 1
        above = bottom - round(_inside(height) * (_CHART_ROWS * _ROW - 4))
        cv2.rectangle(panel, (left, above), (max(left, right), bottom), _CHOSEN, -1)
    cv2.line(panel, (_across(0), bottom), (_across(1), bottom), _DIM, 1)
    _write(panel, bottom, _MARGIN, chart.left, _INK)
    (width, _), _ = cv2.getTextSize(chart.right, _FONT, _SIZE, 1)
    _write(panel, bottom, _WIDTH - _MARGIN - width, chart.right, _INK)


def _inside(share: float) -> float:
    """Between 0 and 1; 0 for what is no number."""
    return min(1.0, max(0.0, share)) if share == share else 0.0


def _across(share: float) -> int:
    return _MARGIN + round(_inside(share) * (_WIDTH - 2 * _MARGIN))


def _write(panel: Picture, top: int, left: int, text: str, colour: tuple[int, int, int]) -> None:
    cv2.putText(panel, text, (left, top + _ROW - 6), _FONT, _SIZE, colour, 1, cv2.LINE_AA)
