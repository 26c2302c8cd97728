"""Observation in, features out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlcli.core.errors import ConfigError
from rlcli.core.tree import Tree

if TYPE_CHECKING:
    from rlcli.models.config import ModelConfig


class Trunk(nn.Module):
    """Features of an observation of any supported space.

    Args:
        config: Sizes.
        observation_space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict of these (nested too).
        last_hidden: Whether the last dense layer is there: the one after the convolutions, the last one of the MLP.
            Without it the features are what goes into these layers, and ``head_hidden`` says what was left to the
            heads.

    Attributes:
        n_features: Width of the features.
        head_hidden: Widths of the dense layers that a head should have of its own: one width, or none.
        activation: Name of the activation after each layer.

    Raises:
        ConfigError: for another space, or an image smaller than the convolutions need.
    """

    def __init__(
        self, config: ModelConfig, observation_space: gymnasium.Space[Any], *, last_hidden: bool = True
    ) -> None:
        super().__init__()
        self.activation = config.activation
        entries = list(_entries(observation_space))
        self._images = [path for path, space in entries if is_image(space)]
        self._vectors = [path for path, space in entries if not is_image(space)]
        by_path = dict(entries)
        encoders = [config.image_encoder(by_path[p], hidden=last_hidden) for p in self._images]
        self.convs = nn.ModuleList(encoders)
        self.flatten = nn.ModuleList([VectorInput(by_path[p]) for p in self._vectors])
        self.n_features = sum(encoder.n_features for encoder in encoders)
        left_out = sum(encoder.width for encoder in encoders)
        self.mlp: nn.Module = nn.Identity()
        if self._vectors:
            n_inputs = sum(module.n_features for module in self._vector_inputs())
            sizes = [n_inputs, *(config.mlp_hidden if last_hidden else config.mlp_hidden[:-1])]
            self.mlp = mlp(sizes, config.activation)
            self.n_features += sizes[-1]
            left_out += config.mlp_hidden[-1] if config.mlp_hidden else 0
        self.head_hidden = [left_out] if left_out and not last_hidden else []

    def forward(self, obs: Tree) -> Tensor:
        """Features [N, n_features] of observations with leaves [N, ...]."""
        parts = [conv(_at(obs, path)) for conv, path in zip(self.convs, self._images, strict=True)]
        if self._vectors:
            flat = [f(_at(obs, path)) for f, path in zip(self.flatten, self._vectors, strict=True)]
            parts.append(self.mlp(flat[0] if len(flat) == 1 else torch.cat(flat, dim=-1)))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def _vector_inputs(self) -> Iterator[VectorInput]:
        for module in self.flatten:
            assert isinstance(module, VectorInput)
            yield module


class VectorInput(nn.Module):
    """Anything that is no image as a flat float vector: categories become one-hot."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        super().__init__()
        self._starts = [0]
        if isinstance(space, spaces.Discrete):
            self._sizes, self._starts = [int(space.n)], [int(space.start)]
        elif isinstance(space, spaces.MultiDiscrete):
            self._sizes, self._starts = space.nvec.flatten().tolist(), space.start.flatten().tolist()
        elif isinstance(space, spaces.Box | spaces.MultiBinary):
            self._sizes = []
        else:
            raise ConfigError(f"env: no model for observation space {space}")
        self.n_features = sum(self._sizes) or math.prod(space.shape or ())

    def forward(self, x: Tensor) -> Tensor:
        """[N, n_features] float32 of [N, ...]."""
        if not self._sizes:
            return x.reshape(x.shape[0], -1).to(torch.float32)
        columns = x.reshape(x.shape[0], -1).long().unbind(1)
        categories = zip(columns, self._sizes, self._starts, strict=True)
        hot = [nn.functional.one_hot(column - start, n) for column, n, start in categories]
        return torch.cat(hot, dim=1).to(torch.float32)


def mlp(sizes: list[int], activation: str, linear: Callable[[int, int], nn.Module] = nn.Linear) -> nn.Sequential:
    """Dense layers of the given widths, an activation after each; ``linear(n_in, n_out)`` makes a layer."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [linear(n_in, n_out), activation_layer(activation)]
    return nn.Sequential(*layers)


def activation_layer(name: str, *, in_place: bool = True) -> nn.Module:
    """The activation of a name, relu or tanh.

    A ReLU works in place unless it must not: one pass less over the memory of each layer, where no layer needs its own
    output again.
    """
    return nn.ReLU(inplace=in_place) if name == "relu" else nn.Tanh()


def is_image(space: gymnasium.Space[Any]) -> bool:
    """Whether a space is taken for an image: a Box of three dimensions."""
    return isinstance(space, spaces.Box) and len(space.shape) == 3


def has_images(space: gymnasium.Space[Any]) -> bool:
    """Whether an observation of this space holds an image."""
    return any(is_image(part) for _, part in _entries(space))


def _entries(space: gymnasium.Space[Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(space, spaces.Dict):
        for key, child in space.spaces.items():
            yield from _entries(child, (*path, key))
    else:
        yield path, space


def _at(obs: Tree, path: tuple[str, ...]) -> Tensor:
    for key in path:
        obs = obs[key]
    leaf: Tensor = obs
    return leaf
