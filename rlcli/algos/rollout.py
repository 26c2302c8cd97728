"""What A2C and PPO make of a batch before they learn from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from rlcli.core.samples import Samples
from rlcli.core.tree import Tree, index, map_tree, to
from rlcli.losses.returns import gae


class ActionDistributionLike(Protocol):
    """What a learner asks of a distribution of actions."""

    def log_prob(self, params: Tensor, action: Tree) -> Tensor:
        """[N] of params [N, n_params] and actions [N, ...]."""

    def entropy(self, params: Tensor) -> Tensor:
        """[N]."""


class PolicyAgentLike(Protocol):
    """What A2C and PPO need of an agent."""

    @property
    def model(self) -> nn.Module:
        """What is trained."""

    @property
    def distribution(self) -> ActionDistributionLike:
        """Of the parameters that `unroll` gives."""

    def taken(self, samples: Samples) -> Tree:
        """[T, B, ...] the actions as they were drawn."""

    def unroll(self, obs: Tree, state: Tree, begins: Tensor) -> tuple[Tensor, Tensor, Tree]:
        """Parameters [T, B, n_params], values [T, B] and the state after the last row."""

    def observe(self, obs: Tree, valid: Tensor) -> None:
        """Take the observations of valid rows into the statistics that normalise them, if there are any."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in time order of some environments, where the learner computes: [T, B, ...] unless said.

    Rows that were picked one by one are one row of as many environments, without a state.
    """

    obs: Tree
    action: Tree
    valid: Tensor
    begins: Tensor
    """Bool: rows before which the recurrent state is the initial one."""
    state: Tree
    """[B, H] before row 0, None if there is none."""


def episode_begins(terminated: Tensor, valid: Tensor) -> Tensor:
    """Rows before which acting began with the initial recurrent state, row 0 aside: its state is ``samples.state``.

    Row t begins an episode if row t - 1 is a filler, or if a life was lost in it: it terminated, and row t is valid. A
    filler row still belongs to the episode that it ends: its value is that of the last observation.

    Args:
        terminated: [T, B] bool.
        valid: [T, B] bool.

    Returns:
        [T + 1, B] bool; what the last row says matters only where row T - 1 did not terminate.
    """
    after_filler = ~valid
    after_lost_life = terminated[:-1] & valid[:-1] & valid[1:]
    begins = torch.cat([torch.zeros_like(valid[:1]), after_filler])
    begins[1:-1] |= after_lost_life
    return begins


def rows_of(samples: Samples, action: Tree, device: str) -> Rows:
    """All rows of a batch but the last observation's."""
    n_rows = samples.valid.shape[0]
    return Rows(
        obs=to(index(samples.obs, slice(0, n_rows)), device),
        action=to(action, device),
        valid=samples.valid.to(device),
        begins=episode_begins(samples.terminated, samples.valid)[:n_rows].to(device),
        state=to(samples.state, device),
    )


def advantages(samples: Samples, reward: Tensor, value: Tensor, discount: float, gae_lambda: float) -> Tensor:
    """[T, B], where the values lie.

    Args:
        samples: The batch.
        reward: [T, B] as learned from.
        value: [T + 1, B] of all observations.
        discount: Per agent step.
        gae_lambda: See `rlcli.losses.returns.gae`.
    """
    device = value.device
    return gae(
        reward.to(device),
        value,
        samples.terminated.to(device),
        samples.truncated.to(device),
        samples.valid.to(device),
        discount,
        gae_lambda,
    )


def pick_rows(rows: Rows, picked: Tensor) -> Rows:
    """The rows with these numbers t * B + b, [1, n]; for agents without a recurrent state.

    Args:
        rows: [T, B].
        picked: [n] int64.
    """

    def pick(leaf: Tensor) -> Tensor:
        return leaf.flatten(0, 1)[picked][None]

    return Rows(
        obs=map_tree(pick, rows.obs),
        action=map_tree(pick, rows.action),
        valid=pick(rows.valid),
        begins=pick(rows.begins),
        state=None,
    )


def pick_envs(rows: Rows, picked: Tensor) -> Rows:
    """Whole sequences [T, n] of these environments.

    Args:
        rows: [T, B].
        picked: [n] int64.
    """

    def pick(leaf: Tensor) -> Tensor:
        return leaf[:, picked]

    return Rows(
        obs=map_tree(pick, rows.obs),
        action=map_tree(pick, rows.action),
        valid=pick(rows.valid),
        begins=pick(rows.begins),
        state=map_tree(lambda leaf: leaf[picked], rows.state),
    )


def minibatches(n: int, n_parts: int, generator: torch.Generator) -> list[Tensor]:
    """The numbers below n in a random order, cut into ``n_parts`` parts (n if it is less) whose sizes differ by 1 at
    most: none is left out.
    """
    order = torch.randperm(n, generator=generator)
    return list(order.tensor_split(min(n, n_parts)))
