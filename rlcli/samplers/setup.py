"""What every sampler is built from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlcli.core.pulse import Pulse
from rlcli.core.spec import EnvSpec

if TYPE_CHECKING:
    from rlcli.core.protocols import Agent  # loads torch, which workers that only step environments do without


_WORKER_INCARNATIONS = 1 << 16
"""More than a worker has in the life of one process."""


@dataclass(frozen=True)
class SamplerSetup:
    """The run's side of a sampler: what to step, with whom, from which seed."""

    env: Any
    """Config of the training environments; ``build()`` gives one."""
    eval_env: Any
    """Config of the evaluation environments."""
    spec: EnvSpec
    agent: Agent
    seed: int
    discount: float
    """For the discounted return in the statistics."""
    eval_n_envs: int
    """0: no evaluation."""
    eval_n_episodes: int
    eval_max_steps: int
    device: str = "cpu"
    """Where the learner's weights lie; the gpu and alternating samplers act there."""
    imports: tuple[str, ...] = ()
    """Modules to import in each process that makes environments."""
    say: Callable[[str], None] = print
    """Takes lines for the user."""
    pulse: Pulse = field(default_factory=Pulse)
    """Where this process shows that it is alive."""
    incarnation: int = 0
    """How often this process, if it is an async sampler's, was lost and started again."""

    def incarnation_of(self, worker: int = 0) -> int:
        """Incarnation of environments whose worker was started again ``worker`` times within this process."""
        return self.incarnation * _WORKER_INCARNATIONS + worker
