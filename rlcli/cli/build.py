"""The wiring of a run: the one place that knows every room."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcli.cli.config import RunConfig, as_dict
from rlcli.core.errors import ConfigError
from rlcli.core.spec import EnvSpec
from rlcli.envs.config import evaluation_config, short_name
from rlcli.envs.probe import probe

if TYPE_CHECKING:
    from rlcli.core.context import BuildContext
    from rlcli.core.protocols import Agent, Algo, Sampler
    from rlcli.record.console import Console
    from rlcli.record.run_record import RunRecord


@dataclass(frozen=True)
class Preflight:
    """What was learned about a run before anything was made."""

    spec: EnvSpec
    notes: tuple[str, ...]
    """Lines for the user at the start."""


def preflight(config: RunConfig) -> Preflight:
    """Check what only the environment can tell; imports no torch and leaves nothing on disk.

    Raises:
        ConfigError: with every problem found.
        EnvError: if the environment itself fails its example step.
    """
    spec = probe(config.env, config.seed)
    n_envs = config.sampler.batch_B
    problems = config.algo.spec_problems(spec)
    notes = [*spec.notes, *config.algo.notes(config.n_steps)]
    if config.replay is not None:
        problems += [f"replay.{line}" for line in config.replay.memory_problems(spec, n_envs)]
        notes.append(config.replay.describe(spec, n_envs))
    if problems:
        raise ConfigError(problems)
    return Preflight(spec, tuple(notes))


def run(config: RunConfig, checked: Preflight, argv: Sequence[str]) -> Path:
    """Build and run; gives the run folder.

    Args:
        config: The checked configuration.
        checked: What `preflight` gave for it.
        argv: The command line, for command.txt.

    Raises:
        ConfigError: before the run folder is made.
        RlcliError: of the run itself.
    """
    _let_idle_threads_rest(config)
    import torch

    from rlcli.core.rng import Purpose, integer_seed

    threads = config.torch_threads or _fitting_threads(checked.spec)
    config = replace(config, device=_device(config.device), torch_threads=threads)
    torch.set_num_threads(threads)
    torch.manual_seed(integer_seed(config.seed, Purpose.INIT))
    context = _context(config, checked.spec)
    agent = config.algo.build_agent(context)
    agent.to(context.device)
    algo = config.algo.build(context, agent)
    with contextlib.closing(algo):
        notes = list(checked.notes)
        if config.resume is not None:
            notes.append(_warm_start(config.resume, agent, algo, context.device))
        folder = _make_folder(config, argv)
        with _recording(config, folder, algo) as record:
            _train(config, checked.spec, agent, algo, record, notes)
    return folder


def _context(config: RunConfig, spec: EnvSpec) -> BuildContext:
    from rlcli.core.context import BuildContext

    return BuildContext(
        spec=spec,
        seed=config.seed,
        n_steps=config.n_steps,
        n_envs=config.sampler.batch_B,
        device=config.device,
        model=config.model,
        epsilon=config.epsilon,
        replay=config.replay,
    )


def _let_idle_threads_rest(config: RunConfig) -> None:
    """Where workers share the CPUs, shorten the milliseconds for which torch's idle threads spin beside them.

    Measured on two cores: workers sample 15 % faster, and the learner is no slower. OpenMP reads the variable when
    torch is loaded, so it has no effect on a later run in the same process.
    """
    if config.sampler.has_workers:
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")


def _fitting_threads(spec: EnvSpec) -> int:
    """Small networks lose more by waiting for threads than they gain; convolutions take all that torch would."""
    import torch

    from rlcli.models.trunk import has_images

    return torch.get_num_threads() if has_images(spec.observation_space) else 1


def _device(asked: str) -> str:
    import torch

    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if asked.startswith("cuda"):
        index = int(asked.partition(":")[2] or 0)
        if index >= torch.cuda.device_count():
            raise ConfigError(f"device: {asked!r} is not there, this machine has {torch.cuda.device_count()} GPUs")
    return asked


def _warm_start(path: str, agent: Agent, algo: Algo, device: str) -> str:
    """Load a snapshot's weights and optimizer; counters stay at zero. Gives a line for the user."""
    from rlcli.core.errors import SnapshotError
    from rlcli.record.snapshot import read_snapshot, state_mismatches

    try:
        snapshot = read_snapshot(path, device)
    except SnapshotError as error:
        raise ConfigError(f"resume: {error}") from error
    parts: list[tuple[str, Any, Any]] = [
        ("agent", agent.state_dict(), snapshot["agent_state_dict"]),
        ("algo", algo.state_dict(), snapshot["algo_state_dict"]),
    ]
    mismatches = [m for name, own, given in parts for m in state_mismatches(own, given, name)]
    if mismatches:
        made = snapshot["config"]
        kinds = f"made by algo={made['algo']['kind']}, env={made['env']['kind']}"
        raise ConfigError([f"resume: {path} does not fit this run ({kinds}):", *(f"  {m}" for m in mismatches)])
    agent.load_state_dict(snapshot["agent_state_dict"])
    algo.load_state_dict(snapshot["algo_state_dict"])
    algo.load_optimizer_state_dict(snapshot["optimizer_state_dict"])
    return (
        f"started from {path} (iteration {snapshot['itr']:,}, {snapshot['cum_steps']:,} steps): weights and optimizer "
        "state; step counters, schedules and replay begin anew"
    )


