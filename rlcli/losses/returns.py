"""Returns and advantages of a batch in time order.

All take the same stream. On a valid row ``t``, ``value[t + 1]`` is the value of the true successor: at an episode's
end that is the filler row's value, V(final observation). So termination does not bootstrap, truncation bootstraps
from ``value[t + 1]``, and both cut the recursion, as does the batch end, which bootstraps from ``value[T]``. Where
both flags are set the task terminated. A filler row behind a row without an end makes that row a truncated one: its
environment was lost, and ``value[t + 1]`` is V(last observation). What the flags of filler rows say changes nothing.
No gradient flows through any of these.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlcli.losses.checks import check_dtype, check_float, check_rank, check_shape


@torch.no_grad()
def gae(
    reward: Tensor,
    value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    valid: Tensor,
    discount: float,
    lambda_: float,
) -> Tensor:
    """Generalised advantage estimates.

    A_t = sum_k (discount lambda)^k delta_{t+k},  delta_t = r_t + discount V(s_{t+1}) - V(s_t), up to the first cut.

    Source: Schulman et al. 2016, High-dimensional continuous control using generalized advantage estimation, eq. 16.

    Args:
        reward: [T, B] float, for the action of row t.
        value: [T + 1, B] float, V(obs[t]).
        terminated: [T, B] bool.
        truncated: [T, B] bool.
        valid: [T, B] bool, False on filler rows.
        discount: Per step, in [0, 1].
        lambda_: In [0, 1]; 0 gives the one-step error, 1 the whole return less the value.

    Returns:
        [T, B] float; 0 on filler rows.

    Raises:
        ShapeError: if ranks, shapes or dtypes do not fit.
    """
    _check_stream(reward, value, terminated, truncated, valid)
    zero = reward.new_zeros(())
    successor = torch.where(terminated, zero, value[1:])
    delta = torch.where(valid, reward + discount * successor - value[:-1], zero)
    carry = discount * lambda_ * (valid & ~terminated & ~truncated).to(reward.dtype)
    advantage = torch.empty_like(delta)
    later = torch.zeros_like(delta[0])
    for t in reversed(range(delta.shape[0])):
        later = delta[t] + carry[t] * later
        advantage[t] = later
    return advantage


@torch.no_grad()
def lambda_return(
    reward: Tensor,
    value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    valid: Tensor,
    discount: float,
    lambda_: float,
) -> Tensor:
    """TD(lambda) returns, the targets of a value function: `gae` plus V(s_t).

    Source: Sutton & Barto 2018, eq. 12.3, cut at the batch end.

    Args:
        reward: [T, B] float, for the action of row t.
        value: [T + 1, B] float, V(obs[t]).
        terminated: [T, B] bool.
        truncated: [T, B] bool.
        valid: [T, B] bool, False on filler rows.
        discount: Per step, in [0, 1].
        lambda_: In [0, 1].

    Returns:
        [T, B] float; 0 on filler rows.

    Raises:
        ShapeError: if ranks, shapes or dtypes do not fit.
    """
    advantage = gae(reward, value, terminated, truncated, valid, discount, lambda_)
    return torch.where(valid, advantage + value[:-1], reward.new_zeros(()))


@torch.no_grad()
def n_step_return(
    reward: Tensor,
    value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    valid: Tensor,
    discount: float,
    n: int,
) -> Tensor:
    """Discounted sum of up to n rewards, then the value of the row after them.

    G_t = r_t + discount r_{t+1} + ... + discount^{m-1} r_{t+m-1} + discount^m V(s_{t+m}), where m is n or less: a
    window ends at the first termination (no value then), truncation or batch end.

    Source: Sutton & Barto 2018, eq. 7.1.

    Args:
        reward: [T, B] float, for the action of row t.
        value: [T + 1, B] float, V(obs[t]).
        terminated: [T, B] bool.
        truncated: [T, B] bool.
        valid: [T, B] bool, False on filler rows.
        discount: Per step, in [0, 1].
        n: Longest window, rows, at least 1; may exceed T.

    Returns:
        [T, B] float; 0 on filler rows.

    Raises:
        ShapeError: if ranks, shapes or dtypes do not fit.
        ValueError: if n is below 1.
    """
    _check_stream(reward, value, terminated, truncated, valid)
    if n < 1:
        raise ValueError(f"n: expected at least 1, got {n}")
    zero = reward.new_zeros(())
    # One sweep lengthens every window by a row. A row that is not valid stands for V(final observation) throughout,
    # so the row before it can only bootstrap from it.
    window = value.clone()
    for _ in range(min(n, reward.shape[0])):
        successor = torch.where(terminated, zero, torch.where(truncated, value[1:], window[1:]))
        longer = torch.where(valid, reward + discount * successor, value[:-1])
        window = torch.cat([longer, value[-1:]])
    return torch.where(valid, window[:-1], zero)


def _check_stream(reward: Tensor, value: Tensor, terminated: Tensor, truncated: Tensor, valid: Tensor) -> None:
    check_rank(2, reward=reward)
    T, B = reward.shape
    check_shape((T + 1, B), value=value)
    check_shape((T, B), terminated=terminated, truncated=truncated, valid=valid)
    check_float(reward=reward)
    check_dtype(reward.dtype, value=value)
    check_dtype(torch.bool, terminated=terminated, truncated=truncated, valid=valid)
