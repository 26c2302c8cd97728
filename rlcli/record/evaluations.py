"""evaluations.csv: one row for each evaluation of a saved agent, with all that its number hangs on."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any

from rlcli import __version__
from rlcli.core.errors import ConfigError
from rlcli.core.samples import Evaluation
from rlcli.record.stats import SUFFIXES, five

FILE = "evaluations.csv"

_SERIES = ("EvalReturn", "EvalGameScore", "EvalLength")
_BEFORE = ("Time", "File", "Iteration", "CumSteps", "Episodes", "EvalEpisodes", "EvalEpisodesCut")
_AFTER = (
    "CutScoreAverage",
    "EvalSteps",
    "EvalTime (s)",
    "Seed",
    "Envs",
    "MaxSteps",
    "EvalEpsilon",
    "Sampler",
    "Env",
    "Overrides",
    "Version",
)
COLUMNS = (*_BEFORE, *(name + suffix for name in _SERIES for suffix in SUFFIXES), *_AFTER)
"""In progress.csv's names where there is one; docs/saved_agents.md says what each means."""


@dataclass(frozen=True)
class EvaluationProtocol:
    """What was evaluated, and how."""

    file: Path
    """The snapshot."""
    itr: int
    """Iterations of training done."""
    cum_steps: int
    """Env steps of training done."""
    n_episodes: int
    """Whole games asked for."""
    seed: int
    n_envs: int
    max_steps: int
    """Cap on agent steps, all environments together."""
    epsilon: float | None
    """Share of random actions, None for an agent that has none."""
    sampler: str
    env: str
    """The environment's short name."""
    overrides: str
    """Key=value texts that made it differ from training's own evaluation."""


def evaluation_row(protocol: EvaluationProtocol, done: Evaluation, seconds: float) -> dict[str, Any]:
    """Columns and values; the standard deviation is the population's, nan where no game was finished."""
    cut = done.cut_scores
    return {
        "Time": datetime.now().astimezone().isoformat(timespec="seconds"),
        "File": str(protocol.file),
        "Iteration": protocol.itr,
        "CumSteps": protocol.cum_steps,
        "Episodes": protocol.n_episodes,
        "EvalEpisodes": len(done.games),
        "EvalEpisodesCut": len(cut),
        **five("EvalReturn", (episode.return_ for episode in done.episodes)),
        **five("EvalGameScore", (game.score for game in done.games)),
        **five("EvalLength", (game.length for game in done.games)),
        "CutScoreAverage": sum(cut) / len(cut) if cut else float("nan"),
        "EvalSteps": done.n_steps,
        "EvalTime (s)": seconds,
        "Seed": protocol.seed,
        "Envs": protocol.n_envs,
        "MaxSteps": protocol.max_steps,
        "EvalEpsilon": float("nan") if protocol.epsilon is None else protocol.epsilon,
        "Sampler": protocol.sampler,
        "Env": protocol.env,
        "Overrides": protocol.overrides,
        "Version": __version__,
    }


def check_appendable(path: Path) -> None:
    """Refuse a file that is there and is no evaluations.csv of these columns.

    Raises:
        ConfigError: It is not, or cannot be written here.
    """
    if not path.parent.is_dir():
        raise ConfigError(f"--out: there is no folder {path.parent}")
    if not path.exists() or (path.is_file() and path.stat().st_size == 0):
        return
    try:
        with path.open(newline="", encoding="utf-8") as file:
            header = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if tuple(header) != COLUMNS:
        raise ConfigError(f"{path}: has other columns than evaluations have; write to another file with --out FILE.csv")


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """Append a row in one piece, below the header if there is none yet; a line that was cut off stays one.

    Raises:
        OSError: The file cannot be written.
    """
    line = _line([row[name] for name in COLUMNS])
    with path.open("a+b") as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            line = line if file.read(1) == b"\n" else f"\n{line}"
        else:
            line = _line(COLUMNS) + line
        file.write(line.encode())


def _line(cells: Any) -> str:
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()
