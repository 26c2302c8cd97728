"""Allocation of one batch of samples."""

from __future__ import annotations

import itertools
from dataclasses import fields
from typing import Any

import torch

from rlcli.core.protocols import Agent
from rlcli.core.samples import Samples
from rlcli.core.spec import EnvSpec
from rlcli.core.tree import Tree, index, map_tree, share

_LEADING_T_B = ("obs", "action", "reward", "terminated", "truncated", "valid", "record")


def allocate(spec: EnvSpec, agent: Agent, batch_T: int, batch_B: int) -> Samples:
    """Zeroed samples of [T, B] with shapes and dtypes from one example observation and one example act."""
    obs = map_tree(torch.as_tensor, spec.example_obs)
    batch_of_one = map_tree(lambda leaf: leaf[None], obs)
    uniforms = torch.zeros(1, agent.n_uniforms, dtype=torch.float64)
    state = agent.initial_state(1)
    act = agent.act(batch_of_one, state, uniforms, env_ids=[0], step=0, explore=True)

    def rows(n_rows: int, example: Tree) -> Tree:
        return map_tree(lambda leaf: torch.zeros(n_rows, batch_B, *leaf.shape[1:], dtype=leaf.dtype), example)

    def flags(dtype: torch.dtype) -> Any:
        return torch.zeros(batch_T, batch_B, dtype=dtype)

    return Samples(
        obs=rows(batch_T + 1, batch_of_one),
        action=rows(batch_T, act.action),
        reward=flags(torch.float32),
        terminated=flags(torch.bool),
        truncated=flags(torch.bool),
        valid=flags(torch.bool),
        record=rows(batch_T, act.record),
        state=map_tree(lambda leaf: torch.zeros(batch_B, *leaf.shape[1:], dtype=leaf.dtype), state),
    )


def batch_slice(samples: Samples, low: int, high: int) -> Samples:
    """Views of environments ``low`` to ``high`` of a batch."""
    leading = {name: index(getattr(samples, name), (slice(None), slice(low, high))) for name in _LEADING_T_B}
    return Samples(**leading, state=index(samples.state, slice(low, high)))


def share_samples(samples: Samples) -> Samples:
    """Move a batch to shared memory, in place."""
    for field in fields(samples):
        share(getattr(samples, field.name))
    return samples


def split(n: int, parts: int) -> list[range]:
    """``range(n)`` cut into contiguous ranges whose lengths differ by at most 1, the longer ones first."""
    size, extra = divmod(n, parts)
    starts = [i * size + min(i, extra) for i in range(parts + 1)]
    return [range(a, b) for a, b in itertools.pairwise(starts)]
