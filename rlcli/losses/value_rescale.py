"""Values on a squashed scale, so that rewards need no clipping; and targets that are computed on it."""

from __future__ import annotations

import torch
from torch import Tensor

from rlcli.losses.checks import check_float
from rlcli.losses.returns import n_step_return


def rescale(x: Tensor, eps: float) -> Tensor:
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x, written so that nothing cancels near 0.

    Source: Pohlen et al. 2018, Observe and look further, proposition A.1; Kapturowski et al. 2019, section 2.3.

    Args:
        x: Float of any shape, on the rewards' scale.
        eps: At least 0; above it h has a bounded inverse slope.

    Raises:
        ShapeError: if ``x`` is not floating.
        ValueError: if eps is below 0.
    """
    _check(x, eps)
    return x / ((x.abs() + 1).sqrt() + 1) + eps * x


def unscale(y: Tensor, eps: float) -> Tensor:
    """The exact inverse of `rescale`: h^-1(y) = sign(y) (u^2 - 1).

    Here u = sqrt(|x| + 1) = (sqrt(1 + 4 eps c) - 1) / (2 eps) solves eps u^2 + u = c = |y| + 1 + eps. It is computed as
    2 c / (sqrt(1 + 4 eps c) + 1), which loses no digits for a small eps and is right for 0 too.

    Source: Pohlen et al. 2018, Observe and look further, proposition A.2.

    Args:
        y: Float of any shape, values on the squashed scale.
        eps: As that of `rescale`.

    Raises:
        ShapeError: if ``y`` is not floating.
        ValueError: if eps is below 0.
    """
    _check(y, eps)
    c = y.abs() + (1 + eps)
    u = 2 * c / ((1 + 4 * eps * c).sqrt() + 1)
    return y.sign() * (u - 1) * (u + 1)


@torch.no_grad()
def rescaled_n_step_target(
    reward: Tensor,
    value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    valid: Tensor,
    discount: float,
    n: int,
    eps: float | None,
) -> Tensor:
    """Targets of action values on the squashed scale.

    y_t = h(r_t + discount r_{t+1} + ... + discount^m h^-1(V(s_{t+m}))), with windows m as in `n_step_return`.

    Source: Kapturowski et al. 2019, Recurrent experience replay in distributed reinforcement learning, section 2.3.

    Args:
        reward: [T, B] float, for the action of row t.
        value: [T + 1, B] float, of obs[t], on the squashed scale; what needs a nan is nan.
        terminated: [T, B] bool.
        truncated: [T, B] bool.
        valid: [T, B] bool, False on filler rows.
        discount: Per step, in [0, 1].
        n: Longest window, rows, at least 1; may exceed T.
        eps: As that of `rescale`; None: values are on the rewards' scale, and h the identity.

    Returns:
        [T, B] float; 0 on filler rows.

    Raises:
        ShapeError: if ranks, shapes or dtypes do not fit.
        ValueError: if n is below 1, or eps below 0.
    """
    if eps is None:
        return n_step_return(reward, value, terminated, truncated, valid, discount, n)
    return_ = n_step_return(reward, unscale(value, eps), terminated, truncated, valid, discount, n)
    return rescale(return_, eps)


def _check(x: Tensor, eps: float) -> None:
    check_float(x=x)
    if not eps >= 0:
        raise ValueError(f"eps: expected at least 0, got {eps}")
