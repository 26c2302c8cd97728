"""The weights that act, in memory that several processes share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcli.core.errors import RlcliError
from rlcli.core.protocols import Agent
from rlcli.samplers.shared import SharedTree

_LOCK_S = 60.0
"""The lock is held for microseconds; who cannot get it in this time waits for a process that has been stopped."""


class SharedWeights:
    """One copy of an agent's weights that every process reads: what the learner changes acts at once.

    Pickled to a child process at its start, it is the same memory there.

    Args:
        agent: Fixes names, shapes and dtypes.
        say: Takes a line about the memory.
    """

    def __init__(self, agent: Agent, say: Callable[[str], None]) -> None:
        self._memory = SharedTree({name: _bytes_for(weight) for name, weight in agent.weights().items()}, say=say)

    @torch.no_grad()
    def host(self, agent: Agent) -> None:
        """Move the agent's weights into this memory: values are copied, and the agent keeps them here from now on."""
        for name, weight in agent.weights().items():
            place = _tensor(self._memory.tree[name], weight)
            place.copy_(weight)
            weight.data = place

    def adopt(self, agent: Agent) -> None:
        """Let an agent use the weights that lie here, in place of its own."""
        for name, weight in agent.weights().items():
            weight.data = _tensor(self._memory.tree[name], weight)

    def close(self) -> None:
        """Let go of the memory; agents that use it keep it alive."""
        self._memory.close()


class WeightMailbox:
    """Passes the newest weights from one process to another, which never sees them half-written.

    Three slots: the newest, the one being read, and one to write to. The lock guards only which is which, so neither
    side waits for the other's copying.

    Args:
        agent: Fixes names, shapes and dtypes.
        lock: Has ``acquire(timeout)`` and ``release()``; both processes use it.
        say: Takes a line about the memory.
    """

    N_SLOTS = 3

    def __init__(self, agent: Agent, lock: Any, say: Callable[[str], None]) -> None:
        slots = [{name: _bytes_for(weight) for name, weight in agent.weights().items()} for _ in range(self.N_SLOTS)]
        state = {
            "newest": np.zeros(1, np.int64),
            "reading": np.full(1, -1),
            "version": np.zeros(self.N_SLOTS, np.int64),
        }
        self._memory = SharedTree({"state": state, **{f"slot{i}": slot for i, slot in enumerate(slots)}}, say=say)
        self._memory.tree["state"]["reading"][0] = -1
        self._lock = lock
        self._version = 0

    def put(self, agent: Agent) -> int:
        """Make the agent's weights the newest; gives their version, which counts from 1."""
        state = self._state
        with _Held(self._lock):
            busy = {int(state["newest"][0]), int(state["reading"][0])}
        slot = min(set(range(self.N_SLOTS)) - busy)  # only this process makes a slot the newest: it stays free
        self._copy(agent, slot, into_slot=True)
        self._version += 1
        with _Held(self._lock):
            state["version"][slot] = self._version
            state["newest"][0] = slot
        return self._version

    def take(self, agent: Agent) -> int:
        """Copy the newest weights into the agent; gives their version."""
        state = self._state
        with _Held(self._lock):
            slot = int(state["newest"][0])
            state["reading"][0] = slot
            version = int(state["version"][slot])
        self._copy(agent, slot, into_slot=False)
        with _Held(self._lock):
            state["reading"][0] = -1
        return version

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.close()

    @property
    def _state(self) -> Any:
        return self._memory.tree["state"]

    @torch.no_grad()
    def _copy(self, agent: Agent, slot: int, *, into_slot: bool) -> None:
        memory = self._memory.tree[f"slot{slot}"]
        for name, weight in agent.weights().items():
            place = _tensor(memory[name], weight)
            if into_slot:
                place.copy_(weight)
            else:
                weight.copy_(place)


class _Held:
    """The lock, for as long as it takes; never waited for without end."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=_LOCK_S):
            raise RlcliError("the lock of the weights is held by a process that has been stopped")

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _bytes_for(weight: Tensor) -> np.ndarray[Any, Any]:
    """Room for a tensor, as bytes: numpy lacks some of torch's dtypes."""
    return np.empty(weight.numel() * weight.element_size(), np.uint8)


def _tensor(memory: np.ndarray[Any, Any], like: Tensor) -> Tensor:
    if not memory.size:
        return torch.empty(like.shape, dtype=like.dtype)
    flat = torch.from_numpy(memory).view(like.dtype)
    # laid out as it was: the optimizer's moments are, and convolutions with channels last are faster
    return flat.as_strided(like.shape, like.stride()) if _is_dense(like) else flat.view(like.shape)


def _is_dense(weight: Tensor) -> bool:
    """Whether the elements fill a piece of memory, in whatever order of the axes."""
    expected = 1
    for stride, size in sorted(zip(weight.stride(), weight.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True
