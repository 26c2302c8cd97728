"""What one stored row of one environment holds, and what that costs. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rlcli.core.spec import EnvSpec
from rlcli.core.tree import Tree, leaves
from rlcli.replay.frames import frames_leaf, without


def stacked_key(spec: EnvSpec) -> str | None:
    """The key under which a Dict observation has its stack of frames; None if it has none, or is no Dict."""
    return spec.stacked_key if isinstance(spec.example_obs, Mapping) else None


def frames_apart(spec: EnvSpec) -> int:
    """How many stored frames make one observation: the frame stack, else 1.

    Dict observations that do not say which of their leaves is a stack are stored whole.

    Raises:
        ValueError: if the first axis of the stack is no multiple of the number of frames.
    """
    key = stacked_key(spec)
    if spec.frame_stack == 1 or (key is None and isinstance(spec.example_obs, Mapping)):
        return 1
    shape = spec.example_obs.shape if key is None else spec.example_obs[key].shape
    if not shape or shape[0] % spec.frame_stack:
        raise ValueError(f"{frames_leaf(key)}: shape {shape} holds no {spec.frame_stack} frames along its first axis")
    return spec.frame_stack


def example_row(spec: EnvSpec) -> dict[str, Tree]:
    """One row as it is stored: a tree of numpy arrays.

    ``n_earlier`` counts the earlier frames that belong to the stack of this row's observation.
    """
    k = frames_apart(spec)
    return _example_obs(spec, k) | {
        "action": spec.example_action,
        "reward": np.zeros((), np.float32),
        "terminated": np.zeros((), np.bool_),
        "truncated": np.zeros((), np.bool_),
        "valid": np.zeros((), np.bool_),
        "n_earlier": np.zeros((), np.min_scalar_type(k - 1)),
    }


def _example_obs(spec: EnvSpec, k: int) -> dict[str, Tree]:
    """The leaves of an observation that is made of k stored frames."""
    obs, key = spec.example_obs, stacked_key(spec)
    if k == 1:
        return {"obs": obs}
    if key is None:
        return {"obs": obs[-(obs.shape[0] // k) :]}
    return {"obs": without(obs, key), frames_leaf(key): obs[key][-(obs[key].shape[0] // k) :]}


def row_bytes(spec: EnvSpec) -> int:
    """Bytes that one row of one environment takes."""
    return sum(int(np.asarray(leaf).nbytes) for _, leaf in leaves(example_row(spec)))


def rows_for(size: int, spec: EnvSpec, n_envs: int) -> int:
    """Rows per environment that hold ``size`` transitions, plus the oldest ones, which only complete frame stacks."""
    return -(-size // n_envs) + frames_apart(spec) - 1


def size_of(row_budget: int, spec: EnvSpec, n_envs: int) -> int:
    """The largest size that needs at most ``row_budget`` rows per environment; 0 if none does."""
    return max(0, (row_budget - frames_apart(spec) + 1) * n_envs)
