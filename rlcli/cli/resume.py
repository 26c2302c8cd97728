"""The verb ``resume``: the same run goes on in the same folder, from its newest checkpoint."""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcli.cli import argv, config, failure, schema, user_code, verb
from rlcli.cli.changes import override_values, put
from rlcli.cli.config import RunConfig
from rlcli.cli.ending import resume_command
from rlcli.cli.going_on import GoingOn, other_way
from rlcli.cli.resume_rules import Change, changes
from rlcli.cli.runs import find_run, starting_folders
from rlcli.core.errors import ConfigError, did_you_mean
from rlcli.core.stop import StopSignals

if TYPE_CHECKING:
    from rlcli.record.checkpoint import Loaded

_LOCKED_GROUPS = ("env", "algo", "model", "replay")

_HELP = """usage: rlcli resume RUN [key=value ...]

The same run goes on in the same folder, from its newest checkpoint: weights, optimizer, replay, counters, schedules,
random streams and, where they can be saved, the environments. RUN is a run folder, the name of a run, or 'last'.

key=value changes the configuration from here on. Budget, logging, evaluation, snapshots, device and worker processes
are free; algorithm, schedules and batch_T are changed with a warning; what saved state hangs on (environment, network,
number of environments, seed, replay layout) is refused by name. Each change is printed and kept in resumes.jsonl.

examples:
  rlcli resume last
  rlcli resume runs/dqn-pong/20261130_101010_s0 n_steps=2e6
  rlcli resume dqn-pong sampler.n_workers=4 algo.learning_rate=5e-5
"""


def command(words: Sequence[str]) -> int:
    """``rlcli resume`` with these words; returns the exit code."""
    return verb.run("resume", lambda signals: _command(words, signals))


def resume(run: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Path:
    """See rlcli.resume."""
    with StopSignals() as signals:
        folder, _ = _resume(run, overrides, ["rlcli", "resume", str(run), *overrides], signals, print)
        return folder


def _command(words: Sequence[str], signals: StopSignals) -> int:
    parsed = verb.parse(words, [])
    if parsed.help:
        print(_HELP.rstrip())
        return verb.DONE
    command_line = ["rlcli", "resume", *words]
    try:
        _resume(parsed.target, parsed.overrides, command_line, signals, print)
    except ConfigError:
        raise
    except Exception as error:
        failure.append_to_log(error, failure.failure_text(error))
        raise
    return verb.DONE


def _resume(
    run: str | os.PathLike[str],
    overrides: Sequence[str],
    command_line: Sequence[str],
    signals: StopSignals,
    say: Callable[[str], None],
) -> tuple[Path, bool]:
    """The run folder, and whether there was anything to do."""
    from rlcli.cli import build

    folder = find_run(run)
    user_code.add_to_path(starting_folders(folder))
    damaged: list[str] = []
    readable = _newest_first(folder, damaged.append)
    newest = next(readable, None)
    if newest is None and not damaged:
        _refuse_to_begin_again(folder)
    # config.yaml is what the run had last, which may be newer than the checkpoint
    tree = stored_config(folder)
    before, after = _checked(tree if newest is None else newest.state["config"], {}), _after(tree, overrides)
    changed = changes(before, after)
    _refuse_locked(changed)
    if newest is not None and newest.step >= after.n_steps:
        say(
            f"already at {newest.step:,} of {after.n_steps:,} steps: {folder}\n"
            f"give a larger budget: {resume_command(folder)} n_steps={2 * newest.step}"
        )
        return folder, False
    going_on = GoingOn(
        folder=folder,
        checkpoints=lambda notes: _told(itertools.chain([newest] if newest else [], readable), damaged, notes),
        has_any=newest is not None or bool(damaged),
        notes=(*(f"changed: {c}" for c in changed), *_dropped(folder, newest)),
        changes={c.key: (c.old, c.new) for c in changed},
    )
    build.run(after, build.preflight(after), command_line, signals, going_on)
    return folder, True


def _refuse_to_begin_again(folder: Path) -> None:
    """A run without checkpoints begins again only where nothing is lost by it."""
    rows = folder / "progress.csv"
    if rows.exists() and len(rows.read_bytes().splitlines()) > 1:
        why = "it was run with checkpoint_interval_steps=0, or the folder checkpoint/ is gone"
        raise ConfigError([f"run: {folder} has rows but no checkpoint to go on from: {why}", other_way(folder)])


def changed_config(tree: Mapping[str, Any], overrides: Sequence[str]) -> RunConfig:
    """A stored configuration with overrides in it.

    Raises:
        ConfigError: An override is wrong, or its key is locked.
    """
    after = _after(tree, overrides)
    _refuse_locked(changes(_checked(tree, {}), after))
    return after


def _after(tree: Mapping[str, Any], overrides: Sequence[str]) -> RunConfig:
    return _checked(_with(tree, overrides), argv.raw_texts(overrides))


def _refuse_locked(changed: Sequence[Change]) -> None:
    if locked := [c for c in changed if c.rule == "locked"]:
        raise ConfigError([f"{c} is locked: what this run has saved hangs on it; start a new run" for c in locked])


def _dropped(folder: Path, newest: Loaded | None) -> Iterator[str]:
    """Tells of rows that came after the checkpoint."""
    rows = folder / "progress.csv"
    if newest is not None and rows.exists():
        n = rows.read_text(encoding="utf-8", errors="replace").count("\n") - newest.rows.count("\n")
        if n > 0:
            yield f"progress.csv: {n} row{'s' * (n > 1)} after step {newest.step:,} dropped, they come again"


def _newest_first(folder: Path, say: Callable[[str], None]) -> Iterator[Loaded]:
    from rlcli.record.checkpoint import newest_first

    return newest_first(folder, say)


def _told(readable: Iterator[Loaded], damaged: list[str], say: Callable[[str], None]) -> Iterator[Loaded]:
    """The checkpoints; before each is told which newer ones were found damaged."""
    while True:
        loaded = next(readable, None)
        while damaged:
            say(damaged.pop(0))
        if loaded is None:
            return
        yield loaded


def stored_config(folder: Path) -> Mapping[str, Any]:
    """config.yaml: all that there is of a run that did not come to its first checkpoint."""
    import yaml  # type: ignore[import-untyped]

    try:
        tree = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"run: {folder}/config.yaml cannot be read: {reason}") from error
    if not isinstance(tree, Mapping) or "env" not in tree:
        raise ConfigError(f"run: {folder}/config.yaml is no whole configuration")
    return tree


