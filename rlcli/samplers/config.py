"""Configs of the samplers: who steps the environments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlcli.core.options import option

if TYPE_CHECKING:
    from rlcli.core.protocols import Sampler
    from rlcli.samplers.setup import SamplerSetup

_BATCH_T = "Rows of a batch: steps of each environment between two updates."
_BATCH_B = "Environments."
_DECORRELATE = (
    "Each environment first takes 1 to this many random actions, so that they do not run in step (rlpyt's default is "
    "100). These steps count toward the first episode's statistics but not toward the budget; 0: none."
)
_RESET = (
    "mid_batch: an ended environment resets at once, in one filler row. between_batches: it idles to the end of the "
    "batch and resets while the learner works, for slow resets; an end in the very last row takes the next batch's "
    "first row as its filler."
)


@dataclass
class SerialConfig:
    """Everything in one process."""

    has_workers: ClassVar[bool] = False

    batch_T: int = option(5, _BATCH_T, ge=1)
    batch_B: int = option(16, _BATCH_B, ge=1)
    max_decorrelation_steps: int = option(100, _DECORRELATE, ge=0)
    reset: str = option("mid_batch", _RESET, choices=("mid_batch", "between_batches"))

    def build(self, setup: SamplerSetup) -> Sampler:
        """The sampler, with its environments made."""
        from rlcli.samplers.serial import SerialSampler

        return SerialSampler(self, setup)


@dataclass
class CpuConfig:
    """Worker processes that step environments and choose actions on the CPU, each for its slice of the batch."""

    has_workers: ClassVar[bool] = True

    batch_T: int = option(5, _BATCH_T, ge=1)
    batch_B: int = option(16, _BATCH_B, ge=1)
    n_workers: int | None = option(
        None, "Worker processes; null: one per CPU that this process may use, at most one per environment.", ge=1
    )
    max_decorrelation_steps: int = option(100, _DECORRELATE, ge=0)
    reset: str = option("mid_batch", _RESET, choices=("mid_batch", "between_batches"))
    pin_workers: bool = option(
        True, "Pin each worker to one CPU, in turn over those this process may use; skipped where the system has none."
    )
    timeout_s: float = option(
        600.0, "Seconds without an answer from a worker after which the run stops; 0: wait for ever.", ge=0
    )

    def build(self, setup: SamplerSetup) -> Sampler:
        """The sampler, with its workers started and their environments made."""
        from rlcli.samplers.cpu import CpuSampler

        return CpuSampler(self, setup)