def _make_folder(config: RunConfig, argv: Sequence[str]) -> Path:
    from rlcli.record.description import write_description
    from rlcli.record.folder import create_run_folder

    name = config.name or f"{config.choices['algo']}-{short_name(config.env)}"
    folder = create_run_folder(run_dir=config.run_dir, name=name, seed=config.seed)
    write_description(folder, as_dict(config), argv)
    return folder


@contextlib.contextmanager
def _recording(config: RunConfig, folder: Path, algo: Algo) -> Iterator[RunRecord]:
    from rlcli.record.console import Console
    from rlcli.record.csv_log import CsvLog
    from rlcli.record.run_record import RunRecord
    from rlcli.record.snapshot import Snapshots
    from rlcli.record.stats import RunStats

    stats = RunStats(
        config.logger.trajectory_window, algo.metrics, list(algo.scalars(0)), bool(config.eval.interval_steps)
    )
    snapshots = Snapshots(folder, config.snapshot_mode, config.snapshot_gap)
    with (
        contextlib.closing(CsvLog(folder / "progress.csv", stats.columns)) as csv,
        Console(folder / "debug.log", config.logger.ui) as console,
    ):
        console.say(f"run folder: {folder}")
        try:
            yield RunRecord(stats, csv, console, snapshots, as_dict(config))
        except BaseException as error:
            error.run_dir = folder  # type: ignore[attr-defined]  # tells the command line where the traceback belongs
            _say_how_to_go_on(console, folder, error)
            raise
        console.say(f"done: {folder}")


def _say_how_to_go_on(console: Console, folder: Path, error: BaseException) -> None:
    saved = sorted(folder.glob("*.pkl"), key=lambda path: path.stat().st_mtime)
    console.say(f"the run ended early: {type(error).__name__}: {error}")
    console.say(
        f"last snapshot: {saved[-1]} (start from it: the same command with --resume {saved[-1]})"
        if saved
        else "no snapshot had been saved"
    )
    console.say(f"run folder: {folder}")


def _train(config: RunConfig, spec: EnvSpec, agent: Agent, algo: Algo, record: RunRecord, notes: Sequence[str]) -> None:
    from rlcli.runner import Runner, RunnerOptions

    for note in notes:
        record.console.say(note)
    record.console.say(f"learning on {config.device} with {config.torch_threads} torch threads, seed {config.seed}")
    options = RunnerOptions(config.n_steps, config.log_interval_steps, config.eval.interval_steps)
    with contextlib.closing(_build_sampler(config, spec, agent, record.console)) as sampler:
        Runner(sampler, agent, algo, record, options).run()


def _build_sampler(config: RunConfig, spec: EnvSpec, agent: Agent, console: Console) -> Sampler:
    from rlcli.samplers.setup import SamplerSetup

    setup = SamplerSetup(
        env=config.env,
        eval_env=evaluation_config(config.env),
        spec=spec,
        agent=agent,
        seed=config.seed,
        discount=config.algo.discount,
        eval_n_envs=config.eval.n_envs if config.eval.interval_steps else 0,
        eval_n_episodes=config.eval.n_episodes,
        eval_max_steps=config.eval.max_steps,
        learns_on_cpu=config.device == "cpu",
        imports=tuple(config.imports),
        say=console.say,
    )
    sampler: Sampler = config.sampler.build(setup)
    return sampler
