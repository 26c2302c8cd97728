"""The verb ``eval``: whole games with a saved agent, by the evaluation that training uses."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcli.cli import argv, verb
from rlcli.cli.verb import Flag, Words
from rlcli.core.errors import ConfigError, RlcliError
from rlcli.core.stop import StopSignals

if TYPE_CHECKING:
    from rlcli.cli.config import RunConfig
    from rlcli.cli.saved import Saved
    from rlcli.core.protocols import Agent, Sampler
    from rlcli.core.samples import Evaluation
    from rlcli.core.spec import EnvSpec
    from rlcli.record.evaluations import EvaluationProtocol

FLAGS = (
    Flag("episodes", "whole games to play; else eval.n_episodes of the run", int, "N", ge=1),
    Flag("seed", "seed of environments and actions; else the run's", int, "S", ge=0),
    Flag("itr", "take itr_<N>.pkl of the run", int, "N", ge=0),
    Flag("best", "take best.pkl of the run"),
    Flag("all", "take every itr_<N>.pkl of the run in turn, and params.pkl if it is newer"),
    Flag("out", "append the rows to this file instead of the run's evaluations.csv", str, "FILE.csv"),
)

_HELP = """usage: rlcli eval RUN|FILE [flags] [key=value ...]

Plays whole games with a saved agent and prints mean, standard deviation and number; one row each in evaluations.csv.
RUN is a run folder, the name of a run or 'last'; of a run params.pkl is taken, or its newest itr_<N>.pkl.

flags:
{flags}

keys: eval.n_envs, eval.max_steps, epsilon.eval, device, sampler=serial|cpu|gpu, sampler.n_workers ..., and those keys
of env that leave its spaces as they are (env.sticky=0.25)

examples:
  rlcli eval last
  rlcli eval runs/dqn-pong --episodes 100 --all sampler=cpu
  rlcli eval params.pkl --seed 7 --out results.csv env.sticky=0.25