def _checked(tree: Mapping[str, Any], raw: Mapping[str, str]) -> RunConfig:
    own = {key: value for key, value in tree.items() if key != "choices"}
    # the file that the run once started from is no longer needed; whether it is still there does not matter
    resume = own.pop("resume", None)
    checked = config.check(own, tree.get("choices", {}), raw)
    checked.resume = resume
    return checked


def _device(tree: Mapping[str, Any]) -> str:
    """The device that the run had, auto if this machine has no such."""
    stored = str(tree.get("device", "auto"))
    if stored.startswith("cuda"):
        import torch

        if int(stored.partition(":")[2] or 0) >= torch.cuda.device_count():
            return "auto"
    return stored


def _with(tree: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A copy of the stored configuration with the overrides in it."""
    new = copy.deepcopy(dict(tree)) | {"device": _device(tree)}
    values = override_values(overrides)
    if locked := [key for key, value in values.items() if key in _LOCKED_GROUPS and isinstance(value, str)]:
        raise ConfigError(
            [f"{key}: is locked: another option of it makes another run; start a new one" for key in locked]
        )
    for group in ("sampler", "epsilon", "logger"):
        if isinstance(kind := values.get(group), str):
            new[group] = _another(group, kind, new.get(group) or {})
            new["choices"] = {**new.get("choices", {}), group: kind}
            del values[group]
    for key, value in values.items():
        put(new, key.split("."), value)
    return new


def _another(group: str, kind: str, before: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of another option of a group: its own defaults, and what both have as it was."""
    cls = schema.config_class(group, kind)
    if cls is None:
        known = schema.kinds(group)
        raise ConfigError(f"{group}: {kind!r} is unknown{did_you_mean(kind, known)}; there are: {', '.join(known)}")
    own = schema.defaults_tree(cls)
    return {"kind": kind, **own, **{key: value for key, value in before.items() if key in own}}
