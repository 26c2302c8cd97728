"""When something is due, counted in environment steps."""

from __future__ import annotations


class Every:
    """True once each time another ``interval`` steps have passed.

    Args:
        interval: Steps between two firings; 0 never fires.
    """

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._next = interval

    def __call__(self, step: int) -> bool:
        """Whether it is due at ``step``; several missed intervals fire once."""
        if not self._interval or step < self._next:
            return False
        self._next = (step // self._interval + 1) * self._interval
        return True
