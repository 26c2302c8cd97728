"""The gpu and alternating samplers: environments step in workers or threads, this process chooses all actions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Protocol

from rlcli.core.machine import cpu_budget
from rlcli.core.protocols import VectorEnv
from rlcli.core.rng import Purpose
from rlcli.core.samples import Collected, Evaluation, Samples
from rlcli.core.tree import Tree
from rlcli.envs.build import build_vector_env, has_native_vector
from rlcli.samplers.batch import allocate, batch_slice, split
from rlcli.samplers.boundary import Boundary
from rlcli.samplers.collector import Collector, collector_options, join
from rlcli.samplers.config import WorkerOptions
from rlcli.samplers.env_worker import EnvParts, Group, serve_envs, step_memory
from rlcli.samplers.evaluation import Evaluator, build_evaluator, evaluation_env, n_evaluation_envs
from rlcli.samplers.setup import SamplerSetup
from rlcli.samplers.shared import SharedTree
from rlcli.samplers.worker_env import WorkerVectorEnv
from rlcli.samplers.workers import n_workers, start_crew


class Stepper(Protocol):
    """Environments that step somewhere else than in this thread, in groups."""

    def env(self, name: str) -> VectorEnv:
        """The environments of a group."""

    def close(self) -> None:
        """End what steps them."""


class CentralSampler:
    """Collectors over groups of environments that step elsewhere; all actions are chosen here, a group at a time.

    One group makes the gpu sampler: one forward for all B. Two make the alternating one, whose samples are the same:
    what an environment does and how it explores hangs on its global id.

    Args:
        config: Batch shape, workers, reset mode.
        setup: The run's environments, agent and seed; the agent acts on ``setup.device``.
        n_groups: Groups, of about the same size.
        overlap: Whether actions for one group are chosen while the others step.

    Raises:
        WorkerError: from any method, if a worker raised, died, was killed or did not answer in time, and is not to be
            started again, or has been too often.
    """

    def __init__(self, config: WorkerOptions, setup: SamplerSetup, n_groups: int, overlap: bool = True) -> None:
        self._setup, self._n_rows, self._overlap = setup, config.batch_T, overlap
        self._samples = _batch(config, setup)
        self._boundary = Boundary(self._samples)
        self._evaluator: Evaluator | None = None
        groups = split(config.batch_B, n_groups)
        self._stepper = _stepper(config, setup, groups)
        try:
            self._collectors = [
                Collector(
                    self._stepper.env(f"envs{i}"),
                    setup.agent,
                    batch_slice(self._samples, ids.start, ids.stop),
                    collector_options(config, setup),
                )
                for i, ids in enumerate(groups)
            ]
            for collector in self._collectors:
                collector.start()
        except BaseException:
            self.close()
            raise

    def collect(self, step: int) -> Collected:
        """One batch, beginning after ``step`` environment steps."""
        for group in self._collectors:
            group.reset_idle()
            group.begin(step)
        if self._overlap:
            self._in_turn()
        else:
            self._one_after_the_other()
        parts = [group.finish() for group in self._collectors]
        self._boundary.note()
        return join(self._samples, parts)

    def boundary(self) -> Tree:
        """See `Sampler`."""
        return self._boundary.obs

    def state(self) -> list[Any]:
        """See `Sampler`."""
        parts = {
            env_id: state
            for group in self._collectors
            for env_id, state in zip(group.env_ids, group.state(), strict=True)
        }
        return [parts[env_id] for env_id in sorted(parts)]

    def load_state(self, states: Sequence[Any]) -> None:
        """See `Sampler`."""
        for group in self._collectors:
            group.load_state([states[i] for i in group.env_ids])

    def cut(self, seed: int, boundary: Tree = None) -> None:
        """See `Sampler`."""
        self._boundary.put(boundary)
        for group in self._collectors:
            group.cut(seed)

    def evaluate(self, step: int) -> Evaluation:
        """Play whole games; the environments are made on the first call."""
        self._evaluator = self._evaluator or build_evaluator(self._setup, self._stepper.env("eval"))
        return self._evaluator.evaluate(step)

    def publish(self) -> None:
        """Nothing to do: acting and learning share the weights."""

    def close(self) -> None:
        """End the workers."""
        self._stepper.close()

    def _in_turn(self) -> None:
        for t in range(self._n_rows):
            for group in self._collectors:
                if t:
                    group.receive(t - 1)
                group.act(t)
        for group in self._collectors:
            group.receive(self._n_rows - 1)

    def _one_after_the_other(self) -> None:
        for t in range(self._n_rows):
            for group in self._collectors:
                group.act(t)
                group.receive(t)


class _Workers:
    """Groups of environments in worker processes; every worker holds a part of each."""

    def __init__(self, config: WorkerOptions, setup: SamplerSetup, groups: Sequence[Sequence[int]]) -> None:
        n = n_workers(config)
        eval_ids = range(n_evaluation_envs(setup))
        self._groups = {
            f"envs{i}": Group(setup.env, Purpose.ENV, _spread(ids, n, first=i), at_once=True)
            for i, ids in enumerate(groups)
        }
        self._groups["eval"] = Group(setup.eval_env, Purpose.EVAL_ENV, _spread(eval_ids, n), at_once=False)
        self._spec = setup.spec
        self._memory = {
            name: SharedTree(step_memory(setup.spec, sum(map(len, group.slices))), say=setup.say)
            for name, group in self._groups.items()
        }
        training = [group for name, group in self._groups.items() if name != "eval"]
        self._crew = start_crew(
            serve_envs,
            config,
            setup,
            parts=EnvParts(self._groups, setup.spec, setup.seed, setup.incarnation_of()),
            shared=self._memory,
            env_ids=[[i for group in training for i in group.slices[rank]] for rank in range(n)],
        )

    def env(self, name: str) -> VectorEnv:
        """See `Stepper`."""
        return WorkerVectorEnv(self._crew, name, self._groups[name], self._memory[name], self._spec)

    def close(self) -> None:
        """See `Stepper`."""
        self._crew.close()
        for memory in self._memory.values():
            memory.close()


class _Threads:
    """Groups of environments that native code steps in threads of this process."""

    def __init__(self, config: WorkerOptions, setup: SamplerSetup, groups: Sequence[Sequence[int]]) -> None:
        self._setup, self._n_threads = setup, min(config.n_workers or cpu_budget(), config.batch_B)
        self._ids = {f"envs{i}": ids for i, ids in enumerate(groups)}
        self._made: list[VectorEnv] = []
        setup.say(f"no worker processes: the environments step in {self._n_threads} threads of native code")

    def env(self, name: str) -> VectorEnv:
        """See `Stepper`."""
        setup = self._setup
        if name == "eval":
            env = evaluation_env(setup, range(n_evaluation_envs(setup)), self._n_threads)
        else:
            env = build_vector_env(
                setup.env,
                self._ids[name],
                setup.seed,
                spec=setup.spec,
                n_threads=self._n_threads,
                pulse=setup.pulse,
                incarnation=setup.incarnation_of(),
            )
        self._made.append(env)
        return env

    def close(self) -> None:
        """See `Stepper`."""
        while self._made:
            self._made.pop().close()


def _stepper(config: WorkerOptions, setup: SamplerSetup, groups: Sequence[Sequence[int]]) -> Stepper:
    if setup.device == "cpu":
        setup.say("actions are chosen on the CPU, for all environments at once (device=cpu)")
    return (_Threads if has_native_vector(setup.env) else _Workers)(config, setup, groups)


def _batch(config: WorkerOptions, setup: SamplerSetup) -> Samples:
    """Memory for a batch; page-locked where observations go to a GPU from it."""
    return allocate(setup.spec, setup.agent, config.batch_T, config.batch_B, pinned=setup.device != "cpu")


def _spread(ids: Sequence[int], n: int, first: int = 0) -> list[list[int]]:
    """Contiguous ids for each of n workers; of a second group the larger shares go to the last workers."""
    sizes = [len(part) for part in split(len(ids), n)]
    ends = list(itertools.accumulate(sizes[::-1] if first % 2 else sizes, initial=0))
    return [list(ids[a:b]) for a, b in itertools.pairwise(ends)]
