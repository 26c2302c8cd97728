"""The wiring of a run: the one place that knows every room."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlcli.cli import checkpointing
from rlcli.cli.config import RunConfig, as_dict
from rlcli.cli.ending import say_how_to_go_on
from rlcli.cli.fitting import algo_problems, sampler_problems
from rlcli.cli.going_on import Build, GoingOn, load_newest, note_in_history, tidy_up
from rlcli.core.duration import seconds
from rlcli.core.errors import ConfigError
from rlcli.core.spec import EnvSpec
from rlcli.core.stop import Stopped, StopSignals
from rlcli.envs.config import evaluation_config, short_name
from rlcli.envs.probe import probe
from rlcli.record.folder import claimed

if TYPE_CHECKING:
    from rlcli.core.context import BuildContext
    from rlcli.core.protocols import Agent, Algo, Sampler
    from rlcli.record.checkpoint import Loaded
    from rlcli.record.console import Console
    from rlcli.record.run_record import RunRecord
    from rlcli.runner import RunnerOptions


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
    spec = probe(config.task, config.seed)
    n_envs = config.sampler.batch_B
    problems = [*sampler_problems(config), *algo_problems(config, spec), *checkpointing.problems(config, spec)]
    notes = [*spec.notes, *config.algo.notes(config.n_steps), *checkpointing.notes(config, spec)]
    if config.replay is not None:
        problems += [f"replay.{line}" for line in config.replay.memory_problems(spec, n_envs)]
        notes.append(config.replay.describe(spec, n_envs))
    if problems:
        raise ConfigError(problems)
    return Preflight(spec, tuple(notes))


def run(
    config: RunConfig,
    checked: Preflight,
    argv: Sequence[str],
    signals: StopSignals,
    going_on: GoingOn | None = None,
) -> Path:
    """Build and run; gives the run folder.

    Args:
        config: The checked configuration.
        checked: What `preflight` gave for it.
        argv: The command line, for command.txt.
        signals: Tells when to stop.
        going_on: The run to go on with; None begins a new one.

    Raises:
        ConfigError: before the run folder is made, or anything in it is changed.
        RlcliError: of the run itself.
        KeyboardInterrupt, Stopped: a signal ended the run.
    """
    config, build = _prepared(config, checked)
    with contextlib.ExitStack() as claim:
        if going_on is not None:
            claim.enter_context(claimed(going_on.folder))
        parts = _parts(config, checked, build, going_on)
        with _closed(parts.algo, signals):
            signals.raise_if_requested()  # an environment or a library being loaded may have swallowed one
            with signals.deferred():
                if going_on is None:
                    folder = _make_folder(config, argv)
                    claim.enter_context(claimed(folder))
                else:
                    folder = going_on.folder
                    _describe_anew(config, going_on, parts, argv)
                with _recording(config, folder, parts) as record:
                    _train(config, checked.spec, parts, record, signals)
    signals.raise_if_requested()
    return folder


def _prepared(config: RunConfig, checked: Preflight) -> tuple[RunConfig, Build]:
    """The configuration with device and threads decided, and what makes agent and algorithm anew, always the same."""
    _let_idle_threads_rest(config)
    import torch

    from rlcli.core.rng import Purpose, integer_seed

    threads = config.torch_threads or fitting_threads(checked.spec)
    config = replace(config, device=device_for(config.device), torch_threads=threads)
    refuse_fork_beside_cuda(config)
    torch.set_num_threads(threads)

    def build() -> tuple[Agent, Algo]:
        torch.manual_seed(integer_seed(config.seed, Purpose.INIT))
        context = run_context(config, checked.spec)
        agent = config.algo.build_agent(context)
        agent.to(context.device)
        return agent, config.algo.build(context, agent)

    return config, build


@contextlib.contextmanager
def in_memory(config: RunConfig, checked: Preflight, signals: StopSignals) -> Iterator[tuple[Agent, Algo, Sampler]]:
    """The parts of a run as it begins, without anything on disk."""
    from rlcli.record.console import Console

    config, build = _prepared(config, checked)
    parts = _parts(replace(config, checkpoint_interval_steps=0), checked, build, None)
    with _closed(parts.algo, signals), Console(None, "quiet") as console:
        sampler = _build_sampler(config, checked.spec, parts.agent, console)
        with _closed(sampler, signals):
            yield parts.agent, parts.algo, sampler


@dataclass(frozen=True)
class _Parts:
    """What a run is made of before it has a sampler."""

    agent: Agent
    algo: Algo
    checkpoint: Loaded | None
    """From which it goes on."""
    exact_envs: bool
    notes: tuple[str, ...]
    """Lines for the user."""


def _parts(config: RunConfig, checked: Preflight, build: Build, going_on: GoingOn | None) -> _Parts:
    from rlcli.cli import warm_start

    exact_envs, lines = checkpointing.envs_are_exact(config, checked.spec)
    notes = [*checked.notes, *lines]
    if going_on is None:
        agent, algo = build()
        checkpoint = None
    else:
        notes += going_on.notes
        agent, algo, checkpoint = load_newest(going_on, build, notes)
    try:
        if config.resume is not None and checkpoint is None:
            notes += warm_start.start_from(
                config.resume, agent, algo, config.device, optimizer=config.resume_optimizer, keys=config.resume_keys
            )
    except BaseException:
        algo.close()
        raise
    if checkpoint is not None:
        state = checkpoint.state
        notes.append(f"goes on from step {state['step']:,}, iteration {state['itr']:,} ({checkpoint.path})")
        if algo.replay is not None and checkpoint.replay_state is None and state["step"]:
            notes.append(
                "the checkpoint has no replay: it is filled anew with the loaded policy before learning goes on"
            )
    return _Parts(agent, algo, checkpoint, exact_envs, tuple(notes))


def _describe_anew(config: RunConfig, going_on: GoingOn, parts: _Parts, argv: Sequence[str]) -> None:
    from rlcli.record.description import write_description

    step = 0 if parts.checkpoint is None else parts.checkpoint.step
    tidy_up(going_on.folder)
    note_in_history(going_on.folder, going_on, step, argv)
    if going_on.changes:
        write_description(going_on.folder, as_dict(config), None)


def run_context(config: RunConfig, spec: EnvSpec) -> BuildContext:
    """What agent and algorithm are built from."""
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


def fitting_threads(spec: EnvSpec) -> int:
    """Small networks lose more by waiting for threads than they gain; convolutions take all that torch would."""
    import torch

    from rlcli.models.trunk import has_images

    return torch.get_num_threads() if has_images(spec.observation_space) else 1


def device_for(asked: str) -> str:
    """The device that ``asked`` means here.

    Raises:
        ConfigError: There is no such GPU.
    """
    import torch

    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if asked.startswith("cuda"):
        index = int(asked.partition(":")[2] or 0)
        if index >= torch.cuda.device_count():
            raise ConfigError(f"device: {asked!r} is not there, this machine has {torch.cuda.device_count()} GPUs")
    return asked


def refuse_fork_beside_cuda(config: RunConfig) -> None:
    """Raise a ConfigError where workers would be copies of a process that uses a GPU."""
    if config.device != "cpu" and config.sampler.has_workers and config.sampler.start_method == "fork":
        raise ConfigError(
            f"sampler.start_method: 'fork' is not allowed with device={config.device}, must be spawn or forkserver: "
            "CUDA does not outlive a fork"
        )


def _make_folder(config: RunConfig, argv: Sequence[str]) -> Path:
    from rlcli.record.description import write_description
    from rlcli.record.folder import create_run_folder

    name = config.name or f"{config.choices['algo']}-{short_name(config.env)}"
    folder = create_run_folder(run_dir=config.run_dir, name=name, seed=config.seed)
    write_description(folder, as_dict(config), argv)
    return folder


@contextlib.contextmanager
def _recording(config: RunConfig, folder: Path, parts: _Parts) -> Iterator[RunRecord]:
    from rlcli.record.checkpoint import Checkpoints
    from rlcli.record.console import Console
    from rlcli.record.csv_log import CsvLog
    from rlcli.record.hashes import HashLog
    from rlcli.record.run_record import RunRecord
    from rlcli.record.snapshot import Snapshots
    from rlcli.record.stats import RunStats

    stats = RunStats(
        config.logger.trajectory_window,
        parts.algo.metrics,
        list(parts.algo.scalars(0)),
        bool(config.eval.interval_steps),
        policy_lag=config.sampler.off_policy_only,
    )
    snapshots = Snapshots(folder, config.snapshot_mode, config.snapshot_gap, config.snapshot_best)
    hashes = HashLog(folder, config.hash_iterations)
    checkpoints = None
    if config.checkpoint_interval_steps:
        checkpoints = Checkpoints(folder, parts.algo.replay if config.checkpoint_replay else None)
    rows = None
    if (checkpoint := parts.checkpoint) is not None:
        stats.load_state(checkpoint.state["stats"])
        hashes.cut(checkpoint.state["itr"])
        rows = checkpoint.rows
        if checkpoints is not None:
            checkpoints.note_loaded(checkpoint)
    elif (folder / "progress.csv").exists():
        rows = ""  # a run that begins again, for it had not come to its first checkpoint
        hashes.cut(0)
    with (
        contextlib.closing(CsvLog(folder / "progress.csv", stats.columns, rows)) as csv,
        Console(folder / "debug.log", config.logger.ui) as console,
    ):
        console.say(f"run folder: {folder}")
        try:
            yield RunRecord(stats, csv, console, snapshots, hashes, checkpoints, as_dict(config))
        except BaseException as error:
            error.run_dir = folder  # type: ignore[attr-defined]  # tells the command line where the traceback belongs
            say_how_to_go_on(console, folder, error)
            raise
        console.say(f"done: {folder}")


def _train(config: RunConfig, spec: EnvSpec, parts: _Parts, record: RunRecord, signals: StopSignals) -> None:
    from rlcli.runner import Runner

    for note in parts.notes:
        record.console.say(note)
    record.console.say(f"learning on {config.device} with {config.torch_threads} torch threads, seed {config.seed}")
    runner = Runner(parts.agent, parts.algo, record, _runner_options(config, parts), signals)
    if parts.checkpoint is not None:
        runner.load(parts.checkpoint.state)
    sampler = signals.unless_stopped(0.0, lambda: _build_sampler(config, spec, parts.agent, record.console))
    if sampler is not None:
        with _closed(sampler, signals):
            runner.run(sampler)
    elif signals.requested != signal.SIGINT:
        runner.save()  # a scheduler that starts the job again can start it from here
    signals.raise_if_requested()


def _runner_options(config: RunConfig, parts: _Parts) -> RunnerOptions:
    from rlcli.runner import RunnerOptions

    return RunnerOptions(
        n_steps=config.n_steps,
        log_interval_steps=config.log_interval_steps,
        eval_interval_steps=config.eval.interval_steps,
        checkpoint_interval_steps=config.checkpoint_interval_steps,
        seed=config.seed,
        exact_envs=parts.exact_envs,
        max_time_s=None if config.max_time is None else seconds(config.max_time),
        max_time=config.max_time or "",
    )


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
        env=config.task,
        eval_env=evaluation_config(config.task),
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
