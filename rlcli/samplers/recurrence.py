"""Recurrent state across episode borders."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from rlcli.core.tree import Tree, map_tree


def restart(state: Tree, initial: Tree, begins: npt.NDArray[np.bool_]) -> Tree:
    """``state`` [B, ...], but ``initial`` for the environments whose next row begins an episode."""
    if state is None or not begins.any():
        return state
    mask = torch.from_numpy(begins)

    def choose(leaf: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        return torch.where(mask.to(leaf.device).view(-1, *[1] * (leaf.dim() - 1)), first, leaf)

    return map_tree(choose, state, initial)
