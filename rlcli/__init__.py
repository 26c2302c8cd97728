"""rlcli: a command-line launcher of deep reinforcement learning experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlcli.register import register

__version__ = "0.1.0"
__all__ = ["__version__", "register", "train"]


def train(overrides: Sequence[str] = ()) -> Path:
    """Do one training run, as ``rlcli train`` with these overrides does.

    Args:
        overrides: ``key=value`` texts as on the command line; no flags.

    Returns:
        The run folder.

    Raises:
        ConfigError: The request cannot be met; nothing has been made on disk.
        Exception: Whatever ended the run.
    """
    from rlcli.cli.train import train as run

    return run(overrides)
