"""A run that starts from the weights in a file: what the file decides about its configuration, and loading it.

What a step counter, a schedule or a replay has come to is not taken over; that is what ``rlcli resume`` does.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from rlcli.cli.rlpyt_config import as_in_file
from rlcli.core.errors import ConfigError, SnapshotError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor

    from rlcli.cli.config import RunConfig
    from rlcli.core.protocols import Agent, Algo
    from rlcli.record.rlpyt_parts import Architecture, Moments, RlpytFile, VectorArchitecture

_NAMED = 5
_WITHOUT_HEAD = "resume_keys=[trunk.*] takes all but the outputs"


def given_keys(overrides: Iterable[str]) -> set[str]:
    """The keys that overrides set, ``model={conv_hidden: 16}`` taken apart.

    Args:
        overrides: As typed; words of the command line that are no overrides do no harm.
    """
    keys = set()
    for word in overrides:
        key, sign, value = word.lstrip("+").partition("=")
        if sign:
            keys.add(key)
        if value.lstrip().startswith("{"):
            keys |= {f"{key}.{name}" for name in re.findall(r"(\w+)\s*:", value)}
    return keys


def adapted(
    config: RunConfig, given: Collection[str], keys: Sequence[str] | None = None
) -> tuple[RunConfig, list[str]]:
    """The configuration with what its ``resume`` file decides: sizes of the network and of the screens.

    Only a file of rlpyt decides anything; of a run's own the network must be configured as it was.

    Args:
        config: The checked configuration; nothing has been built from it yet.
        given: The keys that the user set on the command line. The file may not contradict them.
        keys: The run's ``resume_keys``. With them the user's own keys win, for not all is taken from the file.

    Returns:
        The configuration, and lines for the user that say what came from the file.

    Raises:
        ConfigError: The file cannot be read or used, or contradicts a key that the user set.
    """
    from rlcli.record.rlpyt_files import is_rlpyt, translate
    from rlcli.record.snapshot import as_snapshot, read_content

    if config.resume is None:
        return config, []
    try:
        content = read_content(config.resume)
        if not is_rlpyt(content):
            as_snapshot(config.resume, content)  # refuses what is none, before anything is built
            return config, []
        file = translate(content)
    except SnapshotError as error:
        raise ConfigError(_line(config.resume, error)) from error
    return as_in_file(config, file, given, partial=keys is not None)


def start_from(
    path: str, agent: Agent, algo: Algo, device: str, *, optimizer: bool = True, keys: Sequence[str] | None = None
) -> list[str]:
    """Load a file's weights, and its optimizer state; counters stay at zero.

    Args:
        path: A snapshot of rlcli, or one of rlpyt's agents.
        agent: Takes over the weights.
        algo: Takes over the target network, which is the model's copy if the file has none, and the optimizer state.
        device: Where learning runs.
        optimizer: Whether to take over the optimizer state.
        keys: Patterns (fnmatch) of names in ``agent_state_dict["model"]``: only these parameters are taken over, of
            the model and of the target network, and the optimizer begins anew: its moments belong to the gradients of
            a network that is no longer there.

    Returns:
        Lines for the user.

    Raises:
        ConfigError: The file cannot be read or does not fit, or a pattern matches nothing.
    """
    try:
        source = _read(path, device, agent, algo)
    except SnapshotError as error:
        raise ConfigError(_line(path, error)) from error
    where = f"started from {path} ({source.made}, iteration {source.itr:,}, {source.cum_steps:,} steps)"
    rest = "step counters, schedules and replay begin anew"
    if keys is not None:
        taken = _load_part(path, source, agent, algo, keys)
        return [f"{where}: {taken[0]}", *taken[1:], f"optimizer, {rest}"]
    _load_whole(path, source, agent, algo)
    if not optimizer:
        return [f"{where}: weights; optimizer, {rest}"]
    if source.has_no_moments:
        return [f"{where}: weights; the file has no optimizer state that fits: optimizer, {rest}"]
    try:
        algo.load_optimizer_state_dict(source.optimizer)
    except (ValueError, KeyError, TypeError) as error:
        hint = "resume_optimizer=false leaves it"
        raise ConfigError(f"resume: {path}: its optimizer state does not fit: {error}; {hint}") from error
    lacking = source.groups_without_moments
    but = f" (none for {', '.join(lacking)})" if lacking else ""
    return [f"{where}: weights and optimizer state{but}; {rest}"]


# The file


@dataclass(frozen=True)
class _Source:
    """A file's content in rlcli's terms, whoever wrote it."""

    made: str
    """By what, in words."""
    itr: int
    cum_steps: int
    agent: Mapping[str, Any]
    algo: Mapping[str, Any]
    optimizer: Mapping[str, Any]
    architecture: Architecture | VectorArchitecture | None = None
    """Of a file of rlpyt."""

    @property
    def has_no_moments(self) -> bool:
        """Whether it is known that the optimizer state is empty."""
        groups = self._groups()
        return bool(groups) and all(group["state"] == {} for group in groups.values())

    @property
    def groups_without_moments(self) -> list[str]:
        """Names of the optimizers whose state is known to be empty while others have some."""
        return [name for name, group in self._groups().items() if group["state"] == {}]

    def _groups(self) -> Mapping[str, Any]:
        """Each optimizer's state by its name; none where it looks like nothing known."""
        groups = {"": self.optimizer} if "state" in self.optimizer else self.optimizer
        return groups if all(isinstance(g, Mapping) and "state" in g for g in groups.values()) else {}


