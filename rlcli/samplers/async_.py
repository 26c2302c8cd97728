"""The async sampler: another sampler in a process of its own, which samples while the learner learns.

Two buffers in shared memory lie between them. The learner holds one while it learns from it, the sampler fills the
other and waits when both are full: it runs at most two batches ahead (a full one, and one in hand). The learner takes
as many gradient steps per batch as its replay ratio says, so it can neither fall behind nor exceed it.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

from rlcli.core.errors import InexactError, WorkerError
from rlcli.core.pickling import pickled
from rlcli.core.pulse import Pulse
from rlcli.core.samples import Collected, Evaluation
from rlcli.core.tree import Tree, as_numpy, index, map_tree, write
from rlcli.samplers.batch import batch_shapes, copy_samples, share_like, shared_samples
from rlcli.samplers.config import AlternatingConfig, AsyncConfig, BatchOptions, CpuConfig, GpuConfig, SerialConfig
from rlcli.samplers.crew import Crew, CrewPolicy
from rlcli.samplers.setup import SamplerSetup
from rlcli.samplers.shared import ProcessLock, SharedTree
from rlcli.samplers.weights import WeightMailbox
from rlcli.samplers.worker import Channel, Job, Request
from rlcli.samplers.workers import sendable

_INNER: dict[str, type[Any]] = {
    "serial": SerialConfig,
    "cpu": CpuConfig,
    "gpu": GpuConfig,
    "alternating": AlternatingConfig,
}
_ACT_ON_DEVICE = ("gpu", "alternating")
_CLOSE_S = 8.0
"""More than the inner sampler takes to close."""
_N_BUFFERS = 2
_NAME = "sampler process"


@dataclass(frozen=True)
class Filled:
    """Sampler to learner: a buffer is full."""

    buffer: int
    collected: Collected
    """Without the samples, which lie in the buffer."""
    version: int
    """Of the weights that acted."""


class AsyncSampler:
    """The learner's end.

    Args:
        config: The inner sampler and its options.
        setup: The run's environments, agent and seed.

    Raises:
        WorkerError: from any method, if the sampler's process or a worker of the inner sampler failed, and is not to be
            started again, or has been too often.
    """

    def __init__(self, config: AsyncConfig, setup: SamplerSetup) -> None:
        self._agent = setup.agent
        like = batch_shapes(setup.spec, setup.agent, config.batch_T, config.batch_B)
        memories = [share_like(like, setup.say) for _ in range(_N_BUFFERS)]
        self._memories = memories
        self._buffers = [shared_samples(memory) for memory in memories]
        self._lock = ProcessLock()
        self._mailbox = WeightMailbox(setup.agent, self._lock, setup.say)
        self._version = self._mailbox.put(setup.agent)
        self._ready: deque[Filled] = deque()
        self._free = list(range(_N_BUFFERS))
        self._last: int | None = None
        """The buffer filled last."""
        self._step = 0
        self._boundary: Tree = None
        self._owed: deque[Request] = deque()
        """Requests without an answer yet, in their order."""
        acting = copy.deepcopy(setup.agent)
        acting.to("cpu")
        parts = SamplerParts(inner_config(config), sendable(setup, acting), config.inner in _ACT_ON_DEVICE)
        setup.say(f"sampling in a process of its own ({config.start_method}), inner sampler: {config.inner}")
        self._crew = Crew(
            serve_sampler,
            [
                Job(
                    rank=0,
                    env_ids=tuple(range(config.batch_B)),
                    parts=pickled("the run's setup", parts),
                    shared=(memories, self._mailbox),
                    imports=setup.imports,
                )
            ],
            CrewPolicy(
                config.start_method,
                config.timeout_s,
                config.on_worker_failure,
                config.max_restarts,
                name=_NAME,
                close_s=_CLOSE_S,
            ),
            say=setup.say,
            pulse=setup.pulse,
        )

    def collect(self, step: int) -> Collected:
        """The next batch, as soon as there is one; the one before may be overwritten from now on."""
        self._step = step
        for buffer in self._free:
            self._post(Request("fill", (buffer,)))
        self._free.clear()
        while not self._ready:
            self._note(self._answer("fill a batch"))
        filled = self._ready.popleft()
        self._free.append(filled.buffer)
        lag = self._version - filled.version
        self._boundary = map_tree(np.copy, index(as_numpy(self._buffers[filled.buffer].obs), -1))
        return replace(filled.collected, samples=self._buffers[filled.buffer], policy_lag=lag)

    def evaluate(self, step: int) -> Evaluation:
        """Play whole games between two batches, with the newest weights."""
        self._post(Request("evaluate", (step,)))
        while isinstance(answer := self._answer("evaluate"), Filled):
            self._note(answer)
        evaluation: Evaluation = answer
        return evaluation

    def state(self) -> list[Any]:
        """See `Sampler`."""
        raise InexactError("sampler=async: which weights act hangs on timing")

    def load_state(self, states: Sequence[Any]) -> None:
        """See `Sampler`."""
        raise InexactError("sampler=async: its environments begin new episodes")

    def boundary(self) -> Tree:
        """See `Sampler`."""
        return self._boundary

    def cut(self, seed: int, boundary: Tree = None) -> None:
        """See `Sampler`; without ``boundary`` nothing: it could not be done at the same place again."""
        if boundary is not None:
            self._boundary = boundary
            self._post(Request("cut", (seed, boundary)))
            self._answer("begin new episodes")

    def _post(self, request: Request) -> None:
        self._owed.append(request)
        self._send(request)

    def _send(self, request: Request) -> None:
        if request.verb == "fill":  # where a process that begins takes up: after which batch, at which step
            request = Request("fill", (*request.args, self._last, self._step))
        self._crew.post(0, request)

    def _answer(self, what: str) -> Any:
        """The next answer; a process that is started again is asked anew for all that it owed."""
        while isinstance(answer := self._crew.gather([0], what)[0], WorkerError):
            if answer.name != _NAME:  # a worker of the inner sampler, which has been lost too often
                raise answer
            self._crew.restart(0, answer)
            for request in self._owed:
                self._send(request)
        self._owed.popleft()
        return answer

    def _note(self, filled: Filled) -> None:
        self._ready.append(filled)
        self._last = filled.buffer

    def publish(self) -> None:
        """Put the learner's weights into the mailbox."""
        self._version = self._mailbox.put(self._agent)

    def close(self) -> None:
        """End the process and its workers."""
        self._crew.close()
        self._mailbox.close()
        self._lock.close()
        for memory in self._memories:
            memory.close()


