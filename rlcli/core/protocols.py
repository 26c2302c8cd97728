"""The seams of the program: what each part may expect of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from rlcli.core.samples import Collected, Evaluation, Samples
from rlcli.core.spec import EnvSpec, Step
from rlcli.core.tree import Tree


class VectorEnv(Protocol):
    """B environments stepped together, with NEXT_STEP autoreset.

    The call after an episode's end ignores that env's action, resets it and gives a filler row (reward 0,
    ``valid`` False, the new episode's first observation).
    """

    spec: EnvSpec

    @property
    def env_ids(self) -> Sequence[int]:
        """Global ids."""

    def reset(self, obs_out: Tree, seed: int | None = None) -> None:
        """Reset every env and write the observations into ``obs_out`` ([B, ...] numpy leaves).

        With ``seed`` the envs' random streams start anew from it.
        """

    def send(self, action: Tree, autoreset: bool | npt.NDArray[np.bool_] = True) -> None:
        """Start one step with ``action`` ([B, ...] numpy); an ended env for which ``autoreset`` is False idles."""

    def recv(self, obs_out: Tree) -> Step:
        """Wait for the step, write the observations into ``obs_out``; the returned arrays are reused next time."""

    def reset_idle(self, obs_out: Tree) -> None:
        """Reset the envs that idle since at least one filler row; writes only their observations."""

    def state(self) -> list[Any]:
        """[B] plain trees with which environments in any process and slicing go on exactly; between two steps.

        Raises:
            InexactError: An environment cannot be saved exactly.
        """

    def renew(self) -> None:
        """Make every env anew, so that nothing is left of what it was; a seeded reset must follow."""

    def load_state(self, states: Sequence[Any]) -> None:
        """Go on where `state` was taken, [B] in the order of `env_ids`; the environments have been reset before."""

    def decorrelate(self, obs_out: Tree, max_steps: int, seed: int) -> npt.NDArray[np.int64]:
        """Let each env take 1 to ``max_steps`` random actions (0: none); ``obs_out`` then holds what follows.

        Returns:
            [B] steps taken.
        """

    def close(self) -> None:
        """Free everything; safe to call twice."""


@dataclass(frozen=True, slots=True)
class Act:
    """An agent's answer for B environments."""

    action: Tree
    """[B, ...]; discrete actions are indices from 0."""
    record: Tree
    """[B, ...] what the algorithm wants to find in Samples.record; None for nothing."""
    state: Tree
    """[B, ...] recurrent state after the step; None if there is none."""


class Agent(Protocol):
    """Acts; never learns, never stores. A pure function of (weights, obs, state, uniforms, step)."""

    n_uniforms: int
    """Uniforms that `act` takes per environment and step."""

    def initial_state(self, n_envs: int) -> Tree:
        """Recurrent state [B, ...] at an episode's start; None if there is none."""

    def act(self, obs: Tree, state: Tree, uniforms: Tensor, *, env_ids: Sequence[int], step: int, explore: bool) -> Act:
        """Choose actions.

        Args:
            obs: [B, ...] observations.
            state: [B, ...] recurrent state, None if there is none.
            uniforms: [B, n_uniforms] float64 in [0, 1): all the randomness there is.
            env_ids: [B] global ids of the envs (a vector of epsilons hangs on them).
            step: Environment steps taken so far by all envs together (schedules hang on it).
            explore: False in evaluation.
        """

    def state_dict(self) -> dict[str, Any]:
        """Weights and whatever else acting needs: tensors in plain dicts."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave; strict."""

    def weights(self) -> Mapping[str, Tensor]:
        """The tensors that acting reads, themselves and not copies, under fixed names.

        A sampler may set their ``data`` to memory that it shares with its workers.
        """

    def to(self, device: str) -> None:
        """Move the weights to ``device``."""


class ReplayLog(Protocol):
    """A replay that is saved by appending what is new to files."""

    def save(self, folder: Path) -> Any:
        """Bring what is new since the last call to the disk; gives a plain tree that names the files.

        Raises:
            SnapshotError: The file system refuses; what was saved before stays whole.
        """

    def load(self, folder: Path, state: Any) -> None:
        """Take over what `save` gave, into an empty replay.

        Raises:
            SnapshotError: A file is missing or damaged, or the layout is another.
        """

    def prune(self, folder: Path, states: Sequence[Any]) -> None:
        """Delete the files that none of ``states`` needs."""


class Algo(Protocol):
    """Learns from samples. Owns optimizer, target networks and replay."""

    metrics: ClassVar[tuple[str, ...]]
    """Names of the numbers that `update` may return; each becomes five columns of progress.csv."""
    n_updates: int
    """Gradient steps so far."""
    n_consumed: int
    """Samples that went into gradient steps so far; over the env steps this is the replay ratio."""

    def update(self, samples: Samples, *, step: int) -> Mapping[str, Sequence[float]]:
        """Learn from one batch, after ``step`` environment steps; gives one number per gradient step and metric."""

    def scalars(self, step: int) -> Mapping[str, float]:
        """Single numbers for progress.csv (learning rate, epsilon); always the same keys."""

    def state_dict(self) -> dict[str, Any]:
        """Target networks, counters: tensors and numbers in plain dicts; not the optimizer, not the agent."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave; strict."""

    def optimizer_state_dict(self) -> dict[str, Any]:
        """The optimizer's state."""

    def load_optimizer_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over an optimizer's state; the learning rate stays the configured one."""

    def progress(self) -> dict[str, Any]:
        """What going on exactly needs beside `state_dict`, optimizer and replay: counters, what is owed; plain."""

    def load_progress(self, state: Mapping[str, Any], step: int) -> None:
        """Go on with what `progress` gave, after ``step`` env steps; the replay has been loaded, or is empty."""

    @property
    def replay(self) -> ReplayLog | None:
        """The replay as a checkpoint sees it, None if there is none."""

    def close(self) -> None:
        """Free what the algorithm holds outside memory; safe to call twice."""


class Sampler(Protocol):
    """Gathers experience with the agent it was built with."""

    def collect(self, step: int) -> Collected:
        """One batch, beginning after ``step`` environment steps."""

    def evaluate(self, step: int) -> Evaluation:
        """Play whole games on the evaluation envs; leaves training untouched."""

    def state(self) -> list[Any]:
        """[B] plain trees, by global env id, with which a sampler of any mode and worker count goes on exactly.

        Between two batches.

        Raises:
            InexactError: An environment, or this sampler, cannot be saved exactly.
        """

    def load_state(self, states: Sequence[Any]) -> None:
        """Go on where `state` was taken; before the first batch."""

    def boundary(self) -> Tree:
        """[B, ...] numpy observations after the last whole batch that was handed over."""

    def cut(self, seed: int, boundary: Tree = None) -> None:
        """Let all environments begin new episodes; the next batch begins with a cut (see `Samples`).

        So a sampler in another process, given the same two, goes on as this one does.

        Args:
            seed: Run seed of the environments' and of exploration's streams from here on.
            boundary: What the cut follows; None: the last batch handed over.
        """

    def publish(self) -> None:
        """Make the learner's newest weights the ones that act."""

    def close(self) -> None:
        """End workers and free memory; bounded in time, safe to call twice."""
