"""Spans of time as people write them: 1h30m."""

from __future__ import annotations

import re

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_SPAN = re.compile(r"(?=\d)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


def seconds(text: str) -> float:
    """Seconds of a text such as ``1h30m``, ``45m``, ``2d``, ``90s``.

    Raises:
        ValueError: It is none, or no time at all.
    """
    match = _SPAN.fullmatch(text.strip())
    total = sum(int(n) * s for n, s in zip(match.groups(), _UNITS.values(), strict=True) if n) if match else 0
    if not total:
        raise ValueError(f"{text!r} is no span of time such as 1h30m, 45m, 90s or 2d")
    return float(total)
