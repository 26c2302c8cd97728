"""Environments in worker processes that only step: the parent's side, a `VectorEnv`. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcli.core.errors import InexactError, WorkerError
from rlcli.core.spec import EnvSpec, Step
from rlcli.core.tree import Tree, index, write
from rlcli.samplers.crew import Crew
from rlcli.samplers.env_worker import STEP_ARRAYS, Group
from rlcli.samplers.shared import SharedTree
from rlcli.samplers.worker import Request


class WorkerVectorEnv:
    """One group of environments, spread over the workers of a crew that may hold other groups too.

    Where a lost worker is started again, its environments show a cut and begin new episodes.

    Args:
        crew: The workers; closed by whoever made it.
        name: The group's.
        group: Its environments.
        memory: Made from `env_worker.step_memory`.
        spec: The environments'.
    """

    def __init__(self, crew: Crew, name: str, group: Group, memory: SharedTree, spec: EnvSpec) -> None:
        self.spec = spec
        self.env_ids = tuple(i for ids in group.slices for i in ids)
        self._crew, self._name, self._memory = crew, name, memory.tree
        ends = np.cumsum([0, *map(len, group.slices)]).tolist()
        self._slices = {rank: slice(ends[rank], ends[rank + 1]) for rank, ids in enumerate(group.slices) if len(ids)}
        self._known: dict[int, int] = {}
        """Incarnation of each worker when its environments of this group last answered."""
        self._asked: list[int] = []
        self._step_request = Request("step", (name,))
        # apart from the memory, which the workers write to as soon as the next step is sent
        self._out = Step(**{field: np.empty(len(self.env_ids), dtype) for field, dtype in STEP_ARRAYS.items()})

    def reset(self, obs_out: Tree, seed: int | None = None) -> None:
        """See `VectorEnv`."""
        self._ask(list(self._slices), "reset", seed)
        write(obs_out, ..., self._memory["obs"])

    def send(self, action: Tree, autoreset: bool | npt.NDArray[np.bool_] = True) -> None:
        """See `VectorEnv`."""
        write(self._memory["action"], ..., action)
        self._memory["autoreset"][:] = autoreset
        self._asked = [rank for rank in self._slices if not self._is_new(rank)]
        for rank in self._asked:
            self._crew.post(rank, self._step_request, self._name)

    def recv(self, obs_out: Tree) -> Step:
        """See `VectorEnv`.

        Raises:
            WorkerError: A worker failed and is not to be started again.
        """
        # the other group's wait may have found a worker dead, and started it again, that was asked here
        asked = [rank for rank in self._asked if not self._is_new(rank)]
        for rank, answer in self._crew.gather(asked, "step", self._name).items():
            if isinstance(answer, WorkerError):
                self._crew.restart(rank, answer)
        lost = [rank for rank in self._slices if self._is_new(rank)]
        if lost:
            self._ask(lost, "reset", None)
            for rank in lost:
                self._cut(self._slices[rank])
        write(obs_out, ..., self._memory["obs"])
        for field in STEP_ARRAYS:
            getattr(self._out, field)[:] = self._memory[field]
        return self._out

    def reset_idle(self, obs_out: Tree) -> None:
        """See `VectorEnv`."""
        known = [rank for rank in self._slices if not self._is_new(rank)]
        for rank, part in self._slices.items():
            if rank in known:  # idle envs' rows of obs_out are theirs; the others' stay as they are
                write(index(self._memory["obs"], part), ..., index(obs_out, part))
        for rank, answer in self._crew.ask(known, Request("reset_idle", (self._name,)), self._name).items():
            if isinstance(answer, WorkerError):
                self._crew.restart(rank, answer)
            else:
                write(index(obs_out, self._slices[rank]), ..., index(self._memory["obs"], self._slices[rank]))

    def decorrelate(self, obs_out: Tree, max_steps: int, seed: int) -> npt.NDArray[np.int64]:
        """See `VectorEnv`."""
        taken = np.zeros(len(self.env_ids), np.int64)
        for rank, steps in self._ask(list(self._slices), "decorrelate", max_steps, seed).items():
            taken[self._slices[rank]] = 0 if steps is None else steps  # None: lost meanwhile, and reset
        write(obs_out, ..., self._memory["obs"])
        return taken

    def state(self) -> list[Any]:
        """See `VectorEnv`.

        Raises:
            InexactError: An environment cannot be saved, or its worker was lost.
        """
        if any(self._is_new(rank) for rank in self._slices):
            raise InexactError("a worker was lost and started again")
        states: list[Any] = [None] * len(self.env_ids)
        for rank, answer in self._crew.ask(list(self._slices), Request("state", (self._name,)), self._name).items():
            if isinstance(answer, WorkerError):
                self._crew.restart(rank, answer)
                raise InexactError(str(answer))
            if isinstance(answer, InexactError):
                raise answer
            states[self._slices[rank]] = answer
        return states

    def renew(self) -> None:
        """See `VectorEnv`; those of a worker that is lost meanwhile are new in any case."""
        self._ask(list(self._slices), "renew")

    def load_state(self, states: Sequence[Any]) -> None:
        """See `VectorEnv`."""
        for rank, part in self._slices.items():
            request = Request("load_state", (self._name, list(states[part])))
            answer = self._crew.ask([rank], request, self._name)[rank]
            if isinstance(answer, WorkerError):
                raise answer  # just started, and already lost: nothing that a restart would mend

    def close(self) -> None:
        """Nothing: the crew is closed by whoever made it."""

    def _is_new(self, rank: int) -> bool:
        """Whether the worker was started again since this group's environments in it last answered."""
        return self._crew.incarnations[rank] != self._known.get(rank, 0)

    def _ask(self, ranks: list[int], verb: str, *args: Any) -> dict[int, Any]:
        """What all answer; a worker that is lost meanwhile begins with a reset, whatever was asked."""
        given: dict[int, Any] = {}
        while ranks:
            answers = self._crew.ask(ranks, Request(verb, (self._name, *args)), self._name)
            ranks, verb, args = [], "reset", (None,)
            for rank, answer in answers.items():
                if isinstance(answer, WorkerError):
                    self._crew.restart(rank, answer)
                    ranks.append(rank)
                else:
                    self._known[rank] = self._crew.incarnations[rank]
                    given[rank] = answer
        return given

    def _cut(self, part: slice) -> None:
        for field in STEP_ARRAYS:
            self._memory[field][part] = field == "truncated"
