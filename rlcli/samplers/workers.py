"""Which workers a sampler starts: how many, on which CPUs, and what it says about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rlcli.core import machine
from rlcli.core.errors import id_range
from rlcli.core.pickling import pickled
from rlcli.core.pulse import Pulse
from rlcli.samplers.config import WorkerOptions
from rlcli.samplers.crew import Crew, CrewPolicy
from rlcli.samplers.setup import SamplerSetup
from rlcli.samplers.worker import Job, Serve


def n_workers(config: WorkerOptions) -> int:
    """Worker processes: as asked, or one per CPU; never more than environments."""
    return min(config.n_workers or machine.cpu_budget(), config.batch_B)


def start_crew(
    serve: Serve,
    config: WorkerOptions,
    setup: SamplerSetup,
    *,
    parts: Any,
    shared: Any,
    env_ids: Sequence[Sequence[int]],
) -> Crew:
    """Start one worker per entry of ``env_ids`` and wait until all are ready.

    Args:
        serve: See `worker.Serve`.
        config: The sampler's.
        setup: The run's side.
        parts: Crosses pickled; the same for all workers.
        shared: Handles of shared memory, the same for all; each worker is told its rank with it.
        env_ids: Global ids of the training environments of each worker.
    """
    n = len(env_ids)
    pins = _pins(config, n)
    sent = pickled("the run's setup", parts)
    jobs = [
        Job(rank, tuple(env_ids[rank]), sent, (rank, shared), setup.imports, pins[rank] if pins else None)
        for rank in range(n)
    ]
    where = ", pinned to CPUs " + ", ".join(map(str, pins)) if pins else ", not pinned"
    envs = "; ".join(id_range(ids) for ids in env_ids) if n <= 8 else f"{config.batch_B} in turn"
    setup.say(f"workers: {n} ({config.start_method}){where}, 1 thread each, envs {envs}")
    policy = CrewPolicy(config.start_method, config.timeout_s, config.on_worker_failure, config.max_restarts)
    return Crew(serve, jobs, policy, say=setup.say, pulse=setup.pulse)


def sendable(setup: SamplerSetup, agent: Any) -> SamplerSetup:
    """The setup as a worker gets it: with ``agent``, and without what belongs to this process."""
    return replace(setup, agent=agent, say=print, pulse=Pulse())


def _pins(config: WorkerOptions, n: int) -> list[int]:
    """A CPU for each worker, in turn over those this process may use; empty: not pinned."""
    if not config.pin_workers or not machine.can_pin():
        return []
    cpus = machine.usable_cpus()
    return [cpus[rank % len(cpus)] for rank in range(n)]
