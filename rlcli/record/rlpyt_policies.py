"""rlpyt's MuJoCo agents of A2C and PPO under rlcli's names, with and without an LSTM.

Source: rlpyt 0.1.2, `models/pg/mujoco_{ff,lstm}_model.py`, `models/running_mean_std.py`, `agents/pg/mujoco.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from rlcli.core.errors import SnapshotError
from rlcli.record.rlpyt_mlps import ALL, Places, grouped, hidden_layers, layer, lstm, placed, widths
from rlcli.record.rlpyt_parts import RlpytFile, VectorArchitecture, shapes

_STATISTICS = ("obs_rms.mean", "obs_rms.var", "obs_rms.count")
_BEFORE_TANH = "mu.0.model"
"""The MLP of the means where a tanh comes behind it, as it does by rlpyt's default."""
_SMALLEST_VARIANCE = 1e-6
"""Below it rlpyt takes a variance for this."""
_ADDED_VARIANCE = 1e-8
"""What `rlcli.models.normalizer` adds to each variance."""


def translate_policies(agent: str, content: Mapping[str, Any]) -> RlpytFile:
    """A snapshot of a policy for vectors and continuous actions under rlcli's names.

    Args:
        agent: MuJoCo A2C/PPO or recurrent MuJoCo A2C/PPO.
        content: Of the file.

    Raises:
        SnapshotError: It is of a network that has no counterpart here; without the file's name.
    """
    given = content["agent_state_dict"]
    statistics = {name: given[name] for name in _STATISTICS if name in given}
    weights = {name: value for name, value in given.items() if name not in statistics}
    recurrent = agent.startswith("recurrent")
    found, places = (_recurrent if recurrent else _feed_forward)(agent, weights, bool(statistics))
    model = placed(weights, places)
    if statistics:
        model |= _normalizer(agent, statistics, found.n_inputs)
    return RlpytFile(
        agent=agent,
        itr=int(content["itr"]),
        cum_steps=int(content["cum_steps"]),
        architecture=found,
        model=model,
        networks={},
        moments={"": grouped(content["optimizer_state_dict"], [(weights, places)])},
    )


def _feed_forward(agent: str, weights: Mapping[str, Tensor], normalizes: bool) -> tuple[VectorArchitecture, Places]:
    parts = {part: {k: v for k, v in weights.items() if k.startswith(f"{part}.")} for part in ("mu", "v")}
    tanh_mean = any(name.startswith(_BEFORE_TANH) for name in weights)
    mean = _BEFORE_TANH if tanh_mean else "mu.model"
    mu, v = (widths(agent, part, parts[part], name) for part, name in (("mu", mean), ("v", "v.model")))
    n_mu, n_v = len(mu) - 2, len(v) - 2
    places = hidden_layers(n_mu, mean, "trunk.mlp") | layer(f"{mean}.{2 * n_mu}", [("policy", ALL)])
    places |= hidden_layers(n_v, "v.model", "value_trunk.mlp") | layer(f"v.model.{2 * n_v}", [("value", ALL)])
    places["log_std"] = [("log_std", ALL)]
    _refuse_other_names(agent, weights, places, "two MLPs and one deviation for all states")
    if (v[0], v[-1]) != (mu[0], 1) or tuple(weights["log_std"].shape) != (mu[-1],):
        raise _misfit(agent)
    found = VectorArchitecture(
        mu[0],
        mu[-1],
        tuple(mu[1:-1]),
        tuple(v[1:-1]),
        activation="tanh",
        normalizes=normalizes,
        tanh_mean=tanh_mean,
    )
    return found, places


def _recurrent(agent: str, weights: Mapping[str, Tensor], normalizes: bool) -> tuple[VectorArchitecture, Places]:
    mlp = widths(agent, "mlp", {k: v for k, v in weights.items() if k.startswith("mlp.")}, at_least=1)
    places = hidden_layers(len(mlp) - 1, "mlp.model", "trunk.trunk.mlp") | lstm("trunk.core.rnn")
    _refuse_other_names(agent, weights, places | layer("head", []), "an MLP, one LSTM and one linear layer")
    sizes = shapes(weights)
    head, over = sizes["head.weight"], sizes["lstm.weight_hh_l0"]
    if head is None or over is None or len(head) != 2 or len(over) != 2 or head[0] < 3 or head[0] % 2 != 1:
        raise _misfit(agent)
    n_dims, n_hidden = head[0] // 2, over[1]
    # behind the MLP's features come the previous action and reward
    fitting = {
        "lstm.weight_ih_l0": (4 * n_hidden, mlp[-1] + n_dims + 1),
        "lstm.weight_hh_l0": (4 * n_hidden, n_hidden),
        "head.weight": (2 * n_dims + 1, n_hidden),
        "head.bias": (2 * n_dims + 1,),
    }
    if any(sizes[name] != shape for name, shape in fitting.items()):
        raise _misfit(agent)
    places |= layer("head", [("policy", slice(0, 2 * n_dims)), ("value", slice(2 * n_dims, None))])
    hidden = tuple(mlp[1:])
    found = VectorArchitecture(mlp[0], n_dims, hidden, hidden, recurrent_hidden=n_hidden, normalizes=normalizes)
    return found, places


def _refuse_other_names(agent: str, weights: Mapping[str, Tensor], places: Places, layers: str) -> None:
    odd = sorted(set(weights) ^ set(places))
    if odd:
        raise SnapshotError(
            f"an rlpyt snapshot of a {agent} agent with another network than {layers}: "
            f"{odd[0]} is {'unknown' if odd[0] in weights else 'missing'}"
        )


def _normalizer(agent: str, statistics: Mapping[str, Tensor], n_inputs: int) -> dict[str, Tensor]:
    """Statistics under which the normaliser here gives what rlpyt's gives, also where a variance is next to nothing."""
    if shapes(statistics) != dict(zip(_STATISTICS, ((n_inputs,), (n_inputs,), ()), strict=True)):
        raise _misfit(agent)
    mean, variance, count = (statistics[name].double() for name in _STATISTICS)
    squares = (variance.clamp(min=_SMALLEST_VARIANCE) - _ADDED_VARIANCE) * count
    found = {"count": count.reshape(1), "mean": mean, "squares": squares}
    return {f"normalizer.moments.0.{name}": value for name, value in found.items()}


def _misfit(agent: str) -> SnapshotError:
    return SnapshotError(f"an rlpyt snapshot of a {agent} agent whose shapes do not fit one another")
