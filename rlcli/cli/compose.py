"""From overrides to checked configurations: one for a run, one for each job of a sweep."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcli.cli import argv, config, paths, schema, user_code
from rlcli.cli.argv import Request
from rlcli.cli.config import RunConfig
from rlcli.cli.messages import KIND_IS_FIXED, translated
from rlcli.core.errors import ConfigError
from rlcli.register import GROUPS

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig

_ADD = "++"


@dataclass
class Plan:
    """What will be run; every configuration in it has been checked."""

    overrides: list[str]
    """For Hydra's own command line."""
    jobs: list[list[str]]
    """Overrides of each job, as typed."""
    configs: list[RunConfig]
    multirun: bool
    sweep_dir: Path
    """Where Hydra keeps a sweep; not made yet."""
    environment: dict[str, str]
    """Environment variables of a single job (hydra.job.env_set)."""


def prepare(request: Request) -> None:
    """Import the user's modules and fill Hydra's ConfigStore.

    Raises:
        ConfigError: A module cannot be imported, or takes a name of rlcli's own.
    """
    user_code.add_to_path(request.config_dirs)
    names = user_code.modules_of_environment(os.environ)
    with translated():
        for override in _parse([o for o in request.overrides if argv.key_of(o) == "imports"]):
            if override.is_sweep_override():
                raise ConfigError(f"imports: several modules go in brackets: imports=[{_text_of(override)}]")
            value = override.value()
            names += [value] if isinstance(value, str) else value if isinstance(value, list) else []
    user_code.import_modules(str(name) for name in names)
    schema.store()


def plan(request: Request, *, across: bool = True) -> Plan:
    """Compose and check everything that the request would run.

    Args:
        request: What the user asked for.
        across: As in rlcli.cli.config.check.

    Raises:
        ConfigError: With all problems of all jobs.
    """
    with translated():
        parsed, roots = _parse(request.overrides), _roots(request)
        _refuse(parsed)
        texts = hydra_overrides(request)
        swept = [o for o in parsed if o.is_sweep_override()]
        with _initialized(primary_dir(request)):
            fixed = [t for t in texts if not _parse([t])[0].is_sweep_override()]
            base = _compose(request.config_name, fixed)
            multirun = request.multirun or str(base.hydra.mode).endswith("MULTIRUN")
            if swept and not multirun:
                raise ConfigError([_needs_multirun(o, _is_group(o, roots)) for o in swept])
            raw = [_line(o) for o in parsed if not o.is_sweep_override()]
            jobs = _jobs(texts, base) if multirun else [texts]
            if multirun:
                configs = _checked(request, jobs, raw)
            else:
                configs = [to_config(base, base.hydra.runtime.choices, raw, across=across)]
        if base.hydra.callbacks and not multirun:
            raise ConfigError("hydra.callbacks: Hydra calls them in a sweep (-m), not in a single run")
        environment = {str(name): str(value) for name, value in base.hydra.job.env_set.items()}
        folder = Path(str(base.hydra.sweep.dir))
        return Plan(texts, [as_typed(job) for job in jobs], configs, multirun, folder, environment)


def hydra_overrides(request: Request) -> list[str]:
    """The overrides as Hydra gets them.

    A plain ``key=value`` becomes ``++key=value``: Hydra then accepts unknown keys, of which it would report only the
    first, and rlcli.cli.config.check reports them all.
    """
    parsed, roots = _parse(request.overrides), _roots(request)
    texts = [_for_hydra(o, roots) for o in parsed if argv.key_of(_line(o)) != "hydra.searchpath"]
    given = [v for o in parsed if argv.key_of(_line(o)) == "hydra.searchpath" for v in _list(o)]
    others = [folder for folder in roots if folder != primary_dir(request)]
    places = [*(f"file://{folder}" for folder in others), *given]
    if places:
        texts.append(f"hydra.searchpath=[{','.join(argv.quoted(place) for place in places)}]")
    return texts


def primary_dir(request: Request) -> Path:
    """The folder of the primary config: the first that has it; Hydra finds it in no other than its main folder.

    Raises:
        ConfigError: No folder has it.
    """
    for folder in _roots(request):
        if (folder / f"{request.config_name}.yaml").is_file():
            return folder
    raise ConfigError(f"-cn: there is no {request.config_name}.yaml in {', '.join(map(str, _roots(request)))}")


def as_typed(overrides: Sequence[str]) -> list[str]:
    """Overrides of Hydra as the user would type them."""
    return [o.removeprefix(_ADD) for o in overrides if not o.startswith("hydra.searchpath=")]


def to_config(cfg: DictConfig, choices: Any, overrides: Sequence[str], *, across: bool = True) -> RunConfig:
    """The checked configuration of one composed job.

    Args:
        cfg: What Hydra composed, with or without its own node.
        choices: Hydra's chosen options.
        overrides: The job's overrides.
        across: As in rlcli.cli.config.check.

    Raises:
        ConfigError: With all problems.
    """
    with translated():
        tree = {str(key): _plain(cfg, key) for key in cfg if key != "hydra"}
    chosen = {str(k): str(v) for k, v in choices.items() if v is not None and not str(k).startswith("hydra/")}
    return config.check(tree, chosen, argv.raw_texts(overrides), across=across)


