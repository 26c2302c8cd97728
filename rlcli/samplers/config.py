"""Configs of the samplers: who steps the environments, and who chooses the actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlcli.core.options import option

if TYPE_CHECKING:
    from rlcli.core.protocols import Sampler
    from rlcli.samplers.setup import SamplerSetup

INNER = ("serial", "cpu", "gpu", "alternating")
"""Samplers that the async one can run in its own process."""


@dataclass
class BatchOptions:
    """What every sampler's config begins with: the shape of a batch, and how environments start and end."""

    has_workers: ClassVar[bool] = False
    """Whether processes beside this one are started."""
    off_policy_only: ClassVar[bool] = False
    """Whether batches may come from older weights than the newest."""

    batch_T: int = option(
        5, "Rows of a batch: steps of each environment between two updates.", ge=1, at_resume="warned"
    )
    batch_B: int = option(16, "Environments.", ge=1, at_resume="locked")
    max_decorrelation_steps: int = option(
        100,
        "Each environment first takes 1 to this many random actions, so that they do not run in step (rlpyt's default "
        "is 100). These steps count toward the first episode's statistics but not toward the budget; 0: none.",
        ge=0,
    )
    reset: str = option(
        "mid_batch",
        "mid_batch: an ended environment resets at once, in one filler row. between_batches: it idles to the end of "
        "the batch and resets while the learner works, for slow resets; an end in the very last row takes the next "
        "batch's first row as its filler.",
        choices=("mid_batch", "between_batches"),
        at_resume="warned",
    )


@dataclass
class WorkerOptions(BatchOptions):
    """What the configs of samplers with worker processes share."""

    has_workers: ClassVar[bool] = True

    n_workers: int | None = option(
        None,
        "Worker processes; null: one per CPU that this process may use, at most one per environment. Where "
        "env.backend=ale needs no workers: its threads.",
        ge=1,
    )
    pin_workers: bool = option(
        True, "Pin each worker to one CPU, in turn over those this process may use; skipped where the system has none."
    )
    start_method: str = option(
        "spawn",
        "How worker processes begin. spawn: anew. forkserver: copies of a clean process, quick for many workers. fork: "
        "copies of this process, quickest, but not beside CUDA and not safe beside other threads.",
        choices=("spawn", "forkserver", "fork"),
    )
    timeout_s: float = option(
        600.0,
        "Seconds without a sign of life (a step, a reset) from a worker that is waited for, after which it counts as "
        "failed; 0: wait for ever.",
        ge=0,
    )
    on_worker_failure: str = option(
        "stop",
        "stop: the run ends. restart: the worker is started again, its environments begin new episodes, what they did "
        "in the batch is dropped.",
        choices=("stop", "restart"),
    )
    max_restarts: int = option(3, "Restarts of one worker within an hour, after which the run ends.", ge=1)


@dataclass
class SerialConfig(BatchOptions):
    """Everything in one process."""

    def build(self, setup: SamplerSetup) -> Sampler:
        """The sampler, with its environments made."""
        from rlcli.samplers.serial import SerialSampler

        return SerialSampler(self, setup)


@dataclass
class CpuConfig(WorkerOptions):
    """Worker processes that step environments and choose actions on the CPU, each for its slice of the batch."""

    def build(self, setup: SamplerSetup) -> Sampler:
        """The sampler, with its workers started and their environments made."""
        from rlcli.samplers.cpu import CpuSampler

        return CpuSampler(self, setup)


@dataclass
class GpuConfig(WorkerOptions):
    """Worker processes that step environments; this process chooses all actions in one forward on `device`."""

    def build(self, setup: SamplerSetup) -> Sampler:
        """The sampler, with its workers started and their environments made."""
        from rlcli.samplers.gpu import CentralSampler

        return CentralSampler(self, setup, n_groups=1)


@dataclass
class AlternatingConfig(WorkerOptions):
    """As gpu, in two halves: actions for one are chosen while the other steps."""

    overlap: bool = option(True, "False: each half waits for the other, for comparison.")

    def problems(self) -> list[str]:
        """Two halves need two environments."""
        return two_halves_problems(self.batch_B)

    def build(self, setup: SamplerSetup) -> Sampler:
        """The sampler, with its workers started and their environments made."""
        from rlcli.samplers.gpu import CentralSampler

        return CentralSampler(self, setup, n_groups=2, overlap=self.overlap)


@dataclass
class AsyncConfig(WorkerOptions):
    """Another sampler in a process of its own, which samples while the learner learns; off-policy algorithms only.

    The inner sampler has the options that it would have by itself.
    """

    off_policy_only: ClassVar[bool] = True

    inner: str = option("cpu", "The sampler that runs in the process.", choices=INNER)
    overlap: bool = option(True, "For inner=alternating: False makes each half wait for the other.")

    def problems(self) -> list[str]:
        """What the inner sampler asks for."""
        return two_halves_problems(self.batch_B) if self.inner == "alternating" else []

    def build(self, setup: SamplerSetup) -> Sampler:
        """The sampler, with its process started and its environments made."""
        from rlcli.samplers.async_ import AsyncSampler

        return AsyncSampler(self, setup)


def two_halves_problems(batch_B: int) -> list[str]:
    """Why so many environments make no two halves, empty if they do."""
    return [] if batch_B >= 2 else [f"batch_B: {batch_B} is not allowed, alternating halves need >= 2"]
