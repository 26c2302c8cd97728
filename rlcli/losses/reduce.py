"""From numbers per element to one loss."""

from __future__ import annotations

import torch
from torch import Tensor

from rlcli.losses.checks import check_dtype, check_float, check_shape


def masked_mean(x: Tensor, valid: Tensor, weight: Tensor | None = None) -> Tensor:
    """Sum of the valid, weighted elements over the number of valid elements.

    Weights scale the elements and not their number, as importance weights do. Elements that are not valid, nan and
    inf included, change neither the mean nor the gradient with respect to ``x``.

    Args:
        x: Float of any shape.
        valid: Bool of the same shape.
        weight: Float of the same shape, or None for 1.

    Returns:
        [] float; 0, with a graph, if nothing is valid.

    Raises:
        ShapeError: if shapes or dtypes do not fit.
    """
    check_shape(x.shape, valid=valid)
    check_float(x=x)
    check_dtype(torch.bool, valid=valid)
    zero = x.new_zeros(())
    kept = torch.where(valid, x, zero)
    if weight is not None:
        check_shape(x.shape, weight=weight)
        check_dtype(x.dtype, weight=weight)
        kept = kept * torch.where(valid, weight, zero)
    return kept.sum() / valid.sum().clamp(min=1)
