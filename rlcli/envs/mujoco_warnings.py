"""MuJoCo's warnings go to the terminal and not into a MUJOCO_LOG.TXT in the current folder."""

from __future__ import annotations

import sys

_OF_GYMNASIUM = ("settotalmass",)
"""Found in deprecation warnings about gymnasium's own model files, which its users cannot change."""


def tell_in_terminal() -> None:
    """Let this process's MuJoCo tell its warnings on standard error, once installed; nothing if it is not installed."""
    try:
        import mujoco
    except ModuleNotFoundError:  # what to install is told by whoever makes the environment
        return
    mujoco.set_mju_user_warning(_tell)


def _tell(text: str) -> None:
    if not any(name in text for name in _OF_GYMNASIUM):
        print(f"MuJoCo: {text.strip()}", file=sys.stderr)
