"""The wiring of a run: the one place that knows every room."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcli.cli import failure
from rlcli.cli.config import RunConfig, as_dict
from rlcli.core.errors import ConfigError
from rlcli.core.pickling import pickled
from rlcli.core.spec import EnvSpec
from rlcli.core.stop import Stopped, StopSignals
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
    problems = [*_sampler_problems(config), *config.algo.spec_problems(spec)]
    notes = [*spec.notes, *config.algo.notes(config.n_steps)]
    if config.replay is not None:
        problems += [f"replay.{line}" for line in config.replay.memory_problems(spec, n_envs)]
        notes.append(config.replay.describe(spec, n_envs))
    if problems:
        raise ConfigError(problems)
    return Preflight(spec, tuple(notes))


def _sampler_problems(config: RunConfig) -> list[str]:
    """Why the sampler does not go with the rest."""
    sampler, chosen = config.sampler, config.choices
    problems = []
    if sampler.off_policy_only and config.algo.on_policy:
        problems.append(
            f"sampler: {chosen['sampler']} gives batches of older weights, algo={chosen['algo']} learns on-policy and "
            "needs the newest; take serial, cpu, gpu or alternating"
        )
    if sampler.has_workers:
        try:
            pickled("env", config.env)
        except ConfigError as error:
            problems += error.problems
    return problems


def run(config: RunConfig, checked: Preflight, argv: Sequence[str], signals: StopSignals) -> Path:
    """Build and run; gives the run folder.

    Args:
        config: The checked configuration.
        checked: What `preflight` gave for it.
        argv: The command line, for command.txt.
        signals: Tells when to stop.

    Raises:
        ConfigError: before the run folder is made.
        RlcliError: of the run itself.
        KeyboardInterrupt, Stopped: a signal ended the run.
    """
    _let_idle_threads_rest(config)
    import torch

    from rlcli.core.rng import Purpose, integer_seed

    threads = config.torch_threads or _fitting_threads(checked.spec)
    config = replace(config, device=_device(config.device), torch_threads=threads)
    _refuse_fork_beside_cuda(config)
    torch.set_num_threads(threads)
    torch.manual_seed(integer_seed(config.seed, Purpose.INIT))
    context = _context(config, checked.spec)
    agent = config.algo.build_agent(context)
    agent.to(context.device)
    algo = config.algo.build(context, agent)
    with _closed(algo, signals):
        notes = list(checked.notes)
        if config.resume is not None:
            notes.append(_warm_start(config.resume, agent, algo, context.device))
        signals.raise_if_requested()  # an environment or a library being loaded may have swallowed one
        with signals.deferred():
            folder = _make_folder(config, argv)
            with _recording(config, folder, algo) as record:
                _train(config, checked.spec, agent, algo, record, notes, signals)
    signals.raise_if_requested()
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


def _refuse_fork_beside_cuda(config: RunConfig) -> None:
    if config.device != "cpu" and config.sampler.has_workers and config.sampler.start_method == "fork":
        raise ConfigError(
            f"sampler.start_method: 'fork' is not allowed with device={config.device}, must be spawn or forkserver: "
            "CUDA does not outlive a fork"
        )


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
        config.logger.trajectory_window,
        algo.metrics,
        list(algo.scalars(0)),
        bool(config.eval.interval_steps),
        policy_lag=config.sampler.off_policy_only,
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
    console.say(_how_it_ended(error))
    console.say(
        f"last snapshot: {saved[-1]} (start from it: the same command with --resume {saved[-1]})"
        if saved
        else "no snapshot had been saved"
    )
    console.say(f"run folder: {folder}")


def _how_it_ended(error: BaseException) -> str:
    where = "".join(f" {note}" for note in failure.notes(error))
    if isinstance(error, KeyboardInterrupt):
        return f"interrupted{where}"
    if isinstance(error, Stopped):
        return f"{error}{where}"
    return f"the run ended early{where}: {type(error).__name__}: {error}"


def _train(
    config: RunConfig,
    spec: EnvSpec,
    agent: Agent,
    algo: Algo,
    record: RunRecord,
    notes: Sequence[str],
    signals: StopSignals,
) -> None:
    from rlcli.runner import Runner, RunnerOptions

    for note in notes:
        record.console.say(note)
    record.console.say(f"learning on {config.device} with {config.torch_threads} torch threads, seed {config.seed}")
    options = RunnerOptions(config.n_steps, config.log_interval_steps, config.eval.interval_steps)
    runner = Runner(agent, algo, record, options, signals)
    sampler = signals.unless_stopped(0.0, lambda: _build_sampler(config, spec, agent, record.console))
    if sampler is not None:
        with _closed(sampler, signals):
            runner.run(sampler)
    elif signals.requested == signal.SIGTERM:
        runner.save()  # a scheduler that starts the job again can start it from here
    signals.raise_if_requested()


@contextlib.contextmanager
def _closed(part: Sampler | Algo, signals: StopSignals) -> Iterator[None]:
    """Close the part at the end, and to the end, whatever signals come meanwhile."""
    try:
        yield
    finally:
        with signals.deferred():
            try:
                part.close()
            except (KeyboardInterrupt, Stopped):
                part.close()  # a second signal cut the first attempt short; workers must not outlive the run
                raise


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
        device=config.device,
        imports=tuple(config.imports),
        say=console.say,
    )
    sampler: Sampler = config.sampler.build(setup)
    return sampler