def inner_config(config: AsyncConfig) -> Any:
    """The config of the inner sampler: its options are among the async one's."""
    cls: type[BatchOptions] = _INNER[config.inner]
    return cls(**{field.name: getattr(config, field.name) for field in fields(cls)})


@dataclass(frozen=True)
class SamplerParts:
    """What the process makes its sampler from."""

    config: Any
    setup: SamplerSetup
    acts_on_device: bool


def serve_sampler(
    parts: SamplerParts,
    shared: tuple[list[SharedTree], WeightMailbox],
    channel: Channel,
    pulse: Pulse,
    incarnation: int,
) -> None:
    """Runs in the process: fills buffers as they come free, evaluates in between when asked."""
    torch.set_num_threads(1)
    memories, mailbox = shared
    buffers = [shared_samples(memory) for memory in memories]
    setup = replace(parts.setup, pulse=pulse, say=channel.say, incarnation=incarnation)
    if parts.acts_on_device:
        setup.agent.to(setup.device)
    else:
        setup = replace(setup, device="cpu")
    sampler = parts.config.build(setup)
    try:
        channel.answer()
        step: int | None = None
        while (request := channel.receive()).verb != "close":
            version = mailbox.take(setup.agent)
            sampler.publish()
            if request.verb != "fill":
                channel.answer(getattr(sampler, request.verb)(*request.args))
                continue
            buffer, last, learner_step = request.args
            begins = step is None
            step = learner_step if step is None else step  # from then on it counts by itself: it is ahead
            collected = sampler.collect(step)
            step += collected.n_steps
            copy_samples(buffers[buffer], collected.samples)
            if begins and last is not None:  # the process was lost: row 0 is a cut after the last batch that came
                write(index(buffers[buffer].obs, 0), ..., index(buffers[last].obs, -1))
            channel.answer(Filled(buffer, replace(collected, samples=None), version))
    finally:
        sampler.close()
