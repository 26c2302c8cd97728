"""What every sampler is built from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlcli.core.protocols import Agent
from rlcli.core.spec import EnvSpec


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
    learns_on_cpu: bool = True
    """Whether the learner's weights lie in CPU memory, so that workers may share them."""
    imports: tuple[str, ...] = ()
    """Modules to import in each process that makes environments."""
    say: Callable[[str], None] = print
    """Takes lines for the user."""
