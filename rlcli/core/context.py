"""What a component is given when it is built from its config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlcli.core.spec import EnvSpec


@dataclass(frozen=True)
class BuildContext:
    """Everything about the run that an agent or algorithm may need to know, and nothing else."""

    spec: EnvSpec
    """The environment's spaces and example observation."""
    seed: int
    """Run seed; derive streams from it with rlcli.core.rng."""
    n_steps: int
    """Budget of the run, env steps (schedules may run to it)."""
    n_envs: int
    """B: training environments, with global ids 0 .. B - 1."""
    device: str
    """Where learning runs: cpu, cuda or cuda:N."""
    model: Any
    """Config of the model; ``build(observation_space)`` gives a module with ``n_features``."""
    epsilon: Any = None
    """Config of the epsilon schedule, None if the algorithm has none."""
    replay: Any = None
    """Config of the replay, None if the algorithm has none."""
