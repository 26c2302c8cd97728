"""The training loop: the only one, for every sampler and algorithm."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlcli.core.clock import Every
from rlcli.core.protocols import Agent, Algo, Sampler
from rlcli.core.stop import StopSignals
from rlcli.record.run_record import RunRecord
from rlcli.record.snapshot import snapshot_state

COLLECT_GRACE_S = 5.0
"""How long a batch may go on being collected after a signal; an evaluation is given up at once."""


@dataclass(frozen=True)
class RunnerOptions:
    """Budget and cadence, all in env steps: agent decisions summed over the environments, filler rows not counted."""

    n_steps: int
    log_interval_steps: int
    eval_interval_steps: int
    """0: no evaluation."""


class Runner:
    """Collects, learns, and records, until the budget is spent or a signal asks for an end.

    Args:
        agent: Whose weights the algorithm trains.
        algo: Learns.
        record: Takes rows, lines and snapshots.
        options: Budget and cadence.
        signals: Tells when to stop; None: nothing does.
    """

    def __init__(
        self, agent: Agent, algo: Algo, record: RunRecord, options: RunnerOptions, signals: StopSignals | None = None
    ) -> None:
        self._agent, self._algo = agent, algo
        self._record, self._options = record, options
        self._signals = signals or StopSignals()
        self.step = 0
        self.itr = 0
        self._n_rows = 0
        self._row_itr: int | None = None
        self._doing = "at start-up"

    def run(self, sampler: Sampler) -> None:
        """Train to the budget; a run that evaluates does so before the first step, when due, and at the end.

        Args:
            sampler: Gathers experience with the agent.

        Raises:
            KeyboardInterrupt: SIGINT came; unless a second one did, the last row and the final snapshot are written.
            Stopped: The same for SIGTERM.
            Exception: Whatever ended the run. Each has a note that says in which iteration and at which step.
        """
        try:
            with self._signals.deferred(self._record.console.say):
                self._train(sampler)
                if self._signals.requested is not None:
                    self._end_early()
            self._signals.raise_if_requested()
        except BaseException as error:
            error.add_note(f"{self._doing}, step {self.step:,}")
            raise

    def save(self) -> None:
        """Write the snapshots that are due at the end of a run."""
        with self._signals.protected():
            self._record.snapshots.save(self.itr, self.state, final=True)

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

    def _train(self, sampler: Sampler) -> None:
        options = self._options
        log_due, eval_due = Every(options.log_interval_steps), Every(options.eval_interval_steps)
        if options.eval_interval_steps and self._evaluate(sampler):
            self._write_row()
        while self.step < options.n_steps and self._iterate(sampler):
            final = self.step >= options.n_steps
            logs, evaluates = log_due(self.step), eval_due(self.step)
            if evaluates or (final and options.eval_interval_steps):
                self._evaluate(sampler)
            if logs or evaluates or final:
                self._record_row(final)

    def _iterate(self, sampler: Sampler) -> bool:
        """One batch, and learning from it; False if a signal came before the batch was there."""
        begin = time.perf_counter()
        self._doing = f"in iteration {self.itr + 1:,}, sampling"
        got = self._signals.unless_stopped(COLLECT_GRACE_S, lambda: sampler.collect(self.step))
        if got is None:
            return False
        collected = time.perf_counter()
        self.step += got.n_steps
        self.itr += 1
        self._doing = f"in iteration {self.itr:,}, learning"
        metrics = self._algo.update(got.samples, step=self.step)
        sampler.publish()
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
        return True

    def _evaluate(self, sampler: Sampler) -> bool:
        """Evaluate; False if a signal came before it was done."""
        begin = time.perf_counter()
        self._doing = f"after iteration {self.itr:,}, evaluating"
        evaluation = self._signals.unless_stopped(0.0, lambda: sampler.evaluate(self.step))
        if evaluation is None:
            return False
        self._record.stats.add_evaluation(evaluation, time.perf_counter() - begin)
        return True

    def _end_early(self) -> None:
        self._doing = f"after iteration {self.itr:,}"
        if self._row_itr == self.itr:
            self.save()
        else:
            self._record_row(final=True)

    def _record_row(self, final: bool) -> None:
        """Write a row and the snapshots that are due with it."""
        self._doing = f"after iteration {self.itr:,}"
        with self._signals.protected():
            self._n_rows += 1
            self._write_row()
            self._record.save(self.itr, self._n_rows, final, self.state)

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
        self._row_itr = self.itr
