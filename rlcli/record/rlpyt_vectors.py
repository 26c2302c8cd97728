"""rlpyt's agents for continuous actions that learn from replay under rlcli's names: DDPG, TD3, and SAC, old and new.

Source: rlpyt 0.1.2, `models/qpg/mlp.py`, `agents/qpg/{ddpg,td3,sac,sac_v}_agent.py`, `algos/qpg/{ddpg,sac}.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlcli.core.errors import SnapshotError
from rlcli.record.rlpyt_mlps import ALL, Places, grouped, hidden_layers, layer, placed, widths
from rlcli.record.rlpyt_parts import Moments, RlpytFile, VectorArchitecture, adam_moments, shapes

_CRITICS = {
    "DDPG": {"q_model": ""},
    "TD3": {"q_model": "q1.", "q2_model": "q2."},
    "SAC": {"q1_model": "q1.", "q2_model": "q2."},
    "SAC (with V)": {"q1_model": "q1.", "q2_model": "q2."},
}
"""Critics of rlpyt with the prefix of their names here, in the order of rlpyt's optimizers."""
_STOCHASTIC = ("SAC", "SAC (with V)")
_MLP = "mlp.model"


def translate_vectors(agent: str, content: Mapping[str, Any]) -> RlpytFile:
    """A snapshot of an agent for continuous actions under rlcli's names.

    Args:
        agent: DDPG, TD3, SAC or SAC (with V).
        content: Of the file.

    Raises:
        SnapshotError: It is of a network that has no counterpart here; without the file's name.
    """
    given, optimizer = content["agent_state_dict"], content["optimizer_state_dict"]
    found = _architecture(agent, given)
    log_alpha = optimizer.get("log_alpha") if isinstance(optimizer, Mapping) else None
    networks = _networks(agent, given, found)
    if agent == "SAC" and isinstance(log_alpha, int | float):
        networks["temperature"] = {"log_alpha": torch.tensor(float(log_alpha))}
    return RlpytFile(
        agent=agent,
        itr=int(content["itr"]),
        cum_steps=int(content["cum_steps"]),
        architecture=found,
        model=placed(given["model"], _actor_places(agent, found)),
        networks=networks,
        moments=_moments(agent, given, optimizer if isinstance(optimizer, Mapping) else {}, found),
    )


def _architecture(agent: str, given: Mapping[str, Any]) -> VectorArchitecture:
    critics = list(_CRITICS[agent])
    values = ["v_model"] if agent == "SAC (with V)" else []
    sizes = {name: widths(agent, name, given[name]) for name in ("model", *critics, *values)}
    actor, critic = sizes["model"], sizes[critics[0]]
    n_dims = critic[0] - actor[0]
    n_out = n_dims * (2 if agent in _STOCHASTIC else 1)
    unfit = any(sizes[name] != critic for name in critics) or actor[-1] != n_out or critic[-1] != 1 or n_dims < 1
    if unfit or any((sizes[name][0], sizes[name][-1]) != (actor[0], 1) for name in values):
        raise SnapshotError(f"an rlpyt snapshot of a {agent} agent whose shapes do not fit one another")
    for name in sizes:
        target = f"target_{name}"
        if target in given and shapes(given[target]) != shapes(given[name]):
            raise SnapshotError(f"an rlpyt snapshot of a {agent} agent whose {target} has other shapes than its {name}")
    value_hidden = tuple(sizes["v_model"][1:-1]) if values else None
    return VectorArchitecture(actor[0], n_dims, tuple(actor[1:-1]), tuple(critic[1:-1]), value_hidden)


def _networks(agent: str, given: Mapping[str, Any], found: VectorArchitecture) -> dict[str, dict[str, Tensor]]:
    networks = {"critic": _critics(given, _CRITICS[agent], found)}
    if agent == "SAC (with V)":
        for ours, theirs in (("value", "v_model"), ("value_target", "target_v_model")):
            networks[ours] = placed(given[theirs], _value_places(found))
        return networks
    networks["critic_target"] = _critics(given, _CRITICS[agent], found, "target_")
    if agent != "SAC":
        networks["actor_target"] = placed(given["target_model"], _actor_places(agent, found))
    return networks


def _actor_places(agent: str, found: VectorArchitecture) -> Places:
    last = (
        [("mean", slice(0, found.n_dims)), ("log_std", slice(found.n_dims, None))]
        if agent in _STOCHASTIC
        else [("mean", ALL)]
    )
    return _mlp_places(len(found.actor_hidden), last)


def _critic_places(found: VectorArchitecture, prefix: str) -> Places:
    places = _mlp_places(len(found.critic_hidden), [("head.0", ALL)])
    return {theirs: [(prefix + ours, rows) for ours, rows in parts] for theirs, parts in places.items()}


def _value_places(found: VectorArchitecture) -> Places:
    return _mlp_places(len(found.value_hidden or ()), [("value", ALL)])


def _mlp_places(n_hidden: int, last: list[tuple[str, slice]]) -> Places:
    return hidden_layers(n_hidden, _MLP, "trunk.mlp") | layer(f"{_MLP}.{2 * n_hidden}", last)


def _critics(
    given: Mapping[str, Any], critics: Mapping[str, str], found: VectorArchitecture, prefix: str = ""
) -> dict[str, Tensor]:
    result: dict[str, Tensor] = {}
    for name, ours in critics.items():
        result |= placed(given[prefix + name], _critic_places(found, ours))
    return result


def _moments(
    agent: str, given: Mapping[str, Any], optimizer: Mapping[str, Any], found: VectorArchitecture
) -> dict[str, Moments]:
    """DDPG and TD3 have one optimizer for all critics, SAC has one for each."""
    key = "pi_optimizer" if agent in _STOCHASTIC else "mu"
    actor = grouped(optimizer.get(key), [(given["model"], _actor_places(agent, found))])
    parts = [(given[name], _critic_places(found, prefix)) for name, prefix in _CRITICS[agent].items()]
    if agent not in _STOCHASTIC:
        return {"critic": grouped(optimizer.get("q"), parts), "actor": actor}
    critic: Moments = {}
    for k, part in enumerate(parts, 1):
        critic |= grouped(optimizer.get(f"q{k}_optimizer"), [part])
    if agent == "SAC (with V)":
        value = grouped(optimizer.get("v_optimizer"), [(given["v_model"], _value_places(found))])
        return {"critic": critic, "value": value, "actor": actor}
    alpha = adam_moments(optimizer.get("alpha_optimizer"), [("log_alpha", torch.zeros(1))])
    # rlpyt's coefficient has one element, here it has no dimension
    flat = {name: {kind: torch.as_tensor(value).reshape(()) for kind, value in m.items()} for name, m in alpha.items()}
    return {"critic": critic, "actor": actor, "alpha": flat}
