"""``rlcli --help`` and ``rlcli train --help``. Loads neither Hydra nor torch."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlcli.cli import argv, paths
from rlcli.cli.argv import Request
from rlcli.core.options import rule

VERBS = {
    "train": "train an agent; -m trains many",
    "resume": "go on with a run that was stopped or killed, exactly",
    "eval": "play whole games with a saved agent: mean, std, a line in evaluations.csv",
    "play": "watch a saved agent, in a window or as a video",
    "export": "a saved agent's policy as a file that runs without rlcli",
    "verify": "run a run's first iterations again and say where it differs",
    "list": "list algos, envs, samplers, experiments and so on",
}
"""Verb -> what it does."""

_MAIN = """usage: rlcli <verb> [key=value ...] [flags]

verbs:
{verbs}

rlcli train --help   options, keys, flags, examples
rlcli <verb> --help  what another verb takes
rlcli --version      version

examples:
  rlcli train experiment=quickstart
  rlcli train algo=dqn sampler=cpu env=atari env.game=breakout
  rlcli resume last n_steps=2e6
  rlcli eval last --episodes 100
  rlcli list envs

exit codes: 0 done, 1 the run failed, 2 the request cannot be met, 3 stopped (SIGTERM,
SIGUSR1, max_time), 130 interrupted (Ctrl-C)
"""

_TRAIN = """usage: rlcli train [group=option ...] [key=value ...] [flags]

options (rlcli list shows what each is; rlcli train group=option --help shows its keys):
{groups}

top-level keys:
{keys}

flags:
  -m               one job for each combination of the values: rlcli train -m seed=1,2 algo=dqn,a2c
  --resume FILE    start from a params.pkl or itr_<N>.pkl: weights and optimizer state, counters from zero
  --resume RUN     go on with a run: the same as rlcli resume RUN
  --cfg job        print the composed configuration and check it, run nothing
  --info [WHAT]    what Hydra knows: defaults, searchpath, plugins, ...
  -cd DIR          add a folder of your own YAML files
  -cn NAME         compose NAME.yaml instead of train.yaml

examples:
  rlcli train experiment=quickstart
  rlcli train algo=dqn sampler=cpu env=pong n_steps=2e6 seed=1
  rlcli train -m seed=1,2,3 algo.learning_rate=1e-3,1e-4 experiment=quickstart
  rlcli train -cd my_conf imports=[my_package] env=mine
"""

_WIDTH = 110


def main() -> str:
    """The text of ``rlcli --help``."""
    return _MAIN.format(verbs="\n".join(f"  {verb:<8} {what}" for verb, what in VERBS.items())).rstrip()


def version() -> str:
    """The text of ``rlcli --version``."""
    from rlcli import __version__

    return f"rlcli {__version__}"


def train(request: Request) -> str:
    """The text of ``rlcli train --help``; of each option that the request names also the keys."""
    from rlcli.cli.config import RunConfig

    folders = [paths.conf_dir(), *request.config_dirs]
    listed = [f"  {group:<11} {' '.join(paths.options(folders, group))}" for group in paths.groups(folders)]
    text = _TRAIN.format(groups="\n".join(listed), keys="\n".join(_keys(RunConfig, "", {})))
    return "\n".join([text.rstrip(), *_chosen(request, folders)])


def _chosen(request: Request, folders: Sequence[Path]) -> Iterator[str]:
    for override in request.overrides:
        group, name = argv.key_of(override), override.partition("=")[2]
        file = paths.options(folders, group).get(name)
        if file is None:
            continue
        yield f"\nkeys of {group}={name}:"
        yield from _keys_of_option(group, file, request)


def _keys_of_option(group: str, file: Path, request: Request) -> Iterator[str]:
    import yaml  # type: ignore[import-untyped]

    from rlcli.cli import schema, user_code

    kind = paths.schema_kind(file, group)
    if kind is not None and schema.config_class(group, kind) is None:
        user_code.add_to_path(request.config_dirs)
        user_code.import_modules(argv.raw_texts(request.overrides).get("imports", "").strip("[]").split(","))
    cls = None if kind is None else schema.config_class(group, kind)
    if cls is None:
        yield f"  see {file}"
        return
    yield from _keys(cls, f"{group}.", yaml.safe_load(file.read_text(encoding="utf-8")) or {})


def _keys(cls: type, prefix: str, values: dict[str, Any]) -> Iterator[str]:
    """One entry for each key: name, default, meaning, range."""
    from rlcli.cli import schema
    from rlcli.cli.convert import default_of
    from rlcli.register import GROUPS

    for declared in dataclasses.fields(cls):
        value = values.get(declared.name, default_of(declared))
        if dataclasses.is_dataclass(value):
            yield from _keys(type(value), f"{prefix}{declared.name}.", {})
        elif prefix or declared.name not in (*GROUPS, "choices"):
            yield from _entry(f"{prefix}{declared.name}", schema.plain(value), declared.metadata)


def _entry(key: str, value: Any, metadata: Any) -> Iterator[str]:
    from rlcli.cli.convert import show

    shown = value if isinstance(value, str) else f"{value:_}" if type(value) is int else show(value)
    bounds = rule(metadata).replace("= ", "=\N{NO-BREAK SPACE}")
    doc = f"{metadata.get('doc', '')}{f' [{bounds}]' if bounds else ''}"
    head = f"  {f'{key}={shown}':<34} "
    lines = textwrap.wrap(doc, _WIDTH, initial_indent=head, subsequent_indent=" " * 37)
    yield from (line.replace("\N{NO-BREAK SPACE}", " ") for line in lines or [head.rstrip()])
