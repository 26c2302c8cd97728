"""Config of what a run writes down and shows. Imports no torch: the command line reads it before anything is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlcli.core.options import option

UI_MODES = ("auto", "live", "plain", "quiet")
"""How a run talks on the terminal."""

SNAPSHOT_MODES = ("none", "last", "all", "gap", "last_gap")
"""Which snapshots a run leaves; docs/run_folder.md has the table."""


@dataclass
class CsvLoggerConfig:
    """progress.csv and the terminal."""

    kind: ClassVar[str] = "csv"

    ui: str = option(
        "auto",
        "auto: live on a terminal, plain otherwise. live: a panel with progress bar. plain: one line for each row of "
        "progress.csv. quiet: only messages.",
        choices=UI_MODES,
    )
    trajectory_window: int = option(
        100,
        "Last finished training episodes (and whole games) over which their statistics run (rlpyt's log_traj_window).",
        ge=1,
    )
