"""rlcli: a command-line launcher of deep reinforcement learning experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlcli.core.stop import Stopped
from rlcli.register import register

__version__ = "0.1.0"
__all__ = ["Stopped", "__version__", "register", "train"]


def train(overrides: Sequence[str] = ()) -> Path:
    """Do one training run, as ``rlcli train`` with these overrides does.

    In the main thread it takes SIGINT and SIGTERM while it runs: after the first the run ends with a last row and a
    final snapshot, and then raises; a second raises at once. The handlers that were there before are put back.

    Args:
        overrides: ``key=value`` texts as on the command line; no flags.

    Returns:
        The run folder.

    Raises:
        ConfigError: The request cannot be met; nothing has been made on disk.
        KeyboardInterrupt: SIGINT came (Ctrl-C); ``run_dir`` of the exception is the run folder, None if there is none.
        Stopped: SIGTERM came; a SystemExit with exit code 3 and ``run_dir``.
        Exception: Whatever ended the run.
    """
    from rlcli.cli.train import train as run

    return run(overrides)