def _plain(cfg: DictConfig, key: Any) -> Any:
    """One entry as plain containers, its interpolations resolved."""
    from omegaconf import OmegaConf

    value = schema.MISSING if OmegaConf.is_missing(cfg, key) else cfg[key]
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def _parse(overrides: Sequence[str]) -> list[Override]:
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser

    loader = GlobalHydra.instance().config_loader() if GlobalHydra.instance().is_initialized() else None
    return OverridesParser.create(config_loader=loader).parse_overrides(list(overrides))


def _for_hydra(override: Override, roots: Sequence[Path]) -> str:
    text, key = _line(override), override.key_or_group
    if override.is_hydra_override() or override.is_delete() or override.package is not None:
        return text
    if _is_group(override, roots):
        if override.value() is None or override.value() == "":
            raise ConfigError(f"{key}: needs a value, one of {', '.join(paths.options(roots, key))}")
        # The groups are all in train.yaml's defaults, where a + would only be in the way.
        return text.lstrip("+")
    if key == "imports" and isinstance(override.value(), str):
        return f"{_ADD}imports=[{_text_of(override)}]"
    return f"{_ADD}{text.lstrip('+')}"


def _roots(request: Request) -> list[Path]:
    return [paths.conf_dir(), *request.config_dirs]


def _is_group(override: Override, roots: Sequence[Path]) -> bool:
    """Whether the override chooses an option; ``algo={...}`` sets values instead."""
    is_folder = any((root / override.key_or_group).is_dir() for root in roots)
    return is_folder and not isinstance(override.value(), dict)


def _line(override: Override) -> str:
    """The override as it was typed."""
    return override.input_line or ""


def _text_of(override: Override) -> str:
    return _line(override).partition("=")[2]


def _list(override: Override) -> list[str]:
    value = override.value()
    if not isinstance(value, list):
        raise ConfigError(
            f"hydra.searchpath: {_text_of(override)!r} is not a list ([file:///a/folder, pkg://a.package])"
        )
    for place in value:
        folder = str(place).removeprefix("file://")
        if "://" not in folder and not Path(folder).is_dir():
            raise ConfigError(f"hydra.searchpath: there is no folder {folder!r}")
    return [str(place) for place in value]


def _refuse(overrides: Sequence[Override]) -> None:
    """Refuse what Hydra would take in silence."""
    for override in overrides:
        value = override.value()
        if override.key_or_group in GROUPS and isinstance(value, dict) and "kind" in value:
            raise ConfigError(f"{override.key_or_group}.kind: {KIND_IS_FIXED.format(override.key_or_group)}")
        if argv.key_of(_line(override)) in ("hydra.run.dir", "hydra.output_subdir"):
            raise ConfigError(f"{override.key_or_group}: rlcli makes the run folder itself; use run_dir=PATH")


def _needs_multirun(override: Override, is_group: bool) -> str:
    text, key = _line(override), argv.key_of(_line(override))
    line = f"{key}: several values; to run one job for each write rlcli train -m {text}"
    return line if is_group else f"{line}, for a list {key}=[{_text_of(override)}]; {argv.quoting_hint(text)}"


@contextmanager
def _initialized(folder: Path) -> Iterator[None]:
    from hydra import initialize_config_dir

    with initialize_config_dir(str(folder), version_base="1.3"):
        yield


def _compose(config_name: str, overrides: Sequence[str]) -> DictConfig:
    """Compose, with Hydra's own node, to which ``${hydra:...}`` then refers."""
    from hydra import compose
    from hydra.core.hydra_config import HydraConfig

    cfg = compose(config_name, overrides=list(overrides), return_hydra_config=True)
    HydraConfig.instance().set_config(cfg)
    return cfg


def _jobs(texts: Sequence[str], base: DictConfig) -> list[list[str]]:
    """Overrides of each job, in Hydra's order: the last key varies fastest."""
    params = base.hydra.sweeper.get("params") or {}
    in_files = [f"{key}={value}" for key, value in params.items()]
    parsed = _parse([*in_files, *texts])
    values: dict[str, list[str]] = {}
    for override in parsed:
        key = override.get_key_element()
        if not override.is_sweep_override():
            values[key] = [f"{key}={override.get_value_element_as_str()}"]
        elif override.is_discrete_sweep():
            values[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
        else:
            raise ConfigError(f"{argv.key_of(_line(override))}: a sweep needs a list of values, not an interval")
    return [list(job) for job in itertools.product(*values.values())]


def _checked(request: Request, jobs: Sequence[Sequence[str]], raw: Sequence[str]) -> list[RunConfig]:
    """The configuration of every job; problems of all jobs are reported together."""
    configs: list[RunConfig] = []
    problems: Counter[str] = Counter()
    for job in jobs:
        try:
            with translated():
                cfg = _compose(request.config_name, job)
            configs.append(to_config(cfg, cfg.hydra.runtime.choices, raw))
        except ConfigError as error:
            problems.update(error.problems)
    if problems:
        raise ConfigError([_of_jobs(line, n, len(jobs)) for line, n in problems.items()])
    return configs


def _of_jobs(line: str, n: int, n_jobs: int) -> str:
    return line if n == n_jobs else f"{line} ({n} of {n_jobs} jobs)"
