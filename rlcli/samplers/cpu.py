"""The cpu sampler: worker processes that step environments and choose the actions, each for its slice of B."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from rlcli.core.errors import InexactError, WorkerError
from rlcli.core.pulse import Pulse
from rlcli.core.samples import Collected, Evaluation, Samples
from rlcli.core.tree import Tree, as_numpy, index, write
from rlcli.envs.build import build_vector_env
from rlcli.samplers.batch import batch_shapes, batch_slice, share_like, shared_samples, split
from rlcli.samplers.boundary import Boundary
from rlcli.samplers.collector import Collector, CollectorOptions, Gathered, collector_options, join
from rlcli.samplers.config import CpuConfig
from rlcli.samplers.evaluation import Evaluator, build_evaluator, evaluation_env, merge, n_evaluation_envs
from rlcli.samplers.setup import SamplerSetup
from rlcli.samplers.shared import SharedTree
from rlcli.samplers.weights import SharedWeights
from rlcli.samplers.worker import Channel, Request, state_or_reason
from rlcli.samplers.workers import n_workers, sendable, start_crew


class CpuSampler:
    """W workers, each with a collector over its contiguous slice of the environments.

    The workers read the learner's weights in shared memory; they idle while it changes them.

    Args:
        config: Batch shape, workers, reset mode.
        setup: The run's environments, agent and seed.

    Raises:
        WorkerError: from any method, if a worker raised, died, was killed or did not answer in time, and is not to be
            started again, or has been too often.
    """

    def __init__(self, config: CpuConfig, setup: SamplerSetup) -> None:
        n = n_workers(config)
        self._learner = setup.agent
        self._restarts = config.on_worker_failure == "restart"
        self._memory = share_like(batch_shapes(setup.spec, setup.agent, config.batch_T, config.batch_B), setup.say)
        self._samples = shared_samples(self._memory)
        self._boundary = Boundary(self._samples)
        # A learner elsewhere keeps its weights; acting then happens on a copy of them.
        self._agent: Any = setup.agent if setup.device == "cpu" else copy.deepcopy(setup.agent)
        self._agent.to("cpu")
        self._weights = SharedWeights(self._agent, setup.say)
        self._weights.host(self._agent)
        self._slices = split(config.batch_B, n)
        eval_slices = split(n_evaluation_envs(setup), n)
        self._evaluating = [rank for rank, ids in enumerate(eval_slices) if len(ids)]
        options = collector_options(config, setup)
        self._crew = start_crew(
            serve_collector,
            config,
            setup,
            parts=CollectorParts(sendable(setup, self._agent), options, self._slices, eval_slices),
            shared=(self._memory, self._weights),
            env_ids=self._slices,
        )

    def collect(self, step: int) -> Collected:
        """One batch, beginning after ``step`` environment steps."""
        if self._restarts:  # row 0 of a slice that is lost must follow the last row of the batch before
            write(index(as_numpy(self._samples.obs), 0), ..., self._boundary.obs)
        parts: list[Gathered] = []
        for rank, answer in self._crew.ask(range(len(self._slices)), Request("collect", (step,))).items():
            if isinstance(answer, WorkerError):
                self._crew.restart(rank, answer)
                _lose(batch_slice(self._samples, self._slices[rank].start, self._slices[rank].stop))
            else:
                parts.append(answer)
        self._boundary.note()
        return join(self._samples, parts)

    def boundary(self) -> Tree:
        """See `Sampler`."""
        return self._boundary.obs

    def state(self) -> list[Any]:
        """See `Sampler`."""
        answers = self._crew.ask(range(len(self._slices)), Request("state"))
        for rank, answer in answers.items():
            if isinstance(answer, WorkerError):
                self._crew.restart(rank, answer)
                raise InexactError(str(answer))
            if isinstance(answer, InexactError):
                raise answer
        return [state for rank in sorted(answers) for state in answers[rank]]

    def load_state(self, states: Sequence[Any]) -> None:
        """See `Sampler`."""
        self._tell_all(lambda ids: Request("load_state", (list(states[ids.start : ids.stop]),)))

    def cut(self, seed: int, boundary: Tree = None) -> None:
        """See `Sampler`."""
        self._boundary.put(boundary)
        self._tell_all(lambda ids: Request("cut", (seed,)))

    def evaluate(self, step: int) -> Evaluation:
        """Play whole games in the workers; their environments are made on the first call."""
        answers: dict[int, Evaluation] = {}
        while missing := [rank for rank in self._evaluating if rank not in answers]:
            for rank, answer in self._crew.ask(missing, Request("evaluate", (step,))).items():
                if isinstance(answer, WorkerError):
                    self._crew.restart(rank, answer)
                else:
                    answers[rank] = answer
        return merge([answers[rank] for rank in self._evaluating])

    def _tell_all(self, request: Callable[[range], Request]) -> None:
        """Have all workers do what the request for their slice says; one that is lost meanwhile does it anew."""
        missing = list(range(len(self._slices)))
        while missing:
            for rank in missing:
                self._crew.post(rank, request(self._slices[rank]))
            answers = self._crew.gather(missing, request(self._slices[0]).verb)
            missing = [rank for rank, answer in answers.items() if isinstance(answer, WorkerError)]
            for rank in missing:
                self._crew.restart(rank, answers[rank])

    def publish(self) -> None:
        """Copy the learner's weights to the workers' where they are not the same memory."""
        if self._agent is not self._learner:
            self._agent.load_state_dict(self._learner.state_dict())

    def close(self) -> None:
        """End the workers."""
        self._crew.close()
        self._weights.close()
        self._memory.close()


def _lose(samples: Samples) -> None:
    """Turn a lost worker's slice into filler rows, the first of them a cut."""
    for leaf in (samples.reward, samples.terminated, samples.truncated, samples.valid):
        leaf.zero_()
    samples.truncated[0] = True
    write(samples.obs, slice(1, None), 0)


