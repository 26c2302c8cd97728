"""Being asked to stop: SIGINT (Ctrl-C), SIGTERM and SIGUSR1, taken when it does no harm. Imports no torch."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, TypeVar

from rlcli.core.errors import EnvError, WorkerError

T = TypeVar("T")

STOPPED = 3
"""Exit code of a program that SIGTERM, SIGUSR1 or the time limit stopped."""

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name))
"""What asks a run to stop: Ctrl-C, an end of the job, and a scheduler's warning before it. Windows lacks the last."""


def _line(number: signal.Signals) -> str:
    if number == signal.SIGINT:
        return "stopping after this iteration (Ctrl-C again: at once)"
    return f"{number.name}: stopping after this iteration (a second signal: at once)"


_program_ends: ContextVar[bool] = ContextVar("program_ends", default=False)
"""Whether the program ends after the StopSignals that are entered here."""


class Stopped(SystemExit):
    """SIGTERM, SIGUSR1 or the time limit stopped the run; a program that does not catch it ends with exit code 3.

    Like KeyboardInterrupt it is no Exception: a loop over runs that goes on after a failure must not go on after this.
    """

    run_dir: Path | None = None
    """The run folder, None if there was none yet."""

    def __init__(self, by: str = "SIGTERM") -> None:
        super().__init__(STOPPED)
        self._by = by

    def __str__(self) -> str:
        return f"stopped by {self._by}"


class StopRequested(KeyboardInterrupt):
    """The first signal, raised into a phase that may be cut short; StopSignals lets it out as what `exception` gives.

    A KeyboardInterrupt, so that code in between which tidies up after one does so here too.
    """


@dataclass(frozen=True)
class _Phase:
    grace_s: float | None
    """Seconds that the phase may go on after the first signal; None: to its end."""
    keeps_second: bool = False
    """Whether a second signal, too, waits for the end of the phase."""
    say: Callable[[str], None] | None = None


class StopSignals:
    """Takes SIGINT, SIGTERM and SIGUSR1 while it is entered: the first as a request, the second at once.

    Right after entering, the first signal raises at once. `deferred`, `interruptible` and `protected` say, for the
    block below them, what the first does instead; they nest. A signal is taken in the main thread alone: entered in
    another, or not entered at all, it changes nothing. A signal that is being ignored stays ignored.

    Not reusable: one object for one run, or for one sweep.
    """

    def __init__(self) -> None:
        self.requested: signal.Signals | str | None = None
        """The first signal that came, or what else asked."""
        self._phase = _Phase(grace_s=0.0)
        self._cut_short = self._urgent = False
        self._before: dict[signal.Signals, Any] = {}
        self._alarm = _Alarm(self._on_alarm)

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                # None: a handler that is not Python's, which could not be put back
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._alarm.disarm()
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if _program_ends.get() else handler)
        if _comes_of_stop(error):
            stop = self.exception()
            stop.run_dir = getattr(error, "run_dir", None)  # type: ignore[union-attr]
            raise stop from None

    def exception(self) -> KeyboardInterrupt | Stopped:
        """What tells the caller of the run that it was stopped, by the first signal; with ``run_dir``, None as yet."""
        by = self.requested
        named = by.name if isinstance(by, signal.Signals) else by
        stop = KeyboardInterrupt() if by in (signal.SIGINT, None) else Stopped(str(named))
        stop.run_dir = None  # type: ignore[union-attr]
        return stop

    def ask(self, by: str) -> None:
        """Ask to stop as a signal would; ``by`` is told where it was asked. A signal that came before counts."""
        if self.requested is None:
            self.requested = by
            if self._phase.say is not None:
                self._phase.say(f"{by}: stopping after this iteration")

    def raise_if_requested(self) -> None:
        """Raise `exception` if a signal has come."""
        if self.requested is not None:
            raise self.exception()

    @contextmanager
    def deferred(self, say: Callable[[str], None] | None = None) -> Iterator[None]:
        """The first signal only sets `requested`; the second raises.

        Args:
            say: Takes a line when the first one comes; called from a signal handler.
        """
        with self._during(_Phase(grace_s=None, say=say)):
            yield

    @contextmanager
    def interruptible(self, grace_s: float) -> Iterator[None]:
        """What takes longer than ``grace_s`` after the first signal is cut short; 0: at once.

        On a system without timers (Windows) a grace above 0 has no end.

        Raises:
            StopRequested: It was cut short.
        """
        with self._during(replace(self._phase, grace_s=grace_s)):
            yield

    def unless_stopped(self, grace_s: float, ask: Callable[[], T]) -> T | None:
        """What ``ask`` gives; None if a signal has come, or comes and ``ask`` takes longer than ``grace_s`` after it.

        Ctrl-C reaches all processes of a terminal: a worker or an environment's own process may die of it. Such an
        error after a signal is told in a line, and is no failure of the run.
        """
        if self.requested is not None:
            return None
        try:
            with self.interruptible(grace_s):
                return ask()
        except StopRequested:
            return None
        except (EnvError, WorkerError) as error:
            if self.requested is None:
                raise
            if self._phase.say is not None:
                self._phase.say(f"after the signal: {error}")
            return None

    @contextmanager
    def protected(self) -> Iterator[None]:
        """Even a second signal raises only when the block has been left; a third does at once."""
        with self._during(replace(self._phase, grace_s=None, keeps_second=True)):
            yield
        if self._urgent:
            raise self.exception()

    @contextmanager
    def _during(self, phase: _Phase) -> Iterator[None]:
        before = self._phase
        try:
            self._phase = phase
            if self.requested is not None:  # before the phase, or just now
                self._begin_grace()
            yield
        finally:
            self._phase = before
            self._alarm.disarm()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested is not None:
            waits = self._phase.keeps_second and not self._urgent
            self._urgent = True
            if not waits:
                raise self.exception()
            return
        self.requested = signal.Signals(number)
        if self._phase.say is not None:
            # The signal may have come in the middle of another line, and a buffered stream is not to be re-entered.
            with suppress(Exception):
                self._phase.say(_line(signal.Signals(number)))
        self._begin_grace()

    def _begin_grace(self) -> None:
        grace_s = self._phase.grace_s
        if grace_s is None or self._cut_short:
            return
        if grace_s:
            self._alarm.arm(grace_s)
        else:
            self._cut()

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        if self._phase.grace_s is not None and not self._cut_short:
            self._cut()

    def _cut(self) -> None:
        # Once: code that tidies up after the first is not hit by another.
        self._cut_short = True
        raise StopRequested