def _read(path: str, device: str, agent: Agent, algo: Algo) -> _Source:
    from rlcli.record.rlpyt_files import is_rlpyt, translate
    from rlcli.record.snapshot import as_snapshot, read_content

    content = read_content(path, device)
    if is_rlpyt(content):
        return _of_rlpyt(translate(content), agent, algo)
    content = as_snapshot(path, content)
    made = content["config"]
    return _Source(
        made=f"algo={made['algo']['kind']}, env={made['env']['kind']}",
        itr=content["itr"],
        cum_steps=content["cum_steps"],
        agent=content["agent_state_dict"],
        algo=content["algo_state_dict"],
        optimizer=content["optimizer_state_dict"],
    )


def _of_rlpyt(file: RlpytFile, agent: Agent, algo: Algo) -> _Source:
    """Its Adam state is put in the order of this run's parameters, which is another than rlpyt's."""
    own, optimizers = algo.state_dict(), algo.optimizer_state_dict()
    networks = dict(file.networks)
    if "temperature" in own and ("temperature" not in networks or "alpha" not in optimizers):
        networks["temperature"] = own["temperature"]  # not in the file, or this run's is fixed
    # statistics are saved with the weights, but no optimizer steps them
    actor = [name for name in agent.state_dict().get("model", {}) if not name.startswith("normalizer.")]
    parameters = {
        "": actor,
        "actor": actor,
        "critic": list(own.get("critic", {})),
        "value": list(own.get("value", {})),
        "alpha": list(own.get("temperature", {})),
    }
    groups = {name: _in_order(moments, parameters[name]) for name, moments in file.moments.items()}
    return _Source(
        made=f"rlpyt's {file.agent} agent",
        itr=file.itr,
        cum_steps=file.cum_steps,
        agent={"model": file.model},
        algo=networks,
        optimizer=groups[""] if "" in groups else {name: group for name, group in groups.items() if name in optimizers},
        architecture=file.architecture,
    )


def _in_order(moments: Moments, parameters: Sequence[str]) -> dict[str, Any]:
    state = {i: moments[name] for i, name in enumerate(parameters) if name in moments}
    return {"state": state, "param_groups": [{"params": list(range(len(parameters)))}]}


def _line(path: str, error: SnapshotError) -> str:
    text = str(error)
    return f"resume: {text}" if text.startswith(str(path)) else f"resume: {path}: {text}"


# Loading


def _load_whole(path: str, source: _Source, agent: Agent, algo: Algo) -> None:
    from rlcli.record.rlpyt_parts import VectorArchitecture
    from rlcli.record.snapshot import state_mismatches

    own_agent, own_algo = agent.state_dict(), algo.state_dict()
    given = dict(source.algo)
    if "target" in own_algo and "target" not in given and "model" in source.agent:
        given["target"] = source.agent["model"]
    _refuse_other_spaces(path, source, own_agent)
    if isinstance(source.architecture, VectorArchitecture):
        _refuse_other_bounds(path, agent)
    parts = [("agent", own_agent, source.agent), ("algo", _weights(own_algo), _weights(given))]
    mismatches = [m for name, own, file in parts for m in state_mismatches(own, file, name)]
    if mismatches:
        raise ConfigError(
            [
                f"resume: {path} does not fit this run (made by {source.made}):",
                *(f"  {line}" for line in mismatches),
                f"  {_WITHOUT_HEAD}; any pattern of parameter names will do",
            ]
        )
    agent.load_state_dict(source.agent)
    algo.load_state_dict({**own_algo, **given})


def _weights(state: Mapping[str, Any]) -> dict[str, Any]:
    """Without the counters, which a warm start leaves alone."""
    return {key: value for key, value in state.items() if isinstance(value, Mapping)}


def _refuse_other_spaces(path: str, source: _Source, own: Mapping[str, Any]) -> None:
    from rlcli.record.rlpyt_parts import VectorArchitecture

    found, model = source.architecture, own.get("model", {})
    if found is None:
        return
    has_images = any("trunk.convs.0." in name for name in model)
    if isinstance(found, VectorArchitecture):
        _refuse_other_vectors(path, found, model, has_images)
        return
    if not has_images:
        raise ConfigError(f"resume: {path} is for images, this run's network takes none")
    heads = (
        "advantage.weight",
        "streams.advantage.2.weight",
        "head.advantage.2.weight",
        "head.2.weight",
        "policy.weight",
    )
    outputs = [model[name] for name in heads if name in model]
    if outputs and outputs[0].shape[0] != found.n_outputs:
        n_file, n_own, n_atoms = found.n_outputs, outputs[0].shape[0], _atoms(found, source.made)
        unit = "outputs (actions times atoms)" if n_atoms is None else "actions"
        n_file, n_own = n_file // (n_atoms or 1), n_own // (n_atoms or 1)
        raise ConfigError(
            f"resume: {path} is for {n_file} {unit}, this run's env has {n_own}; "
            f"{'env.full_action_space=true has 18, ' if n_file == 18 else ''}{_WITHOUT_HEAD}"
        )


