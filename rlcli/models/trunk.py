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
    from rlcli.models.config import AutoModelConfig


def _activation(name: str) -> nn.Module:
    """ReLU in place: one pass less over the memory of each layer, and no layer here needs its own output again."""
    return nn.ReLU(inplace=True) if name == "relu" else nn.Tanh()


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
        self, config: AutoModelConfig, observation_space: gymnasium.Space[Any], *, last_hidden: bool = True
    ) -> None:
        super().__init__()
        self.activation = config.activation
        entries = list(_entries(observation_space))
        self._images = [path for path, space in entries if is_image(space)]
        self._vectors = [path for path, space in entries if not is_image(space)]
        by_path = dict(entries)
        encoders = [ImageEncoder(config, by_path[p], hidden=last_hidden) for p in self._images]
        self.convs = nn.ModuleList(encoders)
        self.flatten = nn.ModuleList([VectorInput(by_path[p]) for p in self._vectors])
        self.n_features = sum(encoder.n_features for encoder in encoders)
        left_out = config.conv_hidden * len(encoders)
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


class ImageEncoder(nn.Module):
    """Convolutions and, with ``hidden``, one dense layer; uint8 pixels are scaled to [0, 1].

    Source: Mnih 2015 (nature) for the default sizes. Images with channels last are turned round.
    """

    def __init__(self, config: AutoModelConfig, space: spaces.Box, *, hidden: bool = True) -> None:
        super().__init__()
        self._turn = _channels_are_last(space.shape)
        height, width, channels = space.shape if self._turn else (*space.shape[1:], space.shape[0])
        self._scale = space.dtype == "uint8"
        layers: list[nn.Module] = []
        size = (height, width)
        shapes = (config.conv_channels, config.conv_kernels, config.conv_strides, config.paddings)
        for n_out, kernel, stride, padding in zip(*shapes, strict=True):
            if min(size) + 2 * padding < kernel:
                raise ConfigError(
                    f"model.conv_kernels: {config.conv_kernels} with strides {config.conv_strides} and paddings "
                    f"{config.paddings} do not fit an image of {height}x{width}; "
                    "give smaller kernels or strides, or a larger image"
                )
            layers += [nn.Conv2d(channels, n_out, kernel, stride, padding), _activation(config.activation)]
            size = (conv_size(size[0], kernel, stride, padding), conv_size(size[1], kernel, stride, padding))
            channels = n_out
        self.conv = nn.Sequential(*layers)
        n_flat = channels * size[0] * size[1]
        self.fc = nn.Linear(n_flat, config.conv_hidden) if hidden else None
        self.n_features = config.conv_hidden if hidden else n_flat
        self.activation = _activation(config.activation)
        if config.channels_last:
            self.conv = self.conv.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks it
        self._layout = torch.channels_last if config.channels_last else torch.contiguous_format

    def forward(self, image: Tensor) -> Tensor:
        """[N, n_features] of images [N, C, H, W] or [N, H, W, C]."""
        x = image.permute(0, 3, 1, 2) if self._turn else image
        # Turning bytes round and then converting is a third faster than both at once on 4 times the bytes.
        x = x.contiguous(memory_format=self._layout).to(torch.float32)
        if self._scale:
            x = x.mul_(1.0 / 255.0)
        features: Tensor = self.conv(x).flatten(1)
        if self.fc is not None:
            features = self.activation(self.fc(features))
        return features


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
        layers += [linear(n_in, n_out), _activation(activation)]
    return nn.Sequential(*layers)


def conv_size(size: int, kernel: int, stride: int, padding: int) -> int:
    """Pixels along one side after a convolution."""
    return (size + 2 * padding - kernel) // stride + 1


def is_image(space: gymnasium.Space[Any]) -> bool:
    """Whether a space is taken for an image: a Box of three dimensions."""
    return isinstance(space, spaces.Box) and len(space.shape) == 3


def has_images(space: gymnasium.Space[Any]) -> bool:
    """Whether an observation of this space holds an image."""
    return any(is_image(part) for _, part in _entries(space))


def _channels_are_last(shape: tuple[int, ...]) -> bool:
    return shape[-1] in (1, 3, 4) and shape[0] not in (1, 3, 4)


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
