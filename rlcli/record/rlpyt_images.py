"""rlpyt's Atari agents under rlcli's names: DQN, CatDQN, R2D1, and A2C and PPO with and without an LSTM.

Source: rlpyt 0.1.2, `models/dqn/{atari_dqn_model,atari_catdqn_model,atari_r2d1_model,dueling}.py`,
`models/pg/atari_{ff,lstm}_model.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from rlcli.core.errors import SnapshotError
from rlcli.record.rlpyt_parts import Architecture, RlpytFile, adam_moments, shapes

IMAGE = (104, 80)
"""Height and width of rlpyt's Atari screens, pixels."""
KERNELS, STRIDES, PADDINGS = (8, 4, 3), (4, 2, 1), (0, 1, 1)
"""Of the convolutions of rlpyt's Atari DQN agents. A file's shapes tell the kernels, but not the other two. The
first two of them are those of its policies."""

_LARGEST_SIDE = 1024  # pixels; no larger image is looked for
_POLICIES = ("A2C/PPO", "recurrent A2C/PPO")
_RECURRENT = ("recurrent A2C/PPO", "R2D1")
_STREAMS = {
    "head.advantage_hidden.model.0": "advantage.0",
    "head.advantage_out": "advantage.2",
    "head.value.model.0": "value.0",
    "head.value.model.2": "value.2",
}
"""Of a dueling network, behind the name of its head."""
_FC = "convs.0.fc"
"""The dense layer after the convolutions, of all but the dueling DQN and CatDQN: there each stream has its own."""
_DENSE = {"DQN": "head.model.0", "CatDQN": "head.mlp.model.0"}
_HEADS = {
    "DQN": {"head.model.2": "advantage"},
    "CatDQN": {"head.mlp.model.2": "advantage"},
    "R2D1": {"head.model.0": "head.0", "head.model.2": "head.2"},
    "A2C/PPO": {"pi": "policy", "value": "value"},
    "recurrent A2C/PPO": {"pi": "policy", "value": "value"},
}
_LSTM = {f"lstm.{name}_l0": f"trunk.core.rnn.{name}_l0" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}


def translate_images(agent: str, content: Mapping[str, Any]) -> RlpytFile:
    """A snapshot of an Atari agent under rlcli's names.

    Args:
        agent: DQN, CatDQN, R2D1, A2C/PPO or recurrent A2C/PPO.
        content: Of the file.

    Raises:
        SnapshotError: It is of a network that has no counterpart here; without the file's name.
    """
    states = content["agent_state_dict"]
    given = states if agent in _POLICIES else states["model"]
    names = _our_names(agent, given)
    model = {ours: given[theirs] for theirs, ours in names.items()}
    networks = {}
    if agent not in _POLICIES:
        target = states.get("target", given)
        if shapes(given) != shapes(target):
            raise SnapshotError(
                f"an rlpyt snapshot of a {agent} agent whose target network has other shapes than its model"
            )
        networks["target"] = {ours: target[theirs] for theirs, ours in names.items()}
    moments = adam_moments(content["optimizer_state_dict"], [(ours, given[theirs]) for theirs, ours in names.items()])
    return RlpytFile(
        agent=agent,
        itr=int(content["itr"]),
        cum_steps=int(content["cum_steps"]),
        architecture=_architecture(agent, model),
        model=model,
        networks=networks,
        moments={"": moments},
    )


