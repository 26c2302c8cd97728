"""Recurrent features: a trunk, then an LSTM or GRU whose state is a value passed in and out."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlcli.core.tree import Tree, flatten_leading, map_tree
from rlcli.models.trunk import VectorInput

OBS, PREVIOUS = "obs", ("previous_action", "previous_reward")
"""Keys of an observation to which `rlcli.envs.previous` added the previous action and reward."""


class RecurrentCore(nn.Module):
    """One LSTM or GRU layer over time.

    The state is a dict of [B, H] tensors: ``h``, and ``c`` of an LSTM. It begins at 0.

    Args:
        kind: lstm or gru.
        n_inputs: Width of the input.
        n_hidden: H, width of the state and of the output.
    """

    def __init__(self, kind: str, n_inputs: int, n_hidden: int) -> None:
        super().__init__()
        self.kind, self.n_hidden = kind, n_hidden
        self.rnn: nn.RNNBase = (nn.LSTM if kind == "lstm" else nn.GRU)(n_inputs, n_hidden)

    def initial_state(self, n: int, device: str = "cpu") -> dict[str, Tensor]:
        """Zeros [n, H]."""
        return {key: torch.zeros(n, self.n_hidden, device=device) for key in ("h", "c")[: self._n_parts]}

    def forward(self, x: Tensor, state: Tree, begins: Tensor | None = None) -> tuple[Tensor, Tree]:
        """Run over time.

        Args:
            x: [T, B, n_inputs].
            state: [B, H] each, before row 0.
            begins: [T, B] bool: before these rows the state becomes the initial one; None: nowhere.

        Returns:
            Outputs [T, B, H], and the state after the last row.
        """
        outputs = []
        for start, stop in _stretches(begins, x.shape[0]):
            if begins is not None:
                kept = ~begins[start][:, None]
                state = map_tree(lambda leaf, kept=kept: leaf * kept, state)
            output, state = self._run(x[start:stop], state)
            outputs.append(output)
        return torch.cat(outputs), state

    def _run(self, x: Tensor, state: Tree) -> tuple[Tensor, Tree]:
        if self.kind == "lstm":
            output, (h, c) = self.rnn(x, (state["h"][None], state["c"][None]))
            return output, {"h": h[0], "c": c[0]}
        output, h = self.rnn(x, state["h"][None])
        return output, {"h": h[0]}

    @property
    def _n_parts(self) -> int:
        return 2 if self.kind == "lstm" else 1


def _stretches(begins: Tensor | None, n_rows: int) -> list[tuple[int, int]]:
    """Rows between which no environment begins an episode, as (start, stop)."""
    cuts = [] if begins is None else [t for t in begins.any(dim=1).nonzero()[:, 0].tolist() if t]
    edges = [0, *cuts, n_rows]
    return list(itertools.pairwise(edges))


class RecurrentTrunk(nn.Module):
    """Observation to features, these with the previous action and reward if there are any, to a recurrent layer.

    The previous action and reward are the keys that `rlcli.envs.previous` adds to an observation.

    Args:
        trunk: Builds the features' network of an observation space; it has ``n_features``.
        observation_space: With or without previous action and reward.
        kind: lstm or gru.
        n_hidden: Width of the recurrent state.

    Attributes:
        n_features: Width of the output.
    """

    def __init__(self, trunk: Any, observation_space: gymnasium.Space[Any], kind: str, n_hidden: int) -> None:
        super().__init__()
        self._has_previous = has_previous(observation_space)
        n_more = 0
        if self._has_previous:
            assert isinstance(observation_space, spaces.Dict)
            n_more = sum(VectorInput(observation_space[key]).n_features for key in PREVIOUS)
            observation_space = observation_space[OBS]
        self.trunk: nn.Module = trunk(observation_space)
        self.core = RecurrentCore(kind, int(self.trunk.n_features) + n_more, n_hidden)
        self.n_features = n_hidden

    def initial_state(self, n: int, device: str = "cpu") -> dict[str, Tensor]:
        """The state [n, H] at an episode's start."""
        return self.core.initial_state(n, device)

    def forward(self, obs: Tree, state: Tree, begins: Tensor | None = None) -> tuple[Tensor, Tree]:
        """Features [T, B, n_features] of observations [T, B, ...], and the state after them; see `RecurrentCore`."""
        flat = flatten_leading(obs)
        features = self.trunk(flat[OBS] if self._has_previous else flat)
        if self._has_previous:
            more = [flat[key].reshape(features.shape[0], -1).to(features.dtype) for key in PREVIOUS]
            features = torch.cat([features, *more], dim=-1)
        n_envs = next(iter(state.values())).shape[0]
        output, state = self.core(features.view(-1, n_envs, features.shape[-1]), state, begins)
        return output, state


def has_previous(space: gymnasium.Space[Any]) -> bool:
    """Whether observations of this space carry the previous action and reward."""
    return isinstance(space, spaces.Dict) and set(space.spaces) == {OBS, *PREVIOUS}
