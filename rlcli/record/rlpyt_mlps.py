"""MLPs of rlpyt under rlcli's names: reading their widths, moving their weights and Adam's state of them.

Source: rlpyt 0.1.2, `models/mlp.py`: layers at even numbers, what is between them has no weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from rlcli.core.errors import SnapshotError
from rlcli.record.rlpyt_parts import Moments, adam_moments, shapes

Places = dict[str, list[tuple[str, slice]]]
"""Name of rlpyt -> our names of some of its rows: rlpyt has one layer where there are two here."""
ALL = slice(None)
_LSTM = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")


def widths(agent: str, name: str, model: Any, prefix: str = "mlp.model", *, at_least: int = 2) -> list[int]:
    """Of inputs, layers and outputs of an MLP.

    Args:
        agent: Of rlpyt, for messages.
        name: Of the MLP, for messages.
        model: Its tensors, and no others.
        prefix: What their names begin with.
        at_least: Fewest layers that will do.

    Raises:
        SnapshotError: It is no such MLP.
    """
    found = shapes(model)
    n_layers = sum(key.endswith(".weight") for key in found)
    layers = [found.get(f"{prefix}.{2 * i}.weight") for i in range(n_layers)]
    names = {f"{prefix}.{2 * i}.{kind}" for i in range(n_layers) for kind in ("weight", "bias")}
    odd = sorted(names ^ set(found))
    if odd or len(layers) < at_least:
        told = f": {odd[0]} is {'unknown' if odd[0] in found else 'missing'}" if odd else ""
        raise SnapshotError(f"an rlpyt snapshot of a {agent} agent whose {name} is no MLP with hidden layers{told}")
    sizes: list[int] = []
    for i, shape in enumerate(layers):
        bias = found[f"{prefix}.{2 * i}.bias"]
        if shape is None or len(shape) != 2 or (sizes and sizes[-1] != shape[1]) or bias != shape[:1]:
            raise SnapshotError(f"an rlpyt snapshot of a {agent} agent: the layers of {name} do not fit one another")
        sizes += [shape[0]] if sizes else [shape[1], shape[0]]
    return sizes


def layer(theirs: str, ours: list[tuple[str, slice]]) -> Places:
    """Where weight and bias of one layer go."""
    return {f"{theirs}.{kind}": [(f"{name}.{kind}", rows) for name, rows in ours] for kind in ("weight", "bias")}


def hidden_layers(n: int, theirs: str, ours: str) -> Places:
    """Where the first ``n`` layers of an MLP go."""
    places: Places = {}
    for i in range(n):
        places |= layer(f"{theirs}.{2 * i}", [(f"{ours}.{2 * i}", ALL)])
    return places


def lstm(ours: str) -> Places:
    """Where rlpyt's ``lstm`` goes."""
    return {f"lstm.{name}": [(f"{ours}.{name}", ALL)] for name in _LSTM}


def placed(model: Mapping[str, Tensor], places: Places) -> dict[str, Tensor]:
    """The tensors under our names."""
    return {ours: model[theirs][rows] for theirs, parts in places.items() for ours, rows in parts}


def grouped(optimizer: Any, models: list[tuple[Mapping[str, Tensor], Places]]) -> Moments:
    """Adam's state, under our names, of the parameters of some networks in a row.

    Args:
        optimizer: As that of `adam_moments`.
        models: Each with where its parameters go; only parameters, in rlpyt's order.

    Raises:
        SnapshotError: As `adam_moments`.
    """
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