class _Alarm:
    """One SIGALRM, where the system has timers; whoever used it before gets it back."""

    def __init__(self, handler: Callable[[int, FrameType | None], None]) -> None:
        self._handler = handler
        self._before: tuple[Any, float, float, float] | None = None

    def arm(self, seconds: float) -> None:
        """Call the handler in ``seconds``, unless disarmed before; armed already, it keeps its time."""
        if self._before is not None or not hasattr(signal, "setitimer"):
            return
        handler = signal.getsignal(signal.SIGALRM)
        if handler is None:  # not Python's: could not be put back
            return
        left, interval = signal.setitimer(signal.ITIMER_REAL, 0)
        self._before = (handler, left, interval, time.monotonic())
        signal.signal(signal.SIGALRM, self._handler)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def disarm(self) -> None:
        """Put back the handler and the timer that were there; safe to call twice."""
        if self._before is None:
            return
        (handler, left, interval, begin), self._before = self._before, None
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            overdue = 1e-3  # 0 would switch it off
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - begin), overdue), interval)


@contextmanager
def whole_program() -> Iterator[None]:
    """What is done in here decides the program's exit code, which no later signal is to change.

    From the end of a StopSignals in here, at the latest from the end of the block, `SIGNALS` are ignored: by default
    each would end the program with a code of its own while the interpreter winds up.
    """
    token = _program_ends.set(True)
    try:
        yield
    finally:
        _program_ends.reset(token)
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)


@contextmanager
def children_begin_blocked() -> Iterator[None]:
    """Processes started in here begin with `SIGNALS` blocked, so that none dies with a traceback of its own.

    Ctrl-C reaches the whole process group, also a worker that is still loading Python. The worker says what it does
    with each signal and then calls `unblock`. What comes for this process meanwhile comes when the block is left. Does
    nothing on a system without signal masks.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # when it starts, it unblocks SIGINT and SIGTERM
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def unblock() -> None:
    """Let them through in a process that was started in `children_begin_blocked`."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _comes_of_stop(error: BaseException | None) -> bool:
    """Whether the error is a StopRequested, or what a library made of one that was raised into it."""
    while error is not None:
        if isinstance(error, StopRequested):
            return True
        if not isinstance(error, Exception):
            return False
        error = error.__cause__ or error.__context__
    return False
