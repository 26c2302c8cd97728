"""The whole configuration of a run, and the check that makes it from what Hydra composed.

Imports no torch: ``rlcli train --cfg job`` and every message about a bad value must come at once.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcli.cli import schema, suggest, user_code
from rlcli.cli.convert import Report, Unknown, show, to_dataclass
from rlcli.core.duration import seconds
from rlcli.core.errors import ConfigError, did_you_mean
from rlcli.core.options import option, range_problems
from rlcli.register import GROUPS

OPTIONAL_GROUPS = ("epsilon", "replay")
"""Groups that not every algorithm has; its YAML file brings them in."""


@dataclass
class EvalConfig:
    """Evaluation during training: on its own environments, with its own random streams, whole episodes only."""

    interval_steps: int = option(0, "Env steps between two evaluations; 0: none.", ge=0)
    n_envs: int = option(4, "Environments of an evaluation.", ge=1)
    n_episodes: int = option(20, "Episodes of an evaluation, shared out evenly over its environments.", ge=1)
    max_steps: int = option(200_000, "Agent steps after which an evaluation is cut, all environments together.", ge=1)


@dataclass
class RunConfig:
    """Everything about a run. The groups hold config dataclasses of their own rooms."""

    seed: int = option(0, "Every random number of the run hangs on it.", ge=0, at_resume="locked")
    n_steps: int = option(10_000_000, "Budget of the run, env steps (agent decisions over all environments).", ge=1)
    log_interval_steps: int = option(10_000, "Env steps between two rows of progress.csv.", ge=1)
    snapshot_mode: str = option(
        "last",
        "none; last: params.pkl, overwritten; all: itr_<N>.pkl at every row; gap: itr_<N>.pkl at every "
        "`snapshot_gap`-th row; last_gap: both last and gap.",
        choices=("none", "last", "all", "gap", "last_gap"),
    )
    snapshot_gap: int = option(10, "Rows of progress.csv between two kept snapshots.", ge=1)
    snapshot_best: bool = option(
        False, "Also keep best.pkl: the weights of the evaluation with the highest mean score of whole games."
    )
    checkpoint_interval_steps: int = option(
        100_000,
        "Env steps between two checkpoints, from which `rlcli resume` goes on exactly; the last two are kept. One is "
        "also written at the end and at a signal. 0: none at all.",
        ge=0,
    )
    checkpoint_replay: bool = option(
        True, "Whether checkpoints hold the replay; if not, a resumed run first fills it anew with the loaded policy."
    )
    max_time: str | None = option(
        None, "Wall time, such as 1h30m, after which the run writes a checkpoint and ends with exit code 3."
    )
    hash_iterations: int = option(
        10,
        "First iterations whose samples and weights are hashed into hashes.jsonl, for `rlcli verify`; 0: none.",
        ge=0,
    )
    name: str | None = option(None, "Name of the run: runs/<name>/ instead of runs/<algo>-<env>/.", at_resume="locked")
    run_dir: str | None = option(
        None, "The run folder itself; must be empty or not exist (-m: PATH/<job number>).", at_resume="locked"
    )
    device: str = option("auto", "Where learning runs: cpu, cuda, cuda:N; auto: cuda if there is one.")
    torch_threads: int | None = option(
        None, "Threads of the learner on the CPU; null: torch's own number for images, 1 for small networks.", ge=1
    )
    resume: str | None = option(
        None,
        "A params.pkl or itr_<N>.pkl, or one of rlpyt's agents, to start from; or write --resume FILE.",
        at_resume="locked",
    )
    resume_optimizer: bool = option(True, "Whether the file's optimizer state is taken too.", at_resume="locked")
    resume_keys: list[str] | None = option(
        None,
        "Take only the parameters whose names match one of these patterns: resume_keys=[trunk.*] for another number "
        "of actions; null: all, and they must fit.",
        at_resume="locked",
    )
    imports: list[str] = option([], "Your own modules, imported first: imports=[my_package].")
    eval: EvalConfig = dataclasses.field(default_factory=EvalConfig)
    env: Any = option(None, "The task.")
    algo: Any = option(None, "How to learn.")
    model: Any = option(None, "The network.")
    sampler: Any = option(None, "Who steps the environments.")
    epsilon: Any = option(None, "Share of random actions; only algorithms that explore so have it.")
    replay: Any = option(None, "Memory of past steps; only off-policy algorithms have it.")
    logger: Any = option(None, "What is shown and written down.")
    choices: dict[str, str] = option({}, "Which option of which group was chosen; not for the command line.")

    @property
    def task(self) -> Any:
        """Config of the environments as the model sees them: `env`, with what the model asks to be added.

        Raises:
            ConfigError: They cannot have it.
        """
        from rlcli.envs.previous import with_previous

        return with_previous(self.env, self.model)

    def problems(self) -> list[str]:
        """Checks that no range expresses; each line begins with the key."""
        found = []
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device):
            found.append(f"device: {self.device!r} is not allowed, must be auto, cpu, cuda or cuda:N")
        if self.resume is not None and not Path(self.resume).is_file():
            found.append(_no_file(self.resume))
        if self.max_time is not None:
            try:
                seconds(self.max_time)
            except ValueError as error:
                found.append(f"max_time: {error}")
        if self.snapshot_best and not self.eval.interval_steps:
            found.append("snapshot_best: needs evaluations, give eval.interval_steps")
        return found


def _no_file(path: str) -> str:
    if Path(path).is_dir():
        return f"resume: {path!r} is a folder; to go on with a run: rlcli resume {shlex.quote(path)}"
    return f"resume: there is no file {path!r}"


def root_defaults() -> dict[str, Any]:
    """The defaults of the keys that belong to no group, as plain containers."""
    tree = schema.defaults_tree(RunConfig)
    return {key: value for key, value in tree.items() if key not in (*GROUPS, "choices")}


def as_dict(config: RunConfig) -> dict[str, Any]:
    """The configuration as plain containers, each group with its ``kind``."""
    tree: dict[str, Any] = schema.plain(config)
    for group in GROUPS:
        part = getattr(config, group)
        if part is not None:
            tree[group] = {"kind": schema.kind_of(group, part), **tree[group]}
    return tree


def check(
    tree: Mapping[str, Any],
    choices: Mapping[str, str],
    raw: Mapping[str, str] | None = None,
    *,
    across: bool = True,
) -> RunConfig:
    """The typed configuration.

    Args:
        tree: What Hydra composed, as plain containers with interpolations resolved, without the hydra node.
        choices: Hydra's chosen option of each group.
        raw: Key -> text as typed, for str fields that got a number.
        across: Also ask the groups' own ``problems()``, which may load what they check with (ale_py, gymnasium).

    Raises:
        ConfigError: With all problems: unknown keys, types, missing values, ranges, checks across fields.
    """
    report = Report(raw=raw or {})
    imports = _imports(tree.get("imports"))
    parts = {group: _part(group, tree.get(group), choices, report) for group in GROUPS}
    own = {key: value for key, value in tree.items() if key not in (*GROUPS, "choices")}
    if "choices" in tree:
        report.unknown.append(Unknown("", "choices", RunConfig))
    if isinstance(imports, list):
        own["imports"] = imports
    config: RunConfig = to_dataclass(RunConfig, own, "", report)
    config = dataclasses.replace(config, choices=dict(choices), **parts)
    if config.resume is not None:
        config.resume = str(Path(config.resume).expanduser().absolute())
    lines = [suggest.explain(unknown, tree, choices) for unknown in report.unknown]
    lines += [f"{key}: {text}" for key, text in report.problems.items()]
    known = [*report.keys(), *(f"{group}." for group in GROUPS if not across)]
    lines += [*range_problems(config, known=known), *config.problems()]
    if lines:
        raise ConfigError(list(dict.fromkeys(lines)))
    return config


def _imports(given: Any) -> Any:
    """The modules to import, those of the environment variable first; imported when they are a list of names."""
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        return names
    names = list(dict.fromkeys([*user_code.modules_of_environment(os.environ), *names]))
    user_code.import_modules(names)
    return names


def _part(group: str, tree: Any, choices: Mapping[str, str], report: Report) -> Any:
    """The config of one group, None if it has none or if it cannot be made."""
    if tree is None:
        if group not in OPTIONAL_GROUPS:
            report.problems[group] = f"needs a value, one of {', '.join(schema.kinds(group))}"
        return None
    if not isinstance(tree, Mapping):
        report.problems[group] = f"{show(tree)} is no option of this group"
        return None
    values = dict(tree)
    kind = values.pop("kind", None)
    cls = config_class(group, kind, choices, values, report)
    return None if cls is None else to_dataclass(cls, values, f"{group}.", report)


def config_class(
    group: str, kind: Any, choices: Mapping[str, str], values: Mapping[str, Any], report: Report
) -> type | None:
    """The class of a group's ``kind``, None with the problem noted if there is none."""
    if kind is None and group in OPTIONAL_GROUPS and group not in choices:
        for name in values:
            report.problems[f"{group}.{name}"] = f"algo={choices.get('algo')} has no {group}"
        return None
    cls = schema.config_class(group, kind) if isinstance(kind, str) else None
    if cls is None and kind is None:
        line = f"defaults: [/schema/{group}/<kind>@_here_]"
        report.problems[group] = f"the file of {group}={choices.get(group)} names no config class; it needs {line}"
    elif cls is None:
        report.problems[f"{group}.kind"] = f"{show(kind)} is unknown{did_you_mean(str(kind), schema.kinds(group))}"
    return cls
