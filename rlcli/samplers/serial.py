"""The serial sampler: environments and agent in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlcli.core.machine import cpu_budget
from rlcli.core.samples import Collected, Evaluation
from rlcli.core.tree import Tree
from rlcli.envs.build import build_vector_env
from rlcli.samplers.batch import allocate
from rlcli.samplers.boundary import Boundary
from rlcli.samplers.collector import Collector, collector_options, join
from rlcli.samplers.config import SerialConfig
from rlcli.samplers.evaluation import Evaluator, build_evaluator, evaluation_env, n_evaluation_envs
from rlcli.samplers.setup import SamplerSetup


class SerialSampler:
    """One collector over in-process environments.

    Args:
        config: Batch shape and reset mode.
        setup: The run's environments, agent and seed.
    """

    def __init__(self, config: SerialConfig, setup: SamplerSetup) -> None:
        self._setup = setup
        self._samples = allocate(setup.spec, setup.agent, config.batch_T, config.batch_B)
        self._boundary = Boundary(self._samples)
        self._env = build_vector_env(
            setup.env,
            range(config.batch_B),
            setup.seed,
            spec=setup.spec,
            n_threads=cpu_budget(),
            pulse=setup.pulse,
            incarnation=setup.incarnation_of(),
        )
        options = collector_options(config, setup)
        self._collector = Collector(self._env, setup.agent, self._samples, options)
        self._collector.start()
        self._evaluator: Evaluator | None = None

    def collect(self, step: int) -> Collected:
        """One batch, beginning after ``step`` environment steps."""
        self._collector.reset_idle()
        gathered = self._collector.collect(step)
        self._boundary.note()
        return join(self._samples, [gathered])

    def boundary(self) -> Tree:
        """See `Sampler`."""
        return self._boundary.obs

    def state(self) -> list[Any]:
        """See `Sampler`."""
        return self._collector.state()

    def load_state(self, states: Sequence[Any]) -> None:
        """See `Sampler`."""
        self._collector.load_state(states)

    def cut(self, seed: int, boundary: Tree = None) -> None:
        """See `Sampler`."""
        self._boundary.put(boundary)
        self._collector.cut(seed)

    def evaluate(self, step: int) -> Evaluation:
        """Play whole games; the environments are made on the first call."""
        if self._evaluator is None:
            setup, n_envs = self._setup, n_evaluation_envs(self._setup)
            self._evaluator = build_evaluator(setup, evaluation_env(setup, range(n_envs), cpu_budget()))
        return self._evaluator.evaluate(step)

    def publish(self) -> None:
        """Nothing to do: acting and learning share the weights."""

    def close(self) -> None:
        """Close the environments."""
        self._env.close()
        if self._evaluator is not None:
            self._evaluator.close()
