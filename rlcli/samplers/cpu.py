"""The cpu sampler: worker processes that step environments and choose the actions, each for its slice of B."""

from __future__ import annotations

import contextlib
import copy
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import Any

import psutil
import torch.multiprocessing as mp

from rlcli.core.errors import WorkerError
from rlcli.core.samples import Collected, Evaluation
from rlcli.samplers.batch import allocate, batch_slice, share_samples, split
from rlcli.samplers.collector import CollectorOptions, Gathered
from rlcli.samplers.config import CpuConfig
from rlcli.samplers.evaluation import merge, n_evaluation_envs
from rlcli.samplers.setup import SamplerSetup
from rlcli.samplers.worker import Answer, Failure, Request, WorkerTask, run_worker

_CLOSE_S = 3.0
"""Time for workers to leave by themselves; after it they are killed."""
_PROGRESS_S = 10.0
"""How often a long wait says what it waits for."""


class CpuSampler:
    """W workers, each with a collector over its contiguous slice of the environments.

    The workers read the learner's weights in shared memory; they idle while it changes them.

    Args:
        config: Batch shape, workers, reset mode.
        setup: The run's environments, agent and seed.

    Raises:
        WorkerError: from any method, if a worker raised, died, was killed or did not answer in time.
    """

    def __init__(self, config: CpuConfig, setup: SamplerSetup) -> None:
        cpus = usable_cpus()
        n_workers = min(config.n_workers or len(cpus), config.batch_B)
        self._timeout_s = config.timeout_s
        self._say = setup.say
        self._learner = setup.agent
        self._samples = share_samples(allocate(setup.spec, setup.agent, config.batch_T, config.batch_B))
        self._agent = _acting_agent(setup)
        self._slices = split(config.batch_B, n_workers)
        eval_slices = split(n_evaluation_envs(setup), n_workers)
        self._evaluating = [rank for rank, ids in enumerate(eval_slices) if len(ids)]
        options = CollectorOptions(
            setup.seed, config.batch_B, setup.discount, config.max_decorrelation_steps, config.reset
        )
        pins: list[int | None] = [None] * n_workers
        if config.pin_workers and can_pin():
            pins = [cpus[rank % len(cpus)] for rank in range(n_workers)]
        say = f"workers: {n_workers} for {config.batch_B} environments"
        setup.say(say + (f", pinned to CPUs {', '.join(map(str, pins))}" if pins[0] is not None else ", not pinned"))
        tasks = [
            WorkerTask(
                rank=rank,
                setup=replace(setup, agent=self._agent, say=print),
                env_ids=ids,
                eval_env_ids=eval_slices[rank],
                samples=batch_slice(self._samples, ids.start, ids.stop),
                options=options,
                cpu=pins[rank],
            )
            for rank, ids in enumerate(self._slices)
        ]
        self._processes: list[Any] = []
        self._connections: list[Connection] = []
        try:
            self._start(tasks)
        except BaseException:
            self.close()
            raise

    def collect(self, step: int) -> Collected:
        """One batch, beginning after ``step`` environment steps."""
        parts = [p for p in self._ask("collect", step, range(len(self._processes))) if isinstance(p, Gathered)]
        return Collected(
            samples=self._samples,
            n_steps=sum(p.n_steps for p in parts),
            episodes=sorted((e for p in parts for e in p.episodes), key=lambda e: (e.row, e.env_id)),
            games=sorted((g for p in parts for g in p.games), key=lambda g: (g.row, g.env_id)),
            longest_running=max(p.longest_running for p in parts),
        )

    def evaluate(self, step: int) -> Evaluation:
        """Play whole games in the workers; their environments are made on the first call."""
        answers = self._ask("evaluate", step, self._evaluating)
        return merge([a for a in answers if isinstance(a, Evaluation)])

    def publish(self) -> None:
        """Copy the learner's weights to the workers' where they are not the same memory."""
        if self._agent is not self._learner:
            self._agent.load_state_dict(self._learner.state_dict())

    def close(self) -> None:
        """End the workers: ask, wait, then kill. Safe to call twice."""
        for conn in self._connections:
            with contextlib.suppress(OSError):
                conn.send(Request("close"))
        deadline = time.monotonic() + _CLOSE_S
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        for conn in self._connections:
            conn.close()
        self._processes, self._connections = [], []

    def _start(self, tasks: list[WorkerTask]) -> None:
        context = mp.get_context("spawn")
        with _one_thread_in_children():
            for task in tasks:
                ours, theirs = context.Pipe()
                self._connections.append(ours)
                process = context.Process(
                    target=run_worker, args=(task, theirs), name=f"rlcli-worker-{task.rank}", daemon=True
                )
                process.start()
                self._processes.append(process)
                theirs.close()
        self._wait(range(len(tasks)), "start")

    def _ask(self, verb: str, step: int, ranks: range | list[int]) -> list[Answer]:
        for rank in ranks:
            # A worker that has died closed its end; waiting tells why.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._connections[rank].send(Request(verb, step))
        return self._wait(ranks, verb)

    def _wait(self, ranks: range | list[int], what: str) -> list[Answer]:
        """One answer from each of ``ranks``, in their order."""
        answers: dict[int, Answer] = {}
        begin = time.monotonic()
        said = begin
        while missing := [rank for rank in ranks if rank not in answers]:
            handles: list[Any] = [self._connections[r] for r in missing] + [
                self._processes[r].sentinel for r in missing
            ]
            connection.wait(handles, timeout=1.0)
            for rank in missing:
                if self._connections[rank].poll():
                    answers[rank] = self._receive(rank)
                elif not self._processes[rank].is_alive() and not self._connections[rank].poll():
                    raise self._error(rank, _cause_of_death(self._processes[rank].exitcode))
            now = time.monotonic()
            if self._timeout_s and now - begin > self._timeout_s:
                raise self._error(missing[0], f"no answer to {what!r} within {self._timeout_s:g} s (sampler.timeout_s)")
            if now - said > _PROGRESS_S:
                said = now
                self._say(f"waiting for workers {', '.join(map(str, missing))}: {what}, {now - begin:.0f} s")
        return [answers[rank] for rank in ranks]

    def _receive(self, rank: int) -> Answer:
        try:
            answer: Answer = self._connections[rank].recv()
        except (EOFError, ConnectionResetError):
            self._processes[rank].join(_CLOSE_S)
            raise self._error(rank, _cause_of_death(self._processes[rank].exitcode)) from None
        if isinstance(answer, Failure):
            raise self._error(rank, answer.reason, answer.remote_traceback)
        return answer

    def _error(self, rank: int, reason: str, remote_traceback: str = "") -> WorkerError:
        return WorkerError(rank, list(self._slices[rank]), reason, remote_traceback)


def usable_cpus() -> list[int]:
    """CPUs that this process may use: its affinity where the system has one, else all."""
    if can_pin():
        return list(psutil.Process().cpu_affinity() or [])
    return list(range(os.cpu_count() or 1))


def can_pin() -> bool:
    """Whether this system lets a process be pinned to CPUs (macOS does not)."""
    try:
        return bool(psutil.Process().cpu_affinity())
    except (AttributeError, OSError, psutil.Error):
        return False


def _acting_agent(setup: SamplerSetup) -> Any:
    """The learner's agent with its weights in shared memory, or a CPU copy of it if it learns on another device."""
    agent = setup.agent if setup.learns_on_cpu else copy.deepcopy(setup.agent)
    agent.to("cpu")
    agent.share_memory()
    return agent


def _cause_of_death(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        name = signal.Signals(-exit_code).name
        hint = " (often: out of memory)" if -exit_code == signal.SIGKILL else ""
        return f"died by signal {-exit_code}, {name}{hint}"
    return f"exited with code {exit_code}"


@contextlib.contextmanager
def _one_thread_in_children() -> Iterator[None]:
    """Numeric libraries read these variables when they are loaded: one thread each in the workers."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
