"""All that a run leaves behind, as the runner sees it: one thing to tell, several places it goes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlcli.core.samples import Evaluation
from rlcli.record.checkpoint import Checkpoints
from rlcli.record.console import Console
from rlcli.record.csv_log import CsvLog
from rlcli.record.hashes import HashLog
from rlcli.record.snapshot import Snapshots
from rlcli.record.stats import RunStats


@dataclass(frozen=True)
class RunRecord:
    """Statistics, progress.csv, console, snapshots, checkpoints and hashes of one run."""

    stats: RunStats
    csv: CsvLog
    console: Console
    snapshots: Snapshots
    hashes: HashLog
    checkpoints: Checkpoints | None
    """None: the run keeps none."""
    config: Mapping[str, Any]
    """The whole config as nested plain dicts, for snapshots and checkpoints."""

    def write_row(self, row: dict[str, float], n_steps: int) -> None:
        """A row of progress.csv, and what the user sees of it."""
        self.csv.write(row)
        self.console.row(row, n_steps)
        if (hint := self.stats.hint()) is not None:
            self.console.say(hint)

    def save(self, itr: int, row_number: int, final: bool, state_fn: Callable[[], dict[str, Any]]) -> None:
        """The snapshots that are due with a row."""
        self.snapshots.save(itr, state_fn, row_number=row_number, final=final)

    def save_best(self, itr: int, evaluation: Evaluation, state_fn: Callable[[], dict[str, Any]]) -> None:
        """The snapshot of the best evaluation, by the mean score of its whole games."""
        scores = [game.score for game in evaluation.games]
        score = sum(scores) / len(scores) if scores else math.nan
        if (path := self.snapshots.save_best(score, state_fn)) is not None:
            self.console.note(f"{path.name}: iteration {itr:,}, score {score:g}")

    def checkpoint(self, step: int, state: Mapping[str, Any]) -> None:
        """Write a checkpoint; what it cost goes to debug.log, and to the terminal if it took long."""
        if self.checkpoints is None:
            return
        written = self.checkpoints.save(step, state)
        line = f"checkpoint at step {step:,}: {written.n_bytes / 1e6:,.1f} MB on disk, {written.seconds:.2f} s"
        (self.console.say if written.seconds >= _LONG_S else self.console.note)(line)

    def close(self) -> None:
        """Close the files; safe to call twice."""
        self.csv.close()


_LONG_S = 5.0
