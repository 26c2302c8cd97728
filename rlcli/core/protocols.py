"""The seams of the program: what each part may expect of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

    def close(self) -> None:
        """Free what the algorithm holds outside memory; safe to call twice."""


class Sampler(Protocol):
    """Gathers experience with the agent it was built with."""

    def collect(self, step: int) -> Collected:
        """One batch, beginning after ``step`` environment steps."""

    def evaluate(self, step: int) -> Evaluation:
        """Play whole games on the evaluation envs; leaves training untouched."""

    def publish(self) -> None:
        """Make the learner's newest weights the ones that act."""

    def close(self) -> None:
        """End workers and free memory; bounded in time, safe to call twice."""
