"""Allocation of one batch of samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

import torch

from rlcli.core import machine
from rlcli.core.errors import RlcliError
from rlcli.core.protocols import Agent
from rlcli.core.samples import Samples
from rlcli.core.spec import EnvSpec
from rlcli.core.tree import Tree, as_torch, index, leaves, map_tree, write
from rlcli.samplers.shared import USABLE, SharedTree

_LEADING_T_B = ("obs", "action", "reward", "terminated", "truncated", "valid", "record")


class Shape(NamedTuple):
    """A leaf of a batch that takes no memory."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def n_bytes(self) -> int:
        """What it would take."""
        return math.prod(self.shape) * self.dtype.itemsize


def batch_shapes(spec: EnvSpec, agent: Agent, batch_T: int, batch_B: int) -> Samples:
    """Samples of [T, B] whose leaves are `Shape`, found by one example observation and one example act."""
    obs = map_tree(torch.as_tensor, spec.example_obs)
    batch_of_one = map_tree(lambda leaf: leaf[None], obs)
    uniforms = torch.zeros(1, agent.n_uniforms, dtype=torch.float64)
    state = agent.initial_state(1)
    act = agent.act(batch_of_one, state, uniforms, env_ids=[0], step=0, explore=True)

    def rows(n_rows: int, example: Tree) -> Tree:
        return map_tree(lambda leaf: Shape((n_rows, batch_B, *leaf.shape[1:]), leaf.dtype), example)

    def flags(dtype: torch.dtype) -> Any:
        return Shape((batch_T, batch_B), dtype)

    return Samples(
        obs=rows(batch_T + 1, batch_of_one),
        action=rows(batch_T, act.action),
        reward=flags(torch.float32),
        terminated=flags(torch.bool),
        truncated=flags(torch.bool),
        valid=flags(torch.bool),
        record=rows(batch_T, act.record),
        state=map_tree(lambda leaf: Shape((batch_B, *leaf.shape[1:]), leaf.dtype), state),
    )


def allocate(spec: EnvSpec, agent: Agent, batch_T: int, batch_B: int, *, pinned: bool = False) -> Samples:
    """Zeroed samples of [T, B] in memory of this process; see `batch_shapes`.

    Args:
        spec: The environments'.
        agent: Chooses the actions.
        batch_T: Rows.
        batch_B: Environments.
        pinned: Whether the memory is page-locked, from which a GPU copies fast.

    Raises:
        RlcliError: There is not so much memory.
    """
    shapes = as_tree(batch_shapes(spec, agent, batch_T, batch_B))
    n_bytes, free = sum(leaf.n_bytes for _, leaf in leaves(shapes)), machine.available_memory()
    told = f"sampler.batch_T={batch_T}, sampler.batch_B={batch_B}: the batch needs {n_bytes:,} bytes, {free:,} are free"
    if n_bytes > free * USABLE:
        raise RlcliError(f"{told} in memory; make one of them smaller")
    try:
        return Samples(**map_tree(lambda leaf: torch.zeros(leaf.shape, dtype=leaf.dtype, pin_memory=pinned), shapes))
    except RuntimeError as error:  # as under `ulimit -v`
        first = str(error).partition("\n")[0]
        raise RlcliError(f"{told} but cannot be had ({first})") from error


def batch_slice(samples: Samples, low: int, high: int) -> Samples:
    """Views of environments ``low`` to ``high`` of a batch."""
    leading = {name: index(getattr(samples, name), (slice(None), slice(low, high))) for name in _LEADING_T_B}
    return Samples(**leading, state=index(samples.state, slice(low, high)))


def as_tree(samples: Samples) -> dict[str, Tree]:
    """The fields of a batch under their names."""
    return {field.name: getattr(samples, field.name) for field in fields(samples)}


def share_like(samples: Samples, say: Callable[[str], None]) -> SharedTree:
    """Shared memory, zeroed, for a batch like ``samples``, which may come from `batch_shapes`.

    `shared_samples` gives the batch on it.
    """
    return SharedTree(as_tree(samples), say=say)


def shared_samples(memory: SharedTree) -> Samples:
    """The batch that lies in shared memory."""
    return Samples(**as_torch(memory.tree))


def copy_samples(to: Samples, source: Samples) -> None:
    """Copy a whole batch into another of the same shape."""
    write(as_tree(to), ..., as_tree(source))


def split(n: int, parts: int) -> list[range]:
    """``range(n)`` cut into contiguous ranges whose lengths differ by at most 1, the longer ones first."""
    size, extra = divmod(n, parts)
    starts = [i * size + min(i, extra) for i in range(parts + 1)]
    return [range(a, b) for a, b in itertools.pairwise(starts)]
