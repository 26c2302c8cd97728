"""A crew of worker processes, watched: every wait ends in an answer, or in an error that says who failed and how."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import selectors
import signal
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from rlcli.core.errors import RlcliError, WorkerError, id_range
from rlcli.core.pulse import N_WORDS, Pulse
from rlcli.core.stop import children_begin_blocked
from rlcli.samplers.shared import SharedTree, need_open_files
from rlcli.samplers.worker import LOOK_S as _LOOK_S
from rlcli.samplers.worker import Failure, Job, Request, Said, Serve, run_worker

_QUIET_S = 10.0
"""After so long without a sign of life a wait says what it waits for, and again after as long."""
_START_S = 120.0
"""Least deadline for a process that is still loading Python and its modules, on a busy machine slowly."""
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 0.5, 30.0
_RESTART_WINDOW_S = 3600.0
_FILES_PER_WORKER = 4
"""The pipe, the signs of either end, and one to spare while a process starts."""


@dataclass(frozen=True)
class CrewPolicy:
    """How workers are started and what happens when one fails; see `samplers.config.WorkerOptions`."""

    start_method: str = "spawn"
    timeout_s: float = 600.0
    on_worker_failure: str = "stop"
    max_restarts: int = 3
    name: str = "worker"
    close_s: float = 3.0
    """Time for workers to leave by themselves; after it they are killed."""


class Crew:
    """Starts one process per job and talks to them.

    A worker answers its requests in their order. `gather` takes one answer from each of some workers; who shares a crew
    with others names itself in ``asker``, and gets the answers to its own requests only.

    Args:
        serve: Runs in each worker; a function of a module.
        jobs: One per worker, their ranks 0, 1, ...
        policy: See `CrewPolicy`.
        say: Takes lines for the user.
        pulse: The sign of life of this process, which lives while its workers do.

    Raises:
        WorkerError: A worker failed before it was ready; none is left then.
        RlcliError: The system does not allow as many open files.
    """

    def __init__(
        self,
        serve: Serve,
        jobs: Sequence[Job],
        policy: CrewPolicy,
        *,
        say: Callable[[str], None],
        pulse: Pulse | None = None,
    ) -> None:
        self._serve, self._jobs, self._policy, self._say = serve, list(jobs), policy, say
        self._own_pulse = Pulse() if pulse is None else pulse
        n = len(self._jobs)
        need_open_files(_FILES_PER_WORKER * n, f"sampler.n_workers: {n} workers")
        self._context: Any = multiprocessing.get_context(policy.start_method)
        if policy.start_method == "forkserver":  # what each worker would have to load, loaded once
            self._context.set_forkserver_preload(["__main__", serve.__module__])
        self._pulses = SharedTree(np.empty((n, N_WORDS), np.int64), say=say)
        self._watched = [Pulse(words) for words in self._pulses.tree]
        self._selector = selectors.DefaultSelector()
        self._processes: list[Any] = [None] * n
        self._connections: list[Connection | None] = [None] * n
        self._askers: list[deque[str]] = [deque() for _ in range(n)]
        """Who waits for the answers to come, in their order."""
        self._inbox: list[defaultdict[str, deque[Any]]] = [defaultdict(deque) for _ in range(n)]
        """Answers that have come, by who asked."""
        self._dead: dict[int, WorkerError] = {}
        self._final: set[int] = set()
        """Those of the dead that are not to be started again, whatever the policy."""
        self._restarts: list[deque[float]] = [deque() for _ in range(n)]
        self.incarnations = [0] * n
        """How often each worker has been started again."""
        atexit.register(self.close)
        try:
            for rank in range(n):
                self._launch(rank)
            for rank, outcome in self.gather(range(n), "start").items():
                if isinstance(outcome, WorkerError):
                    self.restart(rank, outcome)
        except BaseException:
            self.close()
            raise

    def post(self, rank: int, request: Request, asker: str = "") -> None:
        """Send a request. A worker that has died cannot take it: `gather` tells why."""
        connection = self._connections[rank]
        if connection is not None:
            self._askers[rank].append(asker)
            with contextlib.suppress(OSError):
                connection.send(request)

    def ask(self, ranks: Iterable[int], request: Request, asker: str = "") -> dict[int, Any]:
        """Send a request to some workers and `gather` their answers."""
        ranks = list(ranks)
        for rank in ranks:
            self.post(rank, request, asker)
        return self.gather(ranks, request.verb, asker)

    def gather(self, ranks: Iterable[int], what: str, asker: str = "") -> dict[int, Any]:
        """The next answer of each of ``ranks``.

        Args:
            ranks: Whom to wait for.
            what: What they were asked, for messages.
            asker: Who asked.

        Returns:
            rank -> answer, or, with on_worker_failure=restart, the WorkerError of a worker that was lost. What rlcli
            found wrong in a worker is no such loss: it would be found again.

        Raises:
            WorkerError: A worker raised, died, was killed or gave no sign of life in time.
        """
        answers: dict[int, Any] = {}
        missing = set(ranks)
        watch = _Watch(self._watched, missing)
        while True:
            for rank in sorted(missing):
                if self._inbox[rank][asker]:
                    answers[rank] = self._inbox[rank][asker].popleft()
                elif rank in self._dead:
                    answers[rank] = self._dead[rank]
                    if self._policy.on_worker_failure == "stop" or rank in self._final:
                        raise self._dead[rank]
            missing -= answers.keys()
            if not missing:
                return answers
            if not self._pump(_LOOK_S):
                self._judge(watch, missing, what)

    def restart(self, rank: int, error: WorkerError) -> None:
        """Start a lost worker again, after a pause, until it is ready.

        Raises:
            WorkerError: It has been lost too often.
        """
        while True:
            pause = self._allow_restart(rank, error)
            self._end(rank)
            self.incarnations[rank] += 1
            self._say(
                f"worker_restart: {error}; starting it again in {pause:g} s "
                f"({len(self._restarts[rank])} of {self._policy.max_restarts} within an hour)"
            )
            self._sleep(pause)
            self._launch(rank)
            outcome = self.gather([rank], "start")[rank]
            if not isinstance(outcome, WorkerError):
                return
            error = outcome

    def close(self) -> None:
        """End the workers: ask, wait, then kill. Safe to call twice.

        A signal may cut the waiting short, never the killing: a worker that is left would keep this process from
        ending, since multiprocessing waits for it at exit.
        """
        try:
            for rank in range(len(self._processes)):
                self.post(rank, Request("close"))
            deadline = time.monotonic() + self._policy.close_s
            for process in self._processes:
                if process is not None and process.pid is not None:
                    process.join(max(0.0, deadline - time.monotonic()))
        finally:
            for rank in range(len(self._processes)):
                self._end(rank)
            self._selector.close()
            self._watched = []
            self._pulses.close()
            atexit.unregister(self.close)  # last: until here a close that was cut short is done again at exit

    def _launch(self, rank: int) -> None:
        self._pulses.tree[rank] = (0, 0, -1)
        self._askers[rank].append("")  # that it is ready comes unasked
        ours, theirs = self._context.Pipe()
        maker = os.getpid() if threading.current_thread() is threading.main_thread() else 0
        args = (self._serve, self._jobs[rank], self.incarnations[rank], theirs, self._pulses, maker)
        # not daemonic: those may have no children, but the process of an async sampler has; `close` runs at exit
        process = self._context.Process(target=run_worker, args=args, name=f"rlcli-{self._policy.name}-{rank}")
        self._connections[rank], self._processes[rank] = ours, process
        try:
            with _one_thread_in_children(), children_begin_blocked():
                process.start()
        except OSError as error:  # no more processes, files or memory; for forkserver also a TMPDIR with a long path
            method = self._policy.start_method
            text = f"{self._policy.name} {rank} cannot be started (sampler.start_method={method}): {error}"
            raise RlcliError(text) from error
        theirs.close()
        self._selector.register(ours, selectors.EVENT_READ, rank)
        self._selector.register(process.sentinel, selectors.EVENT_READ, rank)

    def _pump(self, timeout_s: float) -> bool:
        """Wait for something to happen; gives whether anything did."""
        events = self._selector.select(timeout_s)
        for key, _ in events:
            rank = key.data
            if key.fileobj is self._connections[rank]:
                self._receive(rank)
            elif rank not in self._dead and key.fileobj == getattr(self._processes[rank], "sentinel", None):
                while rank not in self._dead and self._has_more(rank):
                    self._receive(rank)
                self._died(rank)
        return bool(events)

    def _has_more(self, rank: int) -> bool:
        connection = self._connections[rank]
        try:
            return connection is not None and connection.poll()
        except OSError:
            return False

    def _receive(self, rank: int) -> None:
        connection = self._connections[rank]
        assert connection is not None
        try:
            message = connection.recv()
        except (EOFError, OSError):
            self._died(rank)
            return
        if isinstance(message, Said):
            self._say(message.text)
        elif isinstance(message, Failure):
            if message.final:
                self._final.add(rank)
            self._lost(rank, message.inner or self._error(rank, message.reason, message.remote_traceback))
        else:
            self._inbox[rank][self._askers[rank].popleft()].append(message)

    def _died(self, rank: int) -> None:
        if rank not in self._dead:
            process = self._processes[rank]
            process.join(self._policy.close_s)
            doing = self._watched[rank].describe()
            self._lost(rank, self._error(rank, f"{_cause_of_death(process.exitcode)}, at {doing}"))

    def _lost(self, rank: int, error: WorkerError) -> None:
        """Note that a worker is lost, and listen to it no more."""
        self._dead[rank] = error
        listened: list[Any] = [self._connections[rank], self._processes[rank].sentinel]
        for thing in listened:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(thing)

    def _judge(self, watch: _Watch, missing: set[int], what: str) -> None:
        """Nothing came for a while: say so when it is long, and give up on whom the deadline has passed."""
        self._own_pulse.beat()  # a process that watches over others is alive; the deadline is kept here
        for rank in missing:  # a process that the environment left behind may hold both signs of the worker's end
            if self._processes[rank].exitcode is not None:
                self._died(rank)
        alive = missing - self._dead.keys()
        for rank, quiet_s in list(watch.stalled(alive, self._policy.timeout_s)):
            self._processes[rank].kill()
            reason = f"no sign of life for {quiet_s:.0f} s (sampler.timeout_s) at {self._watched[rank].describe()}"
            others = watch.quiet(alive - {rank}, quiet_s / 2)
            self._lost(rank, self._error(rank, f"{reason}, asked to {what}{self._as_well(others)}"))
        if line := watch.line(missing):
            self._say(f"waiting for {self._policy.name}{'s' * (len(missing) > 1)} {line}")

    def _as_well(self, others: Mapping[int, float]) -> str:
        """Names those that are quiet, too, with their seconds, in an error that ends the run."""
        if not others or self._policy.on_worker_failure != "stop":
            return ""
        named = (
            f"worker {rank} (envs {id_range(self._jobs[rank].env_ids)}), {seconds:.0f} s at "
            f"{self._watched[rank].describe()}"
            for rank, seconds in others.items()
        )
        return f"; quiet as well: {', '.join(named)}"

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._own_pulse.beat()  # who watches this process need not know that it waits
            time.sleep(min(left, _LOOK_S))

    def _allow_restart(self, rank: int, error: WorkerError) -> float:
        """Count a restart; gives the seconds to pause before it."""
        now, past = time.monotonic(), self._restarts[rank]
        while past and now - past[0] > _RESTART_WINDOW_S:
            past.popleft()
        if len(past) >= self._policy.max_restarts:
            text = f"{error.reason}; it had been started again {len(past)} times within an hour (sampler.max_restarts)"
            raise WorkerError(error.rank, error.env_ids, text, error.remote_traceback, error.name)
        past.append(now)
        pause: float = min(_LONGEST_BACKOFF_S, _FIRST_BACKOFF_S * 2 ** (len(past) - 1))
        return pause

    def _end(self, rank: int) -> None:
        """Leave nothing of a worker: neither the process nor what connects to it."""
        process, connection = self._processes[rank], self._connections[rank]
        if process is not None:
            if process.pid is not None:
                self._lost(rank, self._dead.get(rank) or self._error(rank, "ended"))
                process.kill()
                process.join()
            process.close()
        if connection is not None:
            connection.close()
        self._processes[rank] = self._connections[rank] = None
        self._inbox[rank].clear()
        self._askers[rank].clear()
        self._dead.pop(rank, None)
        self._final.discard(rank)

    def _error(self, rank: int, reason: str, remote_traceback: str = "") -> WorkerError:
        return WorkerError(rank, self._jobs[rank].env_ids, reason, remote_traceback, self._policy.name)


class _Watch:
    """How long workers that are waited for have given no sign of life, from the beginning of the wait."""

    def __init__(self, pulses: Sequence[Pulse], ranks: Iterable[int]) -> None:
        self._pulses = pulses
        self._begin = self._said = time.monotonic()
        self._last = {rank: (pulses[rank].n_beats, self._begin) for rank in ranks}

    def stalled(self, ranks: set[int], limit_s: float) -> Iterator[tuple[int, float]]:
        """Workers whose silence passes the limit, with its seconds; limit 0: none."""
        now = time.monotonic()
        for rank in sorted(ranks):
            beats, since = self._last[rank]
            if self._pulses[rank].n_beats != beats:
                self._last[rank] = (self._pulses[rank].n_beats, now)
            elif limit_s and now - since > self._limit(rank, limit_s):
                yield rank, now - since

    def _limit(self, rank: int, limit_s: float) -> float:
        return max(limit_s, _START_S) if self._pulses[rank].is_starting else limit_s

    def quiet(self, ranks: set[int], least_s: float) -> dict[int, float]:
        """Those that have been quiet for so long, with the seconds, as far as `stalled` has seen."""
        now = time.monotonic()
        silence = {rank: now - self._last[rank][1] for rank in sorted(ranks)}
        return {rank: seconds for rank, seconds in silence.items() if seconds >= least_s}

    def line(self, ranks: set[int]) -> str:
        """Who has been quiet for long and what they are doing; empty if there is nothing new to say."""
        now, quiet = time.monotonic(), self.quiet(ranks, _QUIET_S)
        if not quiet or now - self._said < _QUIET_S:
            return ""
        self._said = now
        doing = dict.fromkeys(self._pulses[rank].describe() for rank in quiet)
        return f"{', '.join(map(str, quiet))}: {', '.join(doing)}, {max(quiet.values()):.0f} s"


def _cause_of_death(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        name = signal.Signals(-exit_code).name
        hint = " (often: out of memory)" if -exit_code == signal.SIGKILL else ""
        return f"died by signal {-exit_code}, {name}{hint}"
    return "closed its connection" if exit_code is None else f"exited with code {exit_code}"


@contextlib.contextmanager
def _one_thread_in_children() -> Iterator[None]:
    """Numeric libraries read these variables when they are loaded: one thread each in the workers."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
