"""Snapshots in rlpyt's own format: which of its agents made one, and its DQN agents under rlcli's names.

Source: rlpyt 0.1.2, `models/dqn/atari_dqn_model.py`, `models/dqn/dueling.py`, `runners/minibatch_rl.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlcli.core.errors import SnapshotError

KERNELS, STRIDES, PADDINGS = (8, 4, 3), (4, 2, 1), (0, 1, 1)
"""Of the convolutions of rlpyt's Atari DQN agents. A file's shapes tell the kernels, but not the other two."""
IMAGE = (104, 80)
"""Height and width of rlpyt's Atari screens, pixels."""

_KEYS = {"itr", "cum_steps", "agent_state_dict", "optimizer_state_dict"}
_LARGEST_SIDE = 1024  # pixels; no larger image is looked for
_PLAIN_HEAD = {"model.0": "trunk.convs.0.fc", "model.2": "advantage"}
_DUELING_HEAD = {
    "advantage_hidden.model.0": "streams.advantage.0",
    "advantage_out": "streams.advantage.2",
    "value.model.0": "streams.value.0",
    "value.model.2": "streams.value.2",
}
_Q_LEARNERS = {frozenset({"model", "target"}), frozenset({"model"})}
_ACTOR_CRITICS = {
    frozenset({"model", "q_model", "target_model", "target_q_model"}): "DDPG",
    frozenset({"model", "q1_model", "q2_model", "target_model", "target_q1_model", "target_q2_model"}): "TD3",
    frozenset({"model", "q1_model", "q2_model", "target_q1_model", "target_q2_model"}): "SAC",
    frozenset({"model", "q1_model", "q2_model", "v_model", "target_v_model"}): "SAC (with V)",
}


@dataclass(frozen=True)
class Architecture:
    """What the shapes in a file of a DQN agent say about its network."""

    in_channels: int
    """Frames in one observation."""
    conv_channels: tuple[int, ...]
    conv_kernels: tuple[int, ...]
    n_cells: int
    """Height times width of what the last convolution gives."""
    hidden: int
    """Width of the dense layer after the convolutions; of each stream's in a dueling network."""
    n_actions: int
    dueling: bool


@dataclass(frozen=True)
class RlpytDQN:
    """A DQN agent's snapshot, its tensors under the names that they have in rlcli."""

    itr: int
    cum_steps: int
    architecture: Architecture
    model: dict[str, Tensor]
    target: dict[str, Tensor]
    """The model's own if the file has none."""
    moments: dict[str, dict[str, Any]]
    """Adam's state by parameter; empty if the file has none, or that of another optimizer."""


def is_rlpyt(content: Any) -> bool:
    """Whether the content of a file is a snapshot that rlpyt wrote."""
    return isinstance(content, dict) and set(content) >= _KEYS and "format" not in content


def agent_name(content: Mapping[str, Any]) -> str | None:
    """Which of rlpyt's agents made a snapshot, None if no known one did."""
    agent = content["agent_state_dict"]
    if not isinstance(agent, Mapping):
        return None
    if all(isinstance(value, Tensor) for value in agent.values()):  # policy gradient: the bare model
        recurrent = "recurrent " if any(name.startswith("lstm.") for name in agent) else ""
        return f"{recurrent}A2C/PPO" if any(name.startswith(("pi.", "mu.", "v.", "value.")) for name in agent) else None
    if frozenset(agent) not in _Q_LEARNERS:
        return _ACTOR_CRITICS.get(frozenset(agent))
    model = agent["model"]
    if not isinstance(model, Mapping) or not all(isinstance(value, Tensor) for value in model.values()):
        return None
    if any(name.startswith("lstm.") for name in model):
        return "R2D1"
    bias = model.get("head.advantage_bias")  # one number for all, or one for each atom
    if any(name.startswith("head.mlp.") for name in model) or (bias is not None and bias.numel() != 1):
        return "CatDQN"
    return "DQN" if any(name.startswith("head.") for name in model) else None


