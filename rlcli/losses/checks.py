"""The first lines of every loss: ranks, shapes and dtypes, so that nothing broadcasts by accident."""

from __future__ import annotations

import torch
from torch import Tensor


class ShapeError(ValueError):
    """An argument has the wrong rank, shape or dtype; the message names it."""


def check_rank(rank: int, **tensors: Tensor) -> None:
    """Every tensor has ``rank`` dimensions.

    Raises:
        ShapeError: naming the first that has not.
    """
    for name, tensor in tensors.items():
        if tensor.dim() != rank:
            raise ShapeError(f"{name}: expected {rank} dimensions, got shape {tuple(tensor.shape)}")


def check_shape(shape: tuple[int, ...] | torch.Size, **tensors: Tensor) -> None:
    """Every tensor has exactly ``shape``.

    Raises:
        ShapeError: naming the first that has not.
    """
    for name, tensor in tensors.items():
        if tuple(tensor.shape) != tuple(shape):
            raise ShapeError(f"{name}: expected shape {tuple(shape)}, got {tuple(tensor.shape)}")


def check_float(**tensors: Tensor) -> None:
    """Every tensor is of a floating dtype.

    Raises:
        ShapeError: naming the first that is not.
    """
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise ShapeError(f"{name}: expected a floating dtype, got {tensor.dtype}")


def check_dtype(dtype: torch.dtype, **tensors: Tensor) -> None:
    """Every tensor is of ``dtype``.

    Raises:
        ShapeError: naming the first that is not.
    """
    for name, tensor in tensors.items():
        if tensor.dtype != dtype:
            raise ShapeError(f"{name}: expected {dtype}, got {tensor.dtype}")