@dataclass(frozen=True)
class CollectorParts:
    """What a worker of the cpu sampler makes its collector from."""

    setup: SamplerSetup
    options: CollectorOptions
    slices: list[range]
    eval_slices: list[range]


def serve_collector(
    parts: CollectorParts,
    shared: tuple[int, tuple[SharedTree, SharedWeights]],
    channel: Channel,
    pulse: Pulse,
    incarnation: int,
) -> None:
    """Runs in a worker: collects and evaluates when asked."""
    torch.set_num_threads(1)
    rank, (memory, weights) = shared
    setup = replace(parts.setup, pulse=pulse, say=channel.say)
    weights.adopt(setup.agent)
    ids, incarnation = parts.slices[rank], setup.incarnation_of(incarnation)
    env = build_vector_env(setup.env, ids, setup.seed, spec=setup.spec, pulse=pulse, incarnation=incarnation)
    samples = batch_slice(shared_samples(memory), ids.start, ids.stop)
    collector = Collector(env, setup.agent, samples, replace(parts.options, incarnation=incarnation))
    evaluator: Evaluator | None = None
    try:
        collector.start()
        channel.answer()
        while (request := channel.receive()).verb != "close":
            if request.verb == "collect":
                channel.answer(collector.collect(*request.args))
                collector.reset_idle()  # while the learner works
            elif request.verb == "state":
                channel.answer(state_or_reason(collector.state))
            elif request.verb == "load_state":
                collector.load_state(*request.args)
                collector.reset_idle()  # a sampler of another kind does that later
                channel.answer()
            elif request.verb == "cut":
                collector.cut(*request.args)
                channel.answer()
            else:
                evaluator = evaluator or build_evaluator(setup, evaluation_env(setup, parts.eval_slices[rank]))
                channel.answer(evaluator.evaluate(*request.args))
    finally:
        env.close()
        if evaluator is not None:
            evaluator.close()