"""


@dataclass(frozen=True)
class EvaluationResult:
    """One evaluation of one snapshot."""

    protocol: EvaluationProtocol
    """What was evaluated, and how."""
    evaluation: Evaluation
    """All games, learning episodes and cut scores."""
    row: dict[str, Any]
    """The row of evaluations.csv."""

    @property
    def n(self) -> int:
        """Whole games finished."""
        return len(self.evaluation.games)

    @property
    def scores(self) -> list[float]:
        """Raw score of each finished game."""
        return [game.score for game in self.evaluation.games]

    @property
    def cut_scores(self) -> list[float]:
        """Scores so far of the games that the cap on steps cut off."""
        return list(self.evaluation.cut_scores)

    @property
    def mean(self) -> float:
        """Mean raw score of whole games, nan if none was finished."""
        return float(self.row["EvalGameScoreAverage"])

    @property
    def std(self) -> float:
        """Standard deviation of the raw scores (the population's), nan if no game was finished."""
        return float(self.row["EvalGameScoreStd"])


@dataclass(frozen=True)
class Request:
    """How to evaluate, whatever the snapshot."""

    n_episodes: int | None = None
    seed: int | None = None
    overrides: tuple[str, ...] = ()


class Session:
    """Evaluation environments and an agent, for all snapshots of one configuration.

    Args:
        saved: One of the snapshots.
        request: How to evaluate.
        say: Takes lines for the user.

    Raises:
        ConfigError: The request cannot be met.
    """

    def __init__(self, saved: Saved, request: Request, say: Callable[[str], None]) -> None:
        from rlcli.cli.saved import build_agent

        self.tree = saved.snapshot["config"]
        self._request = request
        self._config, spec = _asked(saved, request)
        _set_torch_threads(self._config, spec)
        context = replace(self._config, sampler=saved.config.sampler)  # an agent may hang on training's environments
        self._agent: Agent = build_agent(replace(saved, config=context), spec, self._config.device)
        self._sampler, self._n_envs = _sampler(self._config, spec, self._agent, say)

    def evaluate(self, saved: Saved) -> EvaluationResult:
        """Play with the weights of a snapshot."""
        from rlcli.cli.saved import load_weights
        from rlcli.record.evaluations import evaluation_row

        load_weights(self._agent, saved)
        self._sampler.publish()
        begin = time.perf_counter()
        done = self._sampler.evaluate(int(saved.snapshot["cum_steps"]))
        protocol = self._protocol(saved)
        return EvaluationResult(protocol, done, evaluation_row(protocol, done, time.perf_counter() - begin))

    def close(self) -> None:
        """End what steps the environments."""
        self._sampler.close()

    def _protocol(self, saved: Saved) -> EvaluationProtocol:
        from rlcli.envs.config import short_name
        from rlcli.record.evaluations import EvaluationProtocol

        config = self._config
        return EvaluationProtocol(
            file=saved.path,
            itr=int(saved.snapshot["itr"]),
            cum_steps=int(saved.snapshot["cum_steps"]),
            n_episodes=config.eval.n_episodes,
            seed=config.seed,
            n_envs=self._n_envs,
            max_steps=config.eval.max_steps,
            epsilon=None if config.epsilon is None else float(config.epsilon.eval),
            sampler=config.choices["sampler"],
            env=short_name(config.env),
            overrides=" ".join(self._request.overrides),
        )


def evaluate(
    target: str | os.PathLike[str],
    *,
    episodes: int | None = None,
    seed: int | None = None,
    itr: int | None = None,
    best: bool = False,
    overrides: Sequence[str] = (),
    out: str | os.PathLike[str] | None = None,
) -> EvaluationResult:
    """See rlcli.evaluate."""
    from rlcli.cli.saved import load_saved

    for name, value, least in (("episodes", episodes, 1), ("seed", seed, 0)):
        if value is not None and value < least:
            raise ConfigError(f"{name}: {value} is not allowed, must be >= {least}")
    with StopSignals() as signals:
        saved = load_saved(target, itr, best)
        place = _table_of(saved.path, out)
        with _session(saved, Request(episodes, seed, tuple(overrides)), signals, _quiet) as session:
            result = session.evaluate(saved)
        _write(place, result)
        return result


def command(words: Sequence[str]) -> int:
    """``rlcli eval`` with these words; returns the exit code."""
    return verb.run("eval", lambda signals: _command(verb.parse(words, FLAGS), signals))


def _command(words: Words, signals: StopSignals) -> int:
    if words.help:
        print(_HELP.format(flags=verb.flag_lines(FLAGS)).rstrip())
        return verb.DONE
    from rlcli.cli.evaluation_table import print_table

    results: list[EvaluationResult] = []
    code = verb.DONE
    request = Request(words.values.get("episodes"), words.values.get("seed"), tuple(words.overrides))
    for got in _each(words, request, signals):
        if isinstance(got, ConfigError):
            verb.say("eval", str(got))
            code = verb.FAILED
        else:
            results.append(got)
    print_table(results)
    places = dict.fromkeys(_table_of(result.protocol.file, words.values.get("out")) for result in results)
    for place in places:
        print(
            f"written to {place}"
            if place
            else "written nowhere: the file is in no run folder; --out FILE.csv names one"
        )
    return code


def _each(words: Words, request: Request, signals: StopSignals) -> Iterator[EvaluationResult | ConfigError]:
    """Evaluate the files that the words ask for, each written down at once; of several a broken one stops no other."""
    from rlcli.cli.saved import read_saved

    session: Session | None = None
    several, out, done = "all" in words.values, words.values.get("out"), set[int]()
    try:
        for path in _files(words):
            place = _table_of(path, out)
            try:
                saved = read_saved(path)
            except ConfigError as error:
                if not several:
                    raise
                yield error
                continue
            if int(saved.snapshot["itr"]) in done:
                continue  # params.pkl, written together with the last of the others
            if session is None or session.tree != saved.snapshot["config"]:
                _close(session, signals)
                session = None
                session = Session(saved, request, lambda line: verb.say("eval", line))
            result = session.evaluate(saved)
            _write(place, result)
            done.add(result.protocol.itr)
            yield result
    finally:
        _close(session, signals)


def _files(words: Words) -> list[Path]:
    from rlcli.cli.runs import find_run
    from rlcli.cli.saved import LAST_FILE, kept_files, snapshot_file

    values = words.values
    if "all" not in values:
        return [snapshot_file(words.target, values.get("itr"), "best" in values)]
    if both := [name for name in ("itr", "best") if name in values]:
        raise ConfigError(f"--all: goes not with --{both[0]}")
    run = find_run(words.target)
    last = [run / LAST_FILE] if (run / LAST_FILE).is_file() else []
    files = [*kept_files(run).values(), *last]
    if not files:
        raise ConfigError(f"run: {run} has no snapshot, neither {LAST_FILE} nor itr_<N>.pkl")
    return files


def _asked(saved: Saved, request: Request) -> tuple[RunConfig, EnvSpec]:
    """The snapshot's configuration with what the request changes, and the spaces of its environment."""
    from rlcli.cli import build
    from rlcli.cli.changes import changed
    from rlcli.cli.saved import checked_config, stored_tree
    from rlcli.envs.probe import probe

    texts = request.overrides
    raw = argv.raw_texts(texts)
    if request.n_episodes is not None and "eval.n_episodes" in raw:
        raise ConfigError("eval.n_episodes: given twice, --episodes says the same")
    config = checked_config(changed(stored_tree(saved.snapshot), texts), raw)
    if request.n_episodes is not None:
        config.eval = replace(
            config.eval,
            n_episodes=request.n_episodes,
            max_steps=config.eval.max_steps if "eval.max_steps" in raw else _cap(config, request.n_episodes),
        )
    seed = config.seed if request.seed is None else request.seed
    config = replace(config, seed=seed, device=build.device_for(config.device))
    build.refuse_fork_beside_cuda(config)
    spec = probe(config.task, config.seed)
    if any(key.startswith("env.") for key in raw):
        _refuse_other_spaces(spec, probe(saved.config.task, saved.config.seed))
    return config, spec


def _set_torch_threads(config: RunConfig, spec: EnvSpec) -> None:
    """As in training."""
    import torch

    from rlcli.cli import build

    torch.set_num_threads(config.torch_threads or build.fitting_threads(spec))


def _cap(config: RunConfig, n_episodes: int) -> int:
    """More episodes than training's evaluations had may take more steps, in proportion."""
    return math.ceil(config.eval.max_steps * max(1.0, n_episodes / config.eval.n_episodes))


def _refuse_other_spaces(spec: EnvSpec, trained: EnvSpec) -> None:
    for name in ("observation_space", "action_space"):
        ours, theirs = getattr(spec, name), getattr(trained, name)
        if ours != theirs:
            raise ConfigError(f"env: the changed keys give the {name} {ours}, the agent was trained on {theirs}")


def _sampler(config: RunConfig, spec: EnvSpec, agent: Agent, say: Callable[[str], None]) -> tuple[Sampler, int]:
    """What plays, and how many evaluation environments it has. Its training environments take no step."""
    from rlcli.envs.config import evaluation_config
    from rlcli.samplers.evaluation import n_evaluation_envs
    from rlcli.samplers.setup import SamplerSetup

    setup = SamplerSetup(
        env=config.task,
        eval_env=evaluation_config(config.task),
        spec=spec,
        agent=agent,
        seed=config.seed,
        discount=config.algo.discount,
        eval_n_envs=config.eval.n_envs,
        eval_n_episodes=config.eval.n_episodes,
        eval_max_steps=config.eval.max_steps,
        device=config.device,
        imports=tuple(config.imports),
        say=say,
    )
    n_envs = n_evaluation_envs(setup)
    # workers are shared out over the training environments: as many as there are others
    batch_B = n_envs if config.sampler.has_workers else 1
    sampler: Sampler = replace(config.sampler, batch_T=1, batch_B=batch_B, max_decorrelation_steps=0).build(setup)
    return sampler, n_envs


@contextmanager
def _session(saved: Saved, request: Request, signals: StopSignals, say: Callable[[str], None]) -> Iterator[Session]:
    session = Session(saved, request, say)
    try:
        yield session
    finally:
        _close(session, signals)


def _close(session: Session | None, signals: StopSignals) -> None:
    """Close to the end, also when a signal comes meanwhile."""
    if session is None:
        return
    with signals.deferred():
        session.close()


def _table_of(file: Path, out: str | os.PathLike[str] | None) -> Path | None:
    """Where the row belongs, None if nowhere.

    Raises:
        ConfigError: There is something else.
    """
    from rlcli.cli.runs import is_run
    from rlcli.record.evaluations import FILE, check_appendable

    if out is None and not is_run(file.parent):
        return None
    place = file.parent / FILE if out is None else Path(out).expanduser().absolute()
    check_appendable(place)
    return place


def _write(place: Path | None, result: EvaluationResult) -> None:
    from rlcli.record.evaluations import append_row

    if place is None:
        return
    file = result.protocol.file
    if file.parent == place.parent:  # a run folder may be moved
        result.row["File"] = file.name
    try:
        append_row(place, result.row)
    except OSError as error:
        raise RlcliError(f"{place}: not written: {error.strerror or error}") from error


def _quiet(line: str) -> None:
    """A function prints nothing."""