def translate(content: Mapping[str, Any]) -> RlpytDQN:
    """A snapshot of a DQN agent under rlcli's names.

    Args:
        content: For which `is_rlpyt` holds.

    Raises:
        SnapshotError: It is of another agent, or of a network that has no counterpart here; without the file's name.
    """
    name = agent_name(content)
    if name is None:
        raise SnapshotError("an rlpyt snapshot of an agent that rlcli does not know; rlcli maps only its DQN agents")
    if name != "DQN":
        raise SnapshotError(f"an rlpyt snapshot of its {name} agent; rlcli maps only its DQN agents so far")
    agent = content["agent_state_dict"]
    given, given_target = agent["model"], agent.get("target", agent["model"])
    names = _our_names(given)
    model = {ours: given[theirs] for theirs, ours in names.items()}
    found = _architecture(model)
    if _shapes(given) != _shapes(given_target):
        raise SnapshotError("an rlpyt snapshot of a DQN agent whose target network has other shapes than its model")
    return RlpytDQN(
        itr=int(content["itr"]),
        cum_steps=int(content["cum_steps"]),
        architecture=found,
        model=model,
        target={ours: given_target[theirs] for theirs, ours in names.items()},
        moments=_moments(content["optimizer_state_dict"], [(ours, given[theirs]) for theirs, ours in names.items()]),
    )


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


def _shapes(model: Any) -> dict[str, tuple[int, ...] | None]:
    items = model.items() if isinstance(model, Mapping) else ()
    return {name: tuple(value.shape) if isinstance(value, Tensor) else None for name, value in items}


def _our_names(model: Mapping[str, Tensor]) -> dict[str, str]:
    """Each name of rlpyt with ours, in the order of rlpyt's parameters."""
    head = _DUELING_HEAD if "head.advantage_bias" in model else _PLAIN_HEAD
    n_convs = sum(name.startswith("conv.conv.") and name.endswith(".weight") for name in model)
    modules = {f"conv.conv.{2 * i}": f"trunk.convs.0.conv.{2 * i}" for i in range(n_convs)}
    modules |= {f"head.{theirs}": ours for theirs, ours in head.items()}
    names = {f"{theirs}.{kind}": f"{ours}.{kind}" for theirs, ours in modules.items() for kind in ("weight", "bias")}
    if head is _DUELING_HEAD:
        del names["head.advantage_out.bias"]
        names["head.advantage_bias"] = "streams.advantage_bias"
    if not n_convs or set(names) != set(model):
        odd = sorted(set(names) ^ set(model))
        raise SnapshotError(
            "an rlpyt snapshot of a DQN agent with another network than convolutions and one dense layer: "
            f"{odd[0]} is {'unknown' if odd[0] in model else 'missing'}"
        )
    return {theirs: names[theirs] for theirs in model}


def _architecture(model: Mapping[str, Tensor]) -> Architecture:
    names = [f"trunk.convs.0.conv.{2 * i}.weight" for i in range(len(model))]
    convs = [model[name] for name in names if name in model]
    dueling = "streams.advantage_bias" in model
    dense = model["streams.value.0.weight" if dueling else "trunk.convs.0.fc.weight"]
    out = model["streams.advantage.2.weight" if dueling else "advantage.weight"]
    fits = all(w.dim() == 4 and w.shape[2] == w.shape[3] for w in convs) and dense.dim() == out.dim() == 2
    if not fits or dense.shape[1] % convs[-1].shape[0]:
        raise SnapshotError("an rlpyt snapshot of a DQN agent whose shapes do not fit one another")
    return Architecture(
        in_channels=convs[0].shape[1],
        conv_channels=tuple(w.shape[0] for w in convs),
        conv_kernels=tuple(w.shape[2] for w in convs),
        n_cells=dense.shape[1] // convs[-1].shape[0],
        hidden=dense.shape[0],
        n_actions=out.shape[0],
        dueling=dueling,
    )


def _moments(optimizer: Any, parameters: Sequence[tuple[str, Tensor]]) -> dict[str, dict[str, Any]]:
    """Adam's state by our names: the optimizer knows its parameters by their order only."""
    try:
        # torch before 1.6 named the parameters by their addresses, since then they are numbered
        ids = [i for group in optimizer["param_groups"] for i in group["params"]]
        state = {i: dict(moments) for i, moments in optimizer["state"].items()}
    except (TypeError, KeyError, AttributeError):
        return {}
    if not state or any({"step", "exp_avg", "exp_avg_sq"} - set(moments) for moments in state.values()):
        return {}
    if len(ids) != len(parameters):
        raise SnapshotError(f"its optimizer has {len(ids)} parameters, its model {len(parameters)}")
    found = {}
    for i, (name, weight) in zip(ids, parameters, strict=True):
        if i not in state:
            continue
        for kind in ("exp_avg", "exp_avg_sq"):
            if torch.as_tensor(state[i][kind]).shape != weight.shape:
                raise SnapshotError(f"its optimizer's {kind} of parameter {i} does not have the shape of {name}")
        found[name] = {kind: state[i][kind] for kind in ("step", "exp_avg", "exp_avg_sq")}
    return found
