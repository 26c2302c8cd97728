"""The training loop: the only one, for every sampler and algorithm."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rlcli.core import global_rng
from rlcli.core.clock import Every
from rlcli.core.errors import EnvError, InexactError, SnapshotError, WorkerError
from rlcli.core.protocols import Agent, Algo, Sampler
from rlcli.core.rng import cut_seed
from rlcli.core.samples import Evaluation
from rlcli.core.stop import StopSignals
from rlcli.record.hashes import weights_hash
from rlcli.record.run_record import RunRecord
from rlcli.record.snapshot import snapshot_state

COLLECT_GRACE_S = 5.0
"""How long a batch may go on being collected after a signal; an evaluation is given up at once."""


@dataclass(frozen=True)
class RunnerOptions:
    """Budget and cadence; steps are env steps: agent decisions summed over the environments, fillers not counted."""

    n_steps: int
    log_interval_steps: int
    eval_interval_steps: int
    """0: no evaluation."""
    checkpoint_interval_steps: int = 0
    """0: none but at the end, and none at all where the record keeps none."""
    seed: int = 0
    """Run seed."""
    exact_envs: bool = True
    """Whether checkpoints hold the environments; else all begin new episodes at each."""
    max_time_s: float | None = None
    """Seconds after which the run asks itself to stop."""
    max_time: str = ""
    """The same as the user wrote it."""


@dataclass(frozen=True)
class _Due:
    """What the clocks ask for after an iteration."""

    row: bool = False
    evaluation: bool = False


class Runner:
    """Collects, learns, and records, until the budget is spent or a signal asks for an end.

    Args:
        agent: Whose weights the algorithm trains.
        algo: Learns.
        record: Takes rows, lines, snapshots and checkpoints.
        options: Budget and cadence.
        signals: Tells when to stop; None: nothing does.
    """

    def __init__(
        self, agent: Agent, algo: Algo, record: RunRecord, options: RunnerOptions, signals: StopSignals | None = None
    ) -> None:
        self._agent, self._algo = agent, algo
        self._record, self._options = record, options
        self._signals = signals or StopSignals()
        self._begin = time.monotonic()
        self.step = 0
        self.itr = 0
        self._n_rows = 0
        self._row_itr: int | None = None
        self._due = _Due()
        self._checkpoint_step: int | None = None
        self._between_batches = True
        """Whether the sampler stands where a batch ends; not so once one was given up."""
        self._sampler_state: Mapping[str, Any] | None = None
        self._doing = "at start-up"

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; weights, optimizer, replay and statistics have been loaded."""
        self.step, self.itr, self._n_rows = state["step"], state["itr"], state["n_rows"]
        self._row_itr, self._checkpoint_step = state["row_itr"], self.step
        self._due = _Due(*state["due"])
        self._sampler_state = state["sampler"]
        self._record.snapshots.best_score = state["best_score"]
        self._algo.load_progress(state["progress"], self.step)
        global_rng.load_state(state["global_rng"])

    def run(self, sampler: Sampler) -> None:
        """Train to the budget; a run that evaluates does so before the first step, when due, and at the end.

        Args:
            sampler: Gathers experience with the agent.

        Raises:
            KeyboardInterrupt: SIGINT came; unless a second one did, the last row, snapshot and checkpoint are written.
            Stopped: The same for SIGTERM, SIGUSR1 and the time limit.
            Exception: Whatever ended the run. Each has a note that says in which iteration and at which step.
        """
        try:
            with self._signals.deferred(self._record.console.say):
                self._go_on(sampler)
                self._train(sampler)
                self._end(sampler)
            self._signals.raise_if_requested()
        except BaseException as error:
            error.add_note(f"{self._doing}, step {self.step:,}")
            if isinstance(error, EnvError | WorkerError):  # found while sampling: what was learned is whole
                self._between_batches = False
                with suppress(SnapshotError):  # the error that ends the run is the one to tell
                    self._checkpoint(sampler)
            raise

    def save(self) -> None:
        """Write the snapshots and the checkpoint that are due where a run ends before it has a sampler."""
        with self._signals.protected():
            self._record.snapshots.save(self.itr, self.state, final=True)
            self._write_checkpoint(self._sampler_state)

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

    def _go_on(self, sampler: Sampler) -> None:
        """Put the sampler where the checkpoint left off, if the run goes on from one."""
        state = self._sampler_state
        if state is None:
            self._checkpoint(sampler)
            return
        self._doing = "going on from a checkpoint"
        try:
            if state["envs"] is not None:
                sampler.load_state(state["envs"])
                return
        except InexactError as error:
            self._record.console.say(f"all environments begin new episodes: {error}")
        sampler.cut(state["cut_seed"], state["boundary"])

    def _train(self, sampler: Sampler) -> None:
        options = self._options
        log_due, eval_due = Every(options.log_interval_steps), Every(options.eval_interval_steps)
        checkpoint_due = Every(options.checkpoint_interval_steps)
        for due in (log_due, eval_due, checkpoint_due):
            due(self.step)
        if not self.itr and options.eval_interval_steps and self._evaluate(sampler):
            self._write_row()
        self._report(sampler)
        while self.step < options.n_steps and self._signals.requested is None and self._iterate(sampler):
            self._due = _Due(log_due(self.step), eval_due(self.step))
            self._report(sampler)
            if checkpoint_due(self.step):
                self._checkpoint(sampler)
            self._look_at_clock()

    def _report(self, sampler: Sampler) -> None:
        """Evaluate and write the row that are due.

        Not so where a signal cuts the evaluation short, or where the budget's end asks for one that is not due: the row
        stays due then for a run that goes on from here, and this one closes with a row of its own.
        """
        due, final = self._due, self.step >= self._options.n_steps
        if due.evaluation:
            if not self._evaluate(sampler):
                return
        elif final and self._options.eval_interval_steps:
            return
        if due.row or due.evaluation:
            self._record_row(final)
        self._due = _Due()

    def _iterate(self, sampler: Sampler) -> bool:
        """One batch, and learning from it; False if a signal came before the batch was there."""
        begin = time.perf_counter()
        self._doing = f"in iteration {self.itr + 1:,}, sampling"
        got = self._signals.unless_stopped(COLLECT_GRACE_S, lambda: sampler.collect(self.step))
        if got is None:
            self._between_batches = False
            return False
        collected = time.perf_counter()
        self.step += got.n_steps
        self.itr += 1
        self._doing = f"in iteration {self.itr:,}, learning"
        metrics = self._algo.update(got.samples, step=self.step)
        sampler.publish()
        sampling_s, learning_s = collected - begin, time.perf_counter() - collected
        self._record.hashes.add(self.itr, self.step, got.samples, self._agent.weights())
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
        evaluation: Evaluation | None = self._signals.unless_stopped(0.0, lambda: sampler.evaluate(self.step))
        if evaluation is None:
            return False
        self._record.stats.add_evaluation(evaluation, time.perf_counter() - begin)
        with self._signals.protected():
            self._record.save_best(self.itr, evaluation, self.state)
        return True

    def _look_at_clock(self) -> None:
        limit_s = self._options.max_time_s
        if limit_s is not None and time.monotonic() - self._begin >= limit_s:
            self._signals.ask(f"max_time={self._options.max_time}")

    def _end(self, sampler: Sampler) -> None:
        """The checkpoint first: the row that closes this run is none of the rows of one that goes on from it."""
        self._checkpoint(sampler)
        self._doing = f"after iteration {self.itr:,}"
        if self._row_itr == self.itr:
            with self._signals.protected():
                self._record.snapshots.save(self.itr, self.state, final=True)
            return
        if self._signals.requested is None and self._options.eval_interval_steps:
            self._evaluate(sampler)
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
            weights_hash=weights_hash(self._agent.weights()),
        )
        self._record.write_row(row, self._options.n_steps)
        self._row_itr = self.itr

    def _checkpoint(self, sampler: Sampler) -> None:
        """Write a checkpoint, unless the newest is of this very step."""
        if self._record.checkpoints is None or self._checkpoint_step == self.step:
            return
        self._doing = f"after iteration {self.itr:,}, writing a checkpoint"
        with self._signals.protected():
            self._write_checkpoint(self._state_of(sampler))

    def _state_of(self, sampler: Sampler) -> Mapping[str, Any] | None:
        """Where the sampler stands; where that cannot be saved, all environments begin new episodes after it."""
        if not self.itr:
            return None  # a run that goes on from here begins as this one did
        # what a cut needs is always there: the run may go on with a sampler that cannot take over environments
        seed = cut_seed(self._options.seed, self.step)
        boundary = sampler.boundary()
        envs = None
        if self._between_batches and self._options.exact_envs:
            try:
                envs = sampler.state()
            except InexactError as error:
                self._record.console.say(f"checkpoint: all environments begin new episodes: {error}")
        if self._between_batches and envs is None:
            sampler.cut(seed)
        return {"envs": envs, "cut_seed": seed, "boundary": boundary}

    def _write_checkpoint(self, sampler_state: Mapping[str, Any] | None) -> None:
        if self._record.checkpoints is None:
            return
        state = {
            "step": self.step,
            "itr": self.itr,
            "n_rows": self._n_rows,
            "row_itr": self._row_itr,
            "due": (self._due.row, self._due.evaluation),
            "config": self._record.config,
            "agent": self._agent.state_dict(),
            "algo": self._algo.state_dict(),
            "optimizer": self._algo.optimizer_state_dict(),
            "progress": self._algo.progress(),
            "stats": self._record.stats.state(),
            "best_score": self._record.snapshots.best_score,
            "global_rng": global_rng.state(),
            "sampler": sampler_state,
        }
        self._record.checkpoint(self.step, state)
        self._checkpoint_step = self.step
