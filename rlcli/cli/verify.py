"""The verb ``verify``: a run's first iterations again, and where they differ from what it wrote down."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcli.cli import build, checkpointing, user_code, verb
from rlcli.cli.changes import put
from rlcli.cli.going_on import read_history
from rlcli.cli.resume import changed_config, stored_config
from rlcli.cli.runs import find_run, starting_folders
from rlcli.core.clock import Every
from rlcli.core.errors import ConfigError
from rlcli.core.rng import cut_seed
from rlcli.core.stop import StopSignals

if TYPE_CHECKING:
    from rlcli.cli.config import RunConfig
    from rlcli.record.hashes import Fingerprint

FLAGS = (verb.Flag("iterations", "How many of the first iterations; default: all that the run hashed.", int, "N", 1),)

_HELP = """usage: rlcli verify RUN [--iterations N] [key=value ...]

Runs the first iterations of a run again, writing nothing, and compares what the environments, the agent and the
algorithm did with the hashes that the run kept (hashes.jsonl; key hash_iterations). Exit code 0: the same; 1: not, with
the iteration, environment and tensor of the first difference. sampler=... may be another: the samples are the same.

flags:
{flags}
"""


@dataclass(frozen=True)
class Verdict:
    """What a second run of the same iterations gave."""

    n_compared: int
    difference: str
    """The first, in words with its iteration; empty if there is none."""


def command(words: Sequence[str]) -> int:
    """``rlcli verify`` with these words; returns the exit code."""
    return verb.run("verify", lambda signals: _command(words, signals))


def verify(
    run: str | os.PathLike[str],
    n_iterations: int | None,
    overrides: Sequence[str],
    signals: StopSignals,
) -> Verdict:
    """Run the first iterations again.

    Args:
        run: See `rlcli.cli.runs.find_run`.
        n_iterations: How many; None: all that there are hashes of.
        overrides: As for ``rlcli resume``: what its samples may be gathered with otherwise.
        signals: Tells when to stop.

    Raises:
        ConfigError: The run cannot be found or repeated, or has no hashes.
    """
    from rlcli.record.hashes import first_difference, read_hashes

    folder = find_run(run)
    user_code.add_to_path(starting_folders(folder))
    known = read_hashes(folder)
    if not known:
        raise ConfigError(f"run: {folder} has no hashes (hash_iterations)")
    if n_iterations is not None and n_iterations > len(known):
        raise ConfigError(f"--iterations: {n_iterations} is not allowed, the run has hashes of {len(known)}")
    known, tree = _before_the_first_resume(folder, known)
    config = changed_config(tree, overrides)
    if config.sampler.off_policy_only:
        raise ConfigError("sampler: which weights act in async mode hangs on timing; two such runs are never the same")
    compared = 0
    for before, now in zip(known[:n_iterations], _again(config, signals), strict=False):
        compared += 1
        if difference := first_difference(before, now):
            return Verdict(compared, f"iteration {before.itr}: {difference}")
    return Verdict(compared, "")


def _command(words: Sequence[str], signals: StopSignals) -> int:
    parsed = verb.parse(words, FLAGS)
    if parsed.help:
        print(_HELP.format(flags=verb.flag_lines(FLAGS)).rstrip())
        return verb.DONE
    verdict = verify(parsed.target, parsed.values.get("iterations"), parsed.overrides, signals)
    if verdict.difference:
        print(f"differs in {verdict.difference}")
        for line in _other_versions(find_run(parsed.target)):
            print(line)
        return verb.FAILED
    print(f"the same: {verdict.n_compared} iterations")
    return verb.DONE


def _again(config: RunConfig, signals: StopSignals) -> Iterator[Fingerprint]:
    """The fingerprints of a run with this configuration, one iteration after another."""
    from rlcli.record.hashes import fingerprint

    checked = build.preflight(config)
    exact_envs, _ = checkpointing.envs_are_exact(config, checked.spec)
    checkpoint_due = Every(config.checkpoint_interval_steps)
    with build.in_memory(replace(config, run_dir=None), checked, signals) as (agent, algo, sampler):
        itr = step = 0
        while step < config.n_steps:
            got = sampler.collect(step)
            step, itr = step + got.n_steps, itr + 1
            algo.update(got.samples, step=step)
            sampler.publish()
            yield fingerprint(itr, step, got.samples, agent.weights())
            if checkpoint_due(step) and not exact_envs:
                sampler.cut(cut_seed(config.seed, step))  # as the run did at its checkpoints


def _before_the_first_resume(folder: Path, known: list[Fingerprint]) -> tuple[list[Fingerprint], dict[str, Any]]:
    """The iterations of the run's first stretch, and the configuration that it had then."""
    tree = copy.deepcopy(dict(stored_config(folder)))
    resumes = read_history(folder)
    for entry in reversed(resumes):
        for key, (old, _) in entry["changes"].items():
            put(tree, key.split("."), old)
    steps = [entry["from_step"] for entry in resumes if entry["from_step"]]
    return [entry for entry in known if not steps or entry.step <= min(steps)], tree


def _other_versions(folder: Path) -> Iterator[str]:
    """What differs between the machine of the run and this one."""
    import json

    from rlcli.record.description import versions

    path = folder / "versions.json"
    then = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for name, value in versions().items():
        if then.get(name, value) != value:
            yield f"  {name}: {then[name]} then, {value} now"
