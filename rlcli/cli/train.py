"""The verb ``train``: compose and check everything, then run one job here, or hand many over to Hydra's launcher."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlcli.cli import argv, compose, failure, helptext, sweep
from rlcli.cli.argv import Request
from rlcli.cli.compose import Plan
from rlcli.cli.config import RunConfig
from rlcli.cli.messages import translated
from rlcli.core.errors import ConfigError
from rlcli.core.stop import STOPPED, Stopped, StopSignals

if TYPE_CHECKING:
    from omegaconf import DictConfig

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
"""Exit codes, with STOPPED."""

_MAX_LINES = 12


def command(words: Sequence[str]) -> int:
    """``rlcli train`` with these words; returns the exit code."""
    full = os.environ.get("HYDRA_FULL_ERROR") == "1"
    try:
        with StopSignals() as signals:
            return _command(words, signals)
    except ConfigError as error:
        if full:
            print(failure.failure_text(error, full=True), file=sys.stderr)
        report(error)
        return USAGE
    except KeyboardInterrupt:
        print("rlcli train: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Stopped as stop:
        print(f"rlcli train: {stop}", file=sys.stderr)
        return STOPPED
    except Exception as error:
        text = failure.failure_text(error, full=full)
        failure.append_to_log(error, text)
        print(text, file=sys.stderr)
        hint = "" if full else " (HYDRA_FULL_ERROR=1 shows every frame)"
        print(f"rlcli train: the run failed{hint}", file=sys.stderr)
        return FAILED


def train(overrides: Sequence[str]) -> Path:
    """See rlcli.train."""
    with StopSignals() as signals:
        request = argv.parse(list(overrides))
        if request.multirun or request.help or request.version or request.show:
            raise ConfigError("rlcli.train does one run from key=value texts; flags are for the command line")
        compose.prepare(request)
        plan = compose.plan(request)
        if plan.multirun:
            raise ConfigError("rlcli.train does one run, these overrides ask for a sweep")
        return run_single(plan, ["rlcli", "train", *overrides], signals)


def run_single(plan: Plan, words: Sequence[str], signals: StopSignals) -> Path:
    """Run the one job of a plan; see run_one."""
    os.environ.update(plan.environment)
    return run_one(plan.configs[0], words, signals)


def run_one(config: RunConfig, words: Sequence[str], signals: StopSignals) -> Path:
    """Check on what only the built parts know, then run.

    Args:
        config: The checked configuration.
        words: The command line, for the run's command.txt.
        signals: Tells when to stop.

    Returns:
        The run folder.

    Raises:
        ConfigError: The parts do not fit; nothing has been made on disk.
        KeyboardInterrupt, Stopped: A signal ended the run.
        Exception: Whatever ended the run.
    """
    from rlcli.cli import build, warm_start

    config, taken = warm_start.adapted(config, warm_start.given_keys(words), config.resume_keys)
    checked = build.preflight(config)
    if taken:
        checked = replace(checked, notes=(*taken, *checked.notes))
    return build.run(config, checked, list(words), signals)


def report(error: ConfigError) -> None:
    """Print the problems, one line each."""
    for line in error.problems[:_MAX_LINES]:
        print(f"rlcli train: {line}", file=sys.stderr)
    if len(error.problems) > _MAX_LINES:
        print(f"rlcli train: and {len(error.problems) - _MAX_LINES} more", file=sys.stderr)


def _command(words: Sequence[str], signals: StopSignals) -> int:
    request = argv.parse(words)
    if request.version or request.help:
        with suppress(BrokenPipeError):  # `rlcli train --help | head`
            print(helptext.version() if request.version else helptext.train(request))
        return DONE
    if request.resume_run is not None:
        return _go_on(request, request.resume_run)
    compose.prepare(request)
    if request.show:
        return _show(request)
    plan = compose.plan(request)
    if plan.multirun:
        return sweep.run(request, plan, signals, lambda texts, task: _hydra(request, [*texts, "--multirun"], task))
    run_single(plan, ["rlcli", "train", *words], signals)
    return DONE


def _go_on(request: Request, run: str) -> int:
    from rlcli.cli import resume

    if request.multirun or request.show or request.config_dirs or request.config_name != "train":
        raise ConfigError("--resume RUN: goes on with one run as it is; only key=value may stand beside it")
    return resume.command([run, *request.overrides])


def _show(request: Request) -> int:
    """Hydra's --cfg, --info and --hydra-help; a configuration that would not run is shown, and then refused."""
    shown = [*compose.hydra_overrides(request), *request.show]
    if "--cfg" in request.show:
        try:
            compose.plan(request, across=False)
        except ConfigError:
            with suppress(ConfigError):
                _hydra(request, shown, _nothing)
            raise
    _hydra(request, shown, _nothing)
    return DONE


def _nothing(cfg: DictConfig) -> None:
    """A task that is never run."""


def _hydra(request: Request, words: Sequence[str], task: Callable[[DictConfig], None]) -> None:
    """Hydra's own command line, in this process.

    Raises:
        ConfigError: Hydra refuses the request.
    """
    import hydra

    entry = hydra.main(
        config_path=str(compose.primary_dir(request)), config_name=request.config_name, version_base="1.3"
    )
    with translated(), _as_hydra_wants(words):
        try:
            entry(task)()
        except SystemExit as stop:  # --info and the like end so
            if stop.code not in (None, 0):
                raise


@contextmanager
def _as_hydra_wants(words: Sequence[str]) -> Iterator[None]:
    """Hydra reads sys.argv, and raises instead of printing only if HYDRA_FULL_ERROR is 1."""
    argv_before, full_before = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = ["rlcli train", *words]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        sys.argv = argv_before
        if full_before is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = full_before
