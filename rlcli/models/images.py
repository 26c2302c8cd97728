"""Images in, features out: convolutions of two kinds, and the dense layer behind either."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlcli.core.errors import ConfigError
from rlcli.models.trunk import activation_layer


class Shape(NamedTuple):
    """Of one image, or of what convolutions made of it."""

    channels: int
    height: int
    width: int


Convolutions = Callable[[Shape], tuple[nn.Sequential, Shape]]
"""Images of a shape -> the convolutions for them, an activation at the end, and the shape of what they give."""


class ImageEncoder(nn.Module):
    """Convolutions and, with ``hidden``, one dense layer; uint8 pixels are scaled to [0, 1], others are not.

    Args:
        space: Of the images: [C, H, W], or with the channels last, which are turned round.
        convolutions: Builds them.
        width: Of the dense layer.
        hidden: Whether the dense layer is there; without it the features are what goes into it.
        activation: After the dense layer.
        channels: ``first``, ``last``, or ``auto``, which looks at the shape.
        channels_last: Memory layout of the convolutions.

    Attributes:
        n_features: Width of the features.
        width: Of the dense layer, there or not.
    """

    def __init__(
        self,
        space: spaces.Box,
        convolutions: Convolutions,
        width: int,
        *,
        hidden: bool = True,
        activation: str = "relu",
        channels: str = "auto",
        channels_last: bool = True,
    ) -> None:
        super().__init__()
        self._turn = has_channels_last(space.shape, channels)
        self._scale = space.dtype == "uint8"
        self.conv, shape = convolutions(image_shape(space, channels))
        n_flat = shape.channels * shape.height * shape.width
        self.fc = nn.Linear(n_flat, width) if hidden else None
        self.width, self.n_features = width, width if hidden else n_flat
        self.activation = activation_layer(activation)
        if channels_last:
            self.conv = self.conv.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks it
        self._layout = torch.channels_last if channels_last else torch.contiguous_format

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


def image_shape(space: spaces.Box, channels: str = "auto") -> Shape:
    """The shape of the images of a space, wherever their channels are; ``channels`` as in `ImageEncoder`."""
    if has_channels_last(space.shape, channels):
        return Shape(space.shape[2], space.shape[0], space.shape[1])
    return Shape(*space.shape)


def has_channels_last(shape: tuple[int, ...], channels: str = "auto") -> bool:
    """Whether an image of three dimensions has its channels last; ``channels`` as in `ImageEncoder`."""
    if channels != "auto":
        return channels == "last"
    return shape[-1] in (1, 3, 4) and shape[0] not in (1, 3, 4)


def plain_convolutions(
    shape: Shape,
    *,
    channels: Sequence[int],
    kernels: Sequence[int],
    strides: Sequence[int],
    paddings: Sequence[int],
    activation: str,
) -> tuple[nn.Sequential, Shape]:
    """One convolution after another, an activation behind each (Mnih 2015).

    Args:
        shape: Of an image.
        channels: Of each convolution.
        kernels: Pixels, as the next two.
        strides: Of each.
        paddings: Of each.
        activation: relu or tanh.

    Raises:
        ConfigError: A kernel is larger than what it is laid on.
    """
    layers: list[nn.Module] = []
    now = shape
    for n_out, kernel, stride, padding in zip(channels, kernels, strides, paddings, strict=True):
        if min(now.height, now.width) + 2 * padding < kernel:
            raise ConfigError(
                f"model.conv_kernels: {list(kernels)} with strides {list(strides)} and paddings {list(paddings)} do "
                f"not fit an image of {shape.height}x{shape.width}; give smaller kernels or strides, or a larger image"
            )
        layers += [nn.Conv2d(now.channels, n_out, kernel, stride, padding), activation_layer(activation)]
        height, width = (conv_size(size, kernel, stride, padding) for size in now[1:])
        now = Shape(n_out, height, width)
    return nn.Sequential(*layers), now


def residual_sections(
    shape: Shape, *, channels: Sequence[int], n_blocks: int, activation: str
) -> tuple[nn.Sequential, Shape]:
    """Sections of a convolution, a max-pooling that halves the image, and residual blocks; an activation at the end.

    Source: Espeholt 2018 (arXiv 1802.01561), figure 3, right. All kernels are 3x3 with a padding of 1 on every side
    (theirs, TensorFlow's "same", pools images of even size with a padding on the far sides alone).

    Args:
        shape: Of an image.
        channels: Of each section.
        n_blocks: Residual blocks in a section.
        activation: relu or tanh.

    Raises:
        ConfigError: A section has nothing left to halve.
    """
    layers: list[nn.Module] = []
    now = shape
    for n_out in channels:
        if min(now.height, now.width) < 2:
            raise ConfigError(
                f"model.conv_channels: {len(channels)} sections, each of which halves the image, do not fit one of "
                f"{shape.height}x{shape.width}; give fewer, or a larger image"
            )
        layers += [nn.Conv2d(now.channels, n_out, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
        layers += [ResidualBlock(n_out, activation) for _ in range(n_blocks)]
        now = Shape(n_out, conv_size(now.height, 3, 2, 1), conv_size(now.width, 3, 2, 1))
    return nn.Sequential(*layers, activation_layer(activation)), now


class ResidualBlock(nn.Module):
    """Two convolutions, an activation before each, whose output is added to the input (Espeholt 2018, figure 3)."""

    def __init__(self, n_channels: int, activation: str) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            activation_layer(activation, in_place=False),  # the input is added at the end
            nn.Conv2d(n_channels, n_channels, 3, padding=1),
            activation_layer(activation),
            nn.Conv2d(n_channels, n_channels, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] of [N, C, H, W]."""
        added: Tensor = x + self.residual(x)
        return added


def conv_size(size: int, kernel: int, stride: int, padding: int) -> int:
    """Pixels along one side after a convolution or a pooling."""
    return (size + 2 * padding - kernel) // stride + 1