def known_convolutions(agent: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Kernels, strides and paddings of an agent's convolutions."""
    n = 2 if agent in _POLICIES else 3
    return KERNELS[:n], STRIDES[:n], PADDINGS[:n]


def image_sizes(found: Architecture, strides: Sequence[int], paddings: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Every height and width from which the convolutions give as many cells as the file's dense layer takes."""
    sides: dict[int, list[int]] = {}
    for side in range(1, _LARGEST_SIDE + 1):
        cells = side
        for kernel, stride, padding in zip(found.conv_kernels, strides, paddings, strict=True):
            cells = (cells + 2 * padding - kernel) // stride + 1 if cells + 2 * padding >= kernel else 0
        if cells:
            sides.setdefault(cells, []).append(side)
    for cells, heights in sides.items():
        widths = sides.get(found.n_cells // cells, []) if found.n_cells % cells == 0 else []
        yield from ((height, width) for height in heights for width in widths)


def _our_names(agent: str, model: Mapping[str, Tensor]) -> dict[str, str]:
    """Each name of rlpyt with ours, in the order of rlpyt's parameters."""
    is_dueling = "head.advantage_bias" in model
    trunk, head = _trunk(agent), _dueling_head(agent)
    theirs_conv = "conv.conv" if agent in _DENSE else "conv.conv.conv"
    n_convs = sum(name.startswith(f"{theirs_conv}.") and name.endswith(".weight") for name in model)
    modules = {f"{theirs_conv}.{2 * i}": f"{trunk}.convs.0.conv.{2 * i}" for i in range(n_convs)}
    if agent not in _DENSE or not is_dueling:
        modules[_DENSE.get(agent, "conv.head.model.0")] = f"{trunk}.{_FC}"
    modules |= {theirs: f"{head}.{ours}" for theirs, ours in _STREAMS.items()} if is_dueling else _HEADS[agent]
    names = {f"{theirs}.{kind}": f"{ours}.{kind}" for theirs, ours in modules.items() for kind in ("weight", "bias")}
    if is_dueling:
        del names["head.advantage_out.bias"]
        names["head.advantage_bias"] = f"{head}.advantage_bias"
    if agent in _RECURRENT:
        names |= _LSTM
    if not n_convs or set(names) != set(model):
        raise _other_network(agent, names, model)
    return {theirs: names[theirs] for theirs in model}


def _trunk(agent: str) -> str:
    return "trunk.trunk" if agent in _RECURRENT else "trunk"


def _dueling_head(agent: str) -> str:
    return "head" if agent == "R2D1" else "streams"


def _other_network(agent: str, names: Mapping[str, str], model: Mapping[str, Tensor]) -> SnapshotError:
    odd = sorted(set(names) ^ set(model)) or sorted(names)
    layers = "convolutions, one dense layer" if agent in _RECURRENT else "convolutions and one dense layer"
    layers += {"recurrent A2C/PPO": " and one LSTM", "R2D1": ", one LSTM and a head of two layers"}.get(agent, "")
    return SnapshotError(
        f"an rlpyt snapshot of a {agent} agent with another network than {layers}: "
        f"{odd[0]} is {'unknown' if odd[0] in model else 'missing'}"
    )


def _architecture(agent: str, model: Mapping[str, Tensor]) -> Architecture:
    trunk, head = _trunk(agent), _dueling_head(agent)
    dueling = f"{head}.advantage_bias" in model
    names = [f"{trunk}.convs.0.conv.{2 * i}.weight" for i in range(len(model))]
    convs = [model[name] for name in names if name in model]
    dense = model[f"{head}.value.0.weight" if dueling and agent in _DENSE else f"{trunk}.{_FC}.weight"]
    out = model[f"{_output_layer(agent, dueling)}.weight"]
    fits = all(w.dim() == 4 and w.shape[2] == w.shape[3] for w in convs) and dense.dim() == out.dim() == 2
    if not fits or dense.shape[1] % convs[-1].shape[0]:
        raise _misfit(agent)
    recurrent_hidden = _lstm_width(agent, model, dense.shape[0] + out.shape[0] + 1) if agent in _RECURRENT else 0
    if agent == "R2D1":
        behind_lstm = model["head.value.0.weight" if dueling else "head.0.weight"]
        if behind_lstm.shape != (out.shape[1], recurrent_hidden):
            raise _misfit(agent)
    return Architecture(
        in_channels=convs[0].shape[1],
        conv_channels=tuple(w.shape[0] for w in convs),
        conv_kernels=tuple(w.shape[2] for w in convs),
        n_cells=dense.shape[1] // convs[-1].shape[0],
        hidden=dense.shape[0],
        n_outputs=out.shape[0],
        head_hidden=out.shape[1] if agent == "R2D1" else 0,
        dueling=dueling,
        n_atoms=int(model[f"{head}.advantage_bias"].numel()) if agent == "CatDQN" and dueling else None,
        recurrent_hidden=recurrent_hidden,
    )


def _output_layer(agent: str, dueling: bool) -> str:
    if agent in _POLICIES:
        return "policy"
    if dueling:
        return f"{_dueling_head(agent)}.advantage.2"
    return "head.2" if agent == "R2D1" else "advantage"


def _lstm_width(agent: str, model: Mapping[str, Tensor], n_inputs: int) -> int:
    """Of an LSTM that takes features, the previous action as one-hot, and the previous reward."""
    into, over = model["trunk.core.rnn.weight_ih_l0"], model["trunk.core.rnn.weight_hh_l0"]
    if into.dim() != 2 or over.dim() != 2 or into.shape != (4 * over.shape[1], n_inputs):
        raise _misfit(agent)
    return int(over.shape[1])


def _misfit(agent: str) -> SnapshotError:
    return SnapshotError(f"an rlpyt snapshot of a {agent} agent whose shapes do not fit one another")
