"""rlpyt's agents for continuous actions under rlcli's names: DDPG, TD3 and SAC.

Source: rlpyt 0.1.2, `models/qpg/mlp.py`, `agents/qpg/{ddpg,td3,sac}_agent.py`, `algos/qpg/{ddpg,sac}.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlcli.core.errors import SnapshotError
from rlcli.record.rlpyt_parts import Moments, RlpytFile, VectorArchitecture, adam_moments, shapes

_CRITICS = {
    "DDPG": {"q_model": ""},
    "TD3": {"q_model": "q1.", "q2_model": "q2."},
    "SAC": {"q1_model": "q1.", "q2_model": "q2."},
}
"""Critics of rlpyt with the prefix of their names here, in the order of rlpyt's optimizers."""
_Places = dict[str, list[tuple[str, slice]]]
"""Name of rlpyt -> our name of some of its rows: rlpyt's SAC has one layer for means and deviations."""
_ALL = slice(None)


def translate_vectors(agent: str, content: Mapping[str, Any]) -> RlpytFile:
    """A snapshot of an agent for continuous actions under rlcli's names.

    Args:
        agent: DDPG, TD3 or SAC.
        content: Of the file.

    Raises:
        SnapshotError: It is of a network that has no counterpart here; without the file's name.
    """
    given, optimizer = content["agent_state_dict"], content["optimizer_state_dict"]
    critics = _CRITICS[agent]
    found = _architecture(agent, given)
    actor = _actor_places(agent, found)
    networks = {
        "critic": _critics(given, critics, found),
        "critic_target": _critics(given, critics, found, "target_"),
    }
    if agent != "SAC":
        networks["actor_target"] = _placed(given["target_model"], actor)
    log_alpha = optimizer.get("log_alpha") if isinstance(optimizer, Mapping) else None
    if agent == "SAC" and isinstance(log_alpha, int | float):
        networks["temperature"] = {"log_alpha": torch.tensor(float(log_alpha))}
    return RlpytFile(
        agent=agent,
        itr=int(content["itr"]),
        cum_steps=int(content["cum_steps"]),
        architecture=found,
        model=_placed(given["model"], actor),
        networks=networks,
        moments=_moments(agent, given, optimizer if isinstance(optimizer, Mapping) else {}, found),
    )


def _architecture(agent: str, given: Mapping[str, Any]) -> VectorArchitecture:
    critics = list(_CRITICS[agent])
    widths = {name: _widths(agent, name, given[name]) for name in ("model", *critics)}
    actor, critic = widths["model"], widths[critics[0]]
    n_dims = critic[0] - actor[0]
    n_out = n_dims * (2 if agent == "SAC" else 1)
    if any(widths[name] != critic for name in critics) or actor[-1] != n_out or critic[-1] != 1 or n_dims < 1:
        raise SnapshotError(f"an rlpyt snapshot of a {agent} agent whose shapes do not fit one another")
    for name in ("model", *critics):
        target = f"target_{name}"
        if target in given and shapes(given[target]) != shapes(given[name]):
            raise SnapshotError(f"an rlpyt snapshot of a {agent} agent whose {target} has other shapes than its {name}")
    return VectorArchitecture(actor[0], n_dims, tuple(actor[1:-1]), tuple(critic[1:-1]))


def _widths(agent: str, name: str, model: Any) -> list[int]:
    """Of inputs, layers and outputs of an MLP."""
    found = shapes(model)
    n_layers = sum(key.endswith(".weight") for key in found)
    layers = [found.get(f"mlp.model.{2 * i}.weight") for i in range(n_layers)]
    names = {f"mlp.model.{2 * i}.{kind}" for i in range(n_layers) for kind in ("weight", "bias")}
    odd = sorted(names ^ set(found))
    if odd or len(layers) < 2:
        told = f": {odd[0]} is {'unknown' if odd[0] in found else 'missing'}" if odd else ""
        raise SnapshotError(f"an rlpyt snapshot of a {agent} agent whose {name} is no MLP with hidden layers{told}")
    sizes: list[int] = []
    for i, shape in enumerate(layers):
        if shape is None or len(shape) != 2 or (sizes and sizes[-1] != shape[1]) or found[_bias(i)] != shape[:1]:
            raise SnapshotError(f"an rlpyt snapshot of a {agent} agent: the layers of {name} do not fit one another")
        sizes += [shape[0]] if sizes else [shape[1], shape[0]]
    return sizes


