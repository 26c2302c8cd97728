"""All that a run leaves behind, as the runner sees it: one thing to tell, four places it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlcli.record.console import Console
from rlcli.record.csv_log import CsvLog
from rlcli.record.snapshot import Snapshots
from rlcli.record.stats import RunStats


@dataclass(frozen=True)
class RunRecord:
    """Statistics, progress.csv, console and snapshots of one run."""

    stats: RunStats
    csv: CsvLog
    console: Console
    snapshots: Snapshots
    config: Mapping[str, Any]
    """The whole config as nested plain dicts, for the snapshots."""

    def write_row(self, row: dict[str, float], n_steps: int) -> None:
        """A row of progress.csv, and what the user sees of it."""
        self.csv.write(row)
        self.console.row(row, n_steps)
        if (hint := self.stats.hint()) is not None:
            self.console.say(hint)

    def save(self, itr: int, row_number: int, final: bool, state_fn: Callable[[], dict[str, Any]]) -> None:
        """The snapshots that are due with a row."""
        self.snapshots.save(itr, state_fn, row_number=row_number, final=final)

    def close(self) -> None:
        """Close the files; safe to call twice."""
        self.csv.close()