def _atoms(found: Architecture, made: str) -> int | None:
    """Outputs for one action; None if the file does not tell."""
    return found.n_atoms if "CatDQN" in made else 1


def _refuse_other_vectors(path: str, found: VectorArchitecture, model: Mapping[str, Any], has_images: bool) -> None:
    if has_images:
        raise ConfigError(f"resume: {path} is for vectors, this run's network takes images")
    if {"trunk.mlp.0.weight", "mean.weight"} <= set(model):
        own = (model["trunk.mlp.0.weight"].shape[1], model["mean.weight"].shape[0])
        if own != (found.n_inputs, found.n_dims):
            raise ConfigError(
                f"resume: {path} is for observations of {found.n_inputs} numbers and actions of {found.n_dims}, this "
                f"run's env has {own[0]} and {own[1]}"
            )


def _refuse_other_bounds(path: str, agent: Agent) -> None:
    """For actions of rlpyt are within -1 .. 1 whatever the bounds are, and ours fill them."""
    import torch

    scale = getattr(agent, "scale", None)
    if scale is None:
        return
    high = torch.ones(1, scale.n_dims)
    if not (
        torch.equal(scale.to_env(high).reshape(1, -1), high) and torch.equal(scale.to_env(-high).reshape(1, -1), -high)
    ):
        raise ConfigError(
            f"resume: {path} is of rlpyt, whose actions are within -1 .. 1; this run's env has other bounds, and its "
            "actions would be others; resume_keys=[*] takes the actor nevertheless"
        )


def _load_part(path: str, source: _Source, agent: Agent, algo: Algo, patterns: Sequence[str]) -> list[str]:
    own_agent, own_algo = agent.state_dict(), algo.state_dict()
    own: dict[str, Tensor] = dict(own_agent.get("model", {}))
    file: Mapping[str, Tensor] = _tensors(source.agent.get("model"))
    names = _matching(path, own, file, patterns)
    agent.load_state_dict({**own_agent, "model": {**own, **{name: file[name] for name in names}}})
    for key in ("target", "actor_target"):  # slow copies of the model
        if key in own_algo:
            target = _tensors(source.algo.get(key))
            taken = {name: target.get(name, file[name]) for name in names}
            own_algo = {**own_algo, key: {**own_algo[key], **taken}}
            algo.load_state_dict(own_algo)
    left = [name for name in own if name not in names]
    unused = [name for name in file if name not in own]
    lines = [f"{len(names)} of {len(own)} tensors of the model (resume_keys={list(patterns)})"]
    if left:
        lines.append(f"left as they were initialised: {_some(left)}")
    if unused:
        lines.append(f"in the file, but not in this run's network: {_some(unused)}")
    return lines


def _tensors(state: Any) -> dict[str, Tensor]:
    """The named tensors of a file; nothing that it holds is taken on trust."""
    items = state.items() if isinstance(state, Mapping) else ()
    return {name: value for name, value in items if hasattr(value, "shape")}


def _matching(path: str, own: Mapping[str, Any], file: Mapping[str, Any], patterns: Sequence[str]) -> list[str]:
    """The names to take, in the order of this run's network."""
    problems, matched = [], set()
    for pattern in patterns:
        here, there = ({n for n in model if fnmatchcase(n, pattern)} for model in (own, file))
        matched |= here & there
        if not here & there:
            where = f"no parameter of {'this run' if not here else path}"
            if here and there:
                where = f"no parameter that this run and {path} both have"
            problems.append(f"resume_keys: {pattern!r} matches {where}{_near(pattern, set(own) & set(file))}")
    names = [name for name in own if name in matched]
    shapes = [
        f"resume_keys: {name}: file has {tuple(file[name].shape)}, this run needs {tuple(own[name].shape)}"
        for name in names
        if file[name].shape != own[name].shape
    ]
    problems += shapes[:_NAMED] + ([f"and {len(shapes) - _NAMED} more"] if len(shapes) > _NAMED else [])
    if not patterns:
        problems.append("resume_keys: [] takes nothing; leave it out to take all, or give patterns such as trunk.*")
    if problems:
        raise ConfigError(problems)
    return names


def _near(pattern: str, names: Collection[str]) -> str:
    """Names, and the groups that they are in, which look like a pattern."""
    parts = [name.split(".") for name in sorted(names)]
    groups = {".".join([*words[:n], "*"]) for words in parts for n in range(1, len(words))}
    return did_you_mean(pattern, [*sorted(groups), *sorted(names)])


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
