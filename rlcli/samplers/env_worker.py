"""Environments in worker processes that only step: the worker's side. Imports no torch, so a worker starts fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rlcli.core.errors import InexactError
from rlcli.core.pulse import Pulse
from rlcli.core.rng import Purpose
from rlcli.core.spec import EnvSpec
from rlcli.core.tree import Tree, index, map_tree
from rlcli.envs.build import build_vector_env
from rlcli.samplers.shared import SharedTree
from rlcli.samplers.worker import Channel, state_or_reason

if TYPE_CHECKING:
    from rlcli.core.protocols import VectorEnv  # loads torch

STEP_ARRAYS = {
    "reward": np.float32,
    "raw_reward": np.float64,
    "terminated": np.bool_,
    "truncated": np.bool_,
    "ended": np.bool_,
    "valid": np.bool_,
}
"""Fields of `core.spec.Step`, each [B]."""


@dataclass(frozen=True)
class Group:
    """Environments that are stepped together, spread over the workers."""

    config: Any
    """Config of an environment."""
    purpose: Purpose
    slices: list[list[int]]
    """Ids of each worker's environments; a worker may have none."""
    at_once: bool
    """Whether the environments are made when a worker starts, or when first needed."""


@dataclass(frozen=True)
class EnvParts:
    """What a worker makes its environments from."""

    groups: Mapping[str, Group]
    spec: EnvSpec
    seed: int
    incarnation: int
    """To which that of the worker is added."""


def step_memory(spec: EnvSpec, n_envs: int) -> Tree:
    """Shapes of the memory through which one group's steps go, [B, ...] leaves."""

    def rows(leaf: Any) -> Any:
        return np.empty((n_envs, *np.shape(leaf)), np.asarray(leaf).dtype)

    arrays: Tree = {name: np.empty(n_envs, dtype) for name, dtype in STEP_ARRAYS.items()}
    obs, action = map_tree(rows, spec.example_obs), map_tree(rows, spec.example_action)
    return {"obs": obs, "action": action, "autoreset": np.empty(n_envs, np.bool_), **arrays}


class GroupWorker:
    """One worker's environments of a group, between which and the parent lies shared memory."""

    def __init__(self, env: VectorEnv, memory: Tree) -> None:
        self._env, self._memory = env, memory

    def reset(self, seed: int | None) -> None:
        """Reset all."""
        self._env.reset(self._memory["obs"], seed)

    def step(self) -> None:
        """Step all with the actions in memory."""
        memory = self._memory
        self._env.send(memory["action"], memory["autoreset"])
        step = self._env.recv(memory["obs"])
        for name in STEP_ARRAYS:
            memory[name][:] = getattr(step, name)

    def reset_idle(self) -> None:
        """Reset those that idle."""
        self._env.reset_idle(self._memory["obs"])

    def decorrelate(self, max_steps: int, seed: int) -> npt.NDArray[np.int64]:
        """Let each run on by a random number of steps, which it gives."""
        return self._env.decorrelate(self._memory["obs"], max_steps, seed)

    def state(self) -> list[Any] | InexactError:
        """[B] what each needs to go on exactly, or why that cannot be."""
        return state_or_reason(self._env.state)

    def load_state(self, states: Sequence[Any]) -> None:
        """Let each go on from there."""
        self._env.load_state(states)

    def renew(self) -> None:
        """Make all anew."""
        self._env.renew()

    def close(self) -> None:
        """Close all."""
        self._env.close()


def serve_envs(
    parts: EnvParts, shared: tuple[int, Mapping[str, SharedTree]], channel: Channel, pulse: Pulse, incarnation: int
) -> None:
    """Runs in a worker: steps environments when asked; each request names the group and what to do with it."""
    rank, memories = shared
    groups: dict[str, GroupWorker] = {}

    def group(name: str) -> GroupWorker:
        if name not in groups:
            made = parts.groups[name]
            ids = made.slices[rank]
            low = sum(len(other) for other in made.slices[:rank])
            env = build_vector_env(
                made.config,
                ids,
                parts.seed,
                purpose=made.purpose,
                spec=parts.spec,
                pulse=pulse,
                # an evaluation env that was lost begins again with the games that it had at first
                incarnation=parts.incarnation + incarnation if made.purpose == Purpose.ENV else 0,
            )
            groups[name] = GroupWorker(env, index(memories[name].tree, slice(low, low + len(ids))))
        return groups[name]

    try:
        for name, made in parts.groups.items():
            if made.at_once and made.slices[rank]:
                group(name)
        channel.answer()
        while (request := channel.receive()).verb != "close":
            name, *args = request.args
            channel.answer(getattr(group(name), request.verb)(*args))
    finally:
        for made_group in groups.values():
            made_group.close()
