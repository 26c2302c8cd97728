"""The training loop: the only one, for every sampler and algorithm."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlcli.core.clock import Every
from rlcli.core.protocols import Agent, Algo, Sampler
from rlcli.record.run_record import RunRecord
from rlcli.record.snapshot import snapshot_state


@dataclass(frozen=True)
class RunnerOptions:
    """Budget and cadence, all in env steps: agent decisions summed over the environments, filler rows not counted."""

    n_steps: int
    log_interval_steps: int
    eval_interval_steps: int
    """0: no evaluation."""


class Runner:
    """Collects, learns, and records, until the budget is spent.

    Args:
        sampler: Gathers experience with the agent.
        agent: Whose weights the algorithm trains.
        algo: Learns.
        record: Takes rows, lines and snapshots.
        options: Budget and cadence.
    """

    def __init__(self, sampler: Sampler, agent: Agent, algo: Algo, record: RunRecord, options: RunnerOptions) -> None:
        self._sampler, self._agent, self._algo = sampler, agent, algo
        self._record, self._options = record, options
        self.step = 0
        self.itr = 0
        self._n_rows = 0

    def run(self) -> None:
        """Train to the budget; a run that evaluates does so before the first step, when due, and at the end."""
        options = self._options
        log_due, eval_due = Every(options.log_interval_steps), Every(options.eval_interval_steps)
        if options.eval_interval_steps:
            self._evaluate()
            self._write_row()
        while self.step < options.n_steps:
            self._iterate()
            final = self.step >= options.n_steps
            logs, evaluates = log_due(self.step), eval_due(self.step)
            if evaluates or (final and options.eval_interval_steps):
                self._evaluate()
            if logs or evaluates or final:
                self._n_rows += 1
                self._write_row()
                self._record.save(self.itr, self._n_rows, final, self.state)

    def state(self) -> dict[str, Any]:
        """The content of a snapshot taken now."""
        return snapshot_state(
            itr=self.itr,
            cum_steps=self.step,
            agent_state_dict=self._agent.state_dict(),
            optimizer_state_dict=self._algo.optimizer_state_dict(),
            algo_state_dict=self._algo.state_dict(),
            config=self._record.config,
        )

    def _iterate(self) -> None:
        begin = time.perf_counter()
        got = self._sampler.collect(self.step)
        collected = time.perf_counter()
        self.step += got.n_steps
        self.itr += 1
        metrics = self._algo.update(got.samples, step=self.step)
        self._sampler.publish()
        sampling_s, learning_s = collected - begin, time.perf_counter() - collected
        self._record.stats.add(got)
        self._record.stats.add_metrics(metrics)
        self._record.stats.add_time(sampling_s, learning_s)
        self._record.console.progress(
            step=self.step,
            n_steps=self._options.n_steps,
            itr=self.itr,
            n_updates=self._algo.n_updates,
            sampling_s=sampling_s,
            learning_s=learning_s,
        )

    def _evaluate(self) -> None:
        begin = time.perf_counter()
        evaluation = self._sampler.evaluate(self.step)
        self._record.stats.add_evaluation(evaluation, time.perf_counter() - begin)

    def _write_row(self) -> None:
        scalars: Mapping[str, float] = self._algo.scalars(self.step)
        row = self._record.stats.row(
            itr=self.itr,
            step=self.step,
            n_updates=self._algo.n_updates,
            n_consumed=self._algo.n_consumed,
            scalars=scalars,
        )
        self._record.write_row(row, self._options.n_steps)