def _bias(i: int) -> str:
    return f"mlp.model.{2 * i}.bias"


def _actor_places(agent: str, found: VectorArchitecture) -> _Places:
    last = (
        [("mean", slice(0, found.n_dims)), ("log_std", slice(found.n_dims, None))]
        if agent == "SAC"
        else [("mean", _ALL)]
    )
    return _places(len(found.actor_hidden), last)


def _critic_places(found: VectorArchitecture, prefix: str) -> _Places:
    places = _places(len(found.critic_hidden), [("head.0", _ALL)])
    return {theirs: [(prefix + ours, rows) for ours, rows in parts] for theirs, parts in places.items()}


def _places(n_hidden: int, last: list[tuple[str, slice]]) -> _Places:
    layers = [[(f"trunk.mlp.{2 * i}", _ALL)] for i in range(n_hidden)] + [last]
    return {
        f"mlp.model.{2 * i}.{kind}": [(f"{ours}.{kind}", rows) for ours, rows in parts]
        for i, parts in enumerate(layers)
        for kind in ("weight", "bias")
    }


def _placed(model: Mapping[str, Tensor], places: _Places) -> dict[str, Tensor]:
    return {ours: model[theirs][rows] for theirs, parts in places.items() for ours, rows in parts}


def _critics(
    given: Mapping[str, Any], critics: Mapping[str, str], found: VectorArchitecture, prefix: str = ""
) -> dict[str, Tensor]:
    result: dict[str, Tensor] = {}
    for name, ours in critics.items():
        result |= _placed(given[prefix + name], _critic_places(found, ours))
    return result


def _moments(
    agent: str, given: Mapping[str, Any], optimizer: Mapping[str, Any], found: VectorArchitecture
) -> dict[str, Moments]:
    """DDPG and TD3 have one optimizer for all critics, SAC has one for each."""
    actor = _group(
        optimizer.get("pi_optimizer" if agent == "SAC" else "mu"), [(given["model"], _actor_places(agent, found))]
    )
    parts = [(given[name], _critic_places(found, prefix)) for name, prefix in _CRITICS[agent].items()]
    if agent != "SAC":
        return {"critic": _group(optimizer.get("q"), parts), "actor": actor}
    critic: Moments = {}
    for k, part in enumerate(parts, 1):
        critic |= _group(optimizer.get(f"q{k}_optimizer"), [part])
    alpha = adam_moments(optimizer.get("alpha_optimizer"), [("log_alpha", torch.zeros(1))])
    # rlpyt's coefficient has one element, here it has no dimension
    flat = {name: {kind: torch.as_tensor(value).reshape(()) for kind, value in m.items()} for name, m in alpha.items()}
    return {"critic": critic, "actor": actor, "alpha": flat}


def _group(optimizer: Any, models: list[tuple[Mapping[str, Tensor], _Places]]) -> Moments:
    """Adam's state of the parameters of some networks in a row."""
    parameters = [(f"{i}/{theirs}", value) for i, (model, _) in enumerate(models) for theirs, value in model.items()]
    by_theirs = adam_moments(optimizer, parameters)
    result: Moments = {}
    for i, (_, places) in enumerate(models):
        for theirs, parts in places.items():
            moments = by_theirs.get(f"{i}/{theirs}")
            if moments is not None:
                result |= {ours: _rows(moments, rows) for ours, rows in parts}
    return result


def _rows(moments: Mapping[str, Any], rows: slice) -> dict[str, Any]:
    return {kind: value if kind == "step" else value[rows] for kind, value in moments.items()}
