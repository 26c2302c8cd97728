"""``rlcli train -m``: many jobs, of which one that fails does not stop the others, and a table at the end."""

from __future__ import annotations

import csv
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from rlcli.cli import argv, compose, failure
from rlcli.cli.argv import Request
from rlcli.cli.compose import Plan
from rlcli.core.errors import ConfigError
from rlcli.core.stop import Stopped, StopSignals

if TYPE_CHECKING:
    from omegaconf import DictConfig

SUMMARY = "summary.csv"
_OK, _FAILED, _INTERRUPTED = "ok", "failed", "interrupted"

HydraMain = Callable[[list[str], "Callable[[DictConfig], None]"], None]
"""Runs Hydra's command line with these overrides and this task."""


@dataclass
class Row:
    """One job of the table; also a line of summary.csv."""

    job: int
    overrides: str
    status: str = _OK
    run_dir: str = ""
    seconds: float = 0.0
    error: str = ""


def run(request: Request, plan: Plan, signals: StopSignals, hydra_main: HydraMain) -> int:
    """Run every job of the plan, one after another.

    Args:
        request: What the user asked for.
        plan: The checked jobs.
        signals: Tells when to stop.
        hydra_main: Hydra's command line; its launcher calls the task once a job.

    Returns:
        0, or 1 if a job failed.

    Raises:
        ConfigError: The sweep's folder holds another sweep.
        KeyboardInterrupt, Stopped: A signal stopped the job that ran, and the sweep; the table so far has been printed.
    """
    folder = _claim(plan.sweep_dir, given=_gives_folder(request))
    summary = folder / SUMMARY
    with summary.open("x", newline="", encoding="utf-8") as file:
        csv.writer(file).writerow([f.name for f in fields(Row)])
    overrides = [o for o in plan.overrides if argv.key_of(o) != "hydra.sweep.dir"]
    overrides.append(f"hydra.sweep.dir={argv.quoted(str(folder))}")
    full = os.environ.get("HYDRA_FULL_ERROR") == "1"
    try:
        hydra_main(overrides, _task(request, plan, signals, summary, full))
    finally:
        rows = _read(summary)
        print(table(rows, plan.jobs))
        print(f"{len(plan.jobs)} jobs, {sum(r.status == _OK for r in rows)} ok: {summary}")
    return 0 if [r.status for r in rows] == [_OK] * len(plan.jobs) else 1


def table(rows: Sequence[Row], jobs: Sequence[Sequence[str]]) -> str:
    """The jobs as aligned columns; of the overrides those that differ between jobs."""
    common = set.intersection(*(set(job) for job in jobs)) if len(jobs) > 1 else set()
    head = ("job", "overrides", "status", "seconds", "run folder")
    cells = [head]
    for row in rows:
        varying = " ".join(o for o in jobs[row.job] if o not in common)
        cells.append((str(row.job), varying, row.status, f"{row.seconds:.1f}", row.run_dir or row.error or "-"))
    widths = [max(len(line[i]) for line in cells) for i in range(len(head) - 1)]
    return "\n".join("  ".join([*(c.ljust(w) for c, w in zip(line, widths, strict=False)), line[-1]]) for line in cells)


def _task(
    request: Request, plan: Plan, signals: StopSignals, summary: Path, full: bool
) -> Callable[[DictConfig], None]:
    def task(cfg: DictConfig) -> None:
        from hydra.core.hydra_config import HydraConfig

        number = int(HydraConfig.get().job.num)
        job = plan.jobs[number]
        row = Row(number, " ".join(job))
        print(f"job {number} of {len(plan.jobs)}: {row.overrides}", flush=True)
        with _recorded(row, summary, full):
            row.run_dir = str(_run_job(request, cfg, number, job, signals))

    return task


def _run_job(request: Request, cfg: DictConfig, number: int, job: Sequence[str], signals: StopSignals) -> Path:
    from hydra.core.hydra_config import HydraConfig

    from rlcli.cli.train import run_one

    config = compose.to_config(cfg, HydraConfig.get().runtime.choices, request.overrides)
    if config.run_dir is not None:
        config.run_dir = str(Path(config.run_dir) / str(number))
    folders = [word for folder in request.config_dirs for word in ("-cd", str(folder))]
    return run_one(config, ["rlcli", "train", *job, *folders], signals)


@contextmanager
def _recorded(row: Row, summary: Path, full: bool) -> Iterator[None]:
    """Note how a job ended; swallow its failure, so that the next one runs."""
    start = time.monotonic()
    try:
        yield
    except (KeyboardInterrupt, Stopped) as stop:
        row.status = _INTERRUPTED
        row.run_dir = str(failure.run_folder(stop) or "")
        raise
    except (Exception, SystemExit) as error:
        row.status, row.error = _FAILED, " ".join(f"{type(error).__name__}: {error}".split())
        row.run_dir = str(failure.run_folder(error) or "")
        _tell(row, error, full)
    finally:
        row.seconds = round(time.monotonic() - start, 1)
        with summary.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(astuple(row))


def _tell(row: Row, error: BaseException, full: bool) -> None:
    if isinstance(error, ConfigError):
        text = str(error)
    else:
        text = failure.failure_text(error, full=full)
        failure.append_to_log(error, text)
    print(f"{text}\nrlcli train: job {row.job} failed, going on", file=sys.stderr, flush=True)


def _gives_folder(request: Request) -> bool:
    return any(argv.key_of(o) == "hydra.sweep.dir" for o in request.overrides)


def _claim(folder: Path, *, given: bool) -> Path:
    """Make the sweep's folder; two sweeps never share one."""
    folder = folder.absolute()
    try:
        return _claim_given(folder) if given else _claim_new(folder)
    except OSError as error:
        raise ConfigError(f"hydra.sweep.dir: cannot make {folder}: {error.strerror}") from error


def _claim_given(folder: Path) -> Path:
    if (folder / SUMMARY).exists():
        raise ConfigError(f"hydra.sweep.dir: {folder} holds another sweep")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _claim_new(folder: Path) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    for k in count():
        candidate = folder.with_name(f"{folder.name}_{k}") if k else folder
        try:
            candidate.mkdir()
        except FileExistsError:
            continue
        return candidate
    raise AssertionError("count() ends never")


def _read(summary: Path) -> list[Row]:
    with summary.open(newline="", encoding="utf-8") as file:
        rows = [
            Row(int(r["job"]), r["overrides"], r["status"], r["run_dir"], float(r["seconds"]), r["error"])
            for r in csv.DictReader(file)
        ]
    return sorted(rows, key=lambda row: row.job)
