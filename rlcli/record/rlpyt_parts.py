"""What the readers of rlpyt's agents share: what they give, and Adam's state by the names of parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlcli.core.errors import SnapshotError

Moments = dict[str, dict[str, Any]]
"""``step``, ``exp_avg`` and ``exp_avg_sq`` of each parameter."""


@dataclass(frozen=True)
class Architecture:
    """What the shapes in a file say about a network for images."""

    in_channels: int
    """Frames in one observation."""
    conv_channels: tuple[int, ...]
    conv_kernels: tuple[int, ...]
    n_cells: int
    """Height times width of what the last convolution gives."""
    hidden: int
    """Width of the dense layer after the convolutions; of each stream's in a dueling network."""
    n_outputs: int
    """Numbers that the last layer gives for the actions: one of each action, of CatDQN one of each atom of each."""
    dueling: bool = False
    n_atoms: int | None = None
    """Of a dueling CatDQN. The shapes of one without streams do not tell it."""
    recurrent_hidden: int = 0
    """Width of an LSTM; 0: there is none."""
    head_hidden: int = 0
    """Width of the dense layer behind an LSTM, of each stream's in a dueling network; 0: there is none."""


@dataclass(frozen=True)
class VectorArchitecture:
    """What a file says about networks for vectors that act in a box."""

    n_inputs: int
    """Numbers in one observation."""
    n_dims: int
    """Numbers in one action."""
    actor_hidden: tuple[int, ...]
    critic_hidden: tuple[int, ...]
    """Of what judges: the critics, or a policy's value."""
    value_hidden: tuple[int, ...] | None = None
    """Of a value network beside critics; None: there is none."""
    activation: str = "relu"
    """After each layer. A file does not tell it, this is rlpyt's default for the agent."""
    recurrent_hidden: int = 0
    """Width of an LSTM behind the layers; 0: there is none."""
    normalizes: bool = False
    """Whether observations go through running statistics first."""
    tanh_mean: bool = False
    """Whether the means of a policy's actions go through a tanh."""


@dataclass(frozen=True)
class RlpytFile:
    """A snapshot of rlpyt, its tensors under the names that they have in rlcli."""

    agent: str
    """Which of rlpyt's agents made it, see `rlcli.record.rlpyt_files.agent_name`."""
    itr: int
    cum_steps: int
    architecture: Architecture | VectorArchitecture
    model: dict[str, Tensor]
    """Of the network that acts."""
    networks: dict[str, dict[str, Tensor]]
    """Those that an algorithm has beside it, as in its state dict: ``target``; ``critic`` and so on."""
    moments: dict[str, Moments]
    """Adam's state of each optimizer, by the algorithm's name for it, "" if there is one only; empty where the file
    has none, or that of another optimizer."""


def shapes(model: Any) -> dict[str, tuple[int, ...] | None]:
    """Name -> shape of each tensor, None for what is none."""
    items = model.items() if isinstance(model, Mapping) else ()
    return {name: tuple(value.shape) if isinstance(value, Tensor) else None for name, value in items}


def adam_moments(optimizer: Any, parameters: Sequence[tuple[str, Tensor]]) -> Moments:
    """Adam's state by name: an optimizer knows its parameters by their order only.

    Args:
        optimizer: Its state dict, or whatever the file has in its place.
        parameters: In the order in which rlpyt gave them to the optimizer.

    Raises:
        SnapshotError: It belongs to other parameters.
    """
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
