"""What runs in every worker process, and the words it exchanges with its parent. Imports no torch."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from rlcli.core import machine
from rlcli.core.errors import InexactError, WorkerError, is_own_finding
from rlcli.core.pulse import Doing, Pulse
from rlcli.core.stop import SIGNALS, unblock
from rlcli.samplers.shared import SharedTree

LOOK_S = 1.0
"""How often who waits for another process looks at clocks and ids, beside what wakes it at once."""
_PR_SET_PDEATHSIG = 1
"""Of Linux's prctl: the signal that comes when the thread that made this process ends."""


@dataclass(frozen=True)
class Job:
    """What one worker process needs; crosses the process border when it starts."""

    rank: int
    env_ids: tuple[int, ...]
    """Global ids of the training environments that it holds, for messages."""
    parts: bytes
    """Pickled: what the user's code takes part in. Unpickled where a failure can be told."""
    shared: Any
    """Handles of shared memory, which only a starting process can be given."""
    imports: tuple[str, ...] = ()
    """Modules to import first."""
    cpu: int | None = None
    """CPU to pin to."""


@dataclass(frozen=True)
class Request:
    """Parent to worker."""

    verb: str
    args: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Said:
    """Worker to parent: a line for the user."""

    text: str


@dataclass(frozen=True)
class Failure:
    """Worker to parent: an exception ended the worker."""

    reason: str
    remote_traceback: str
    inner: WorkerError | None = None
    """What ended it, where that was a worker of its own."""
    final: bool = False
    """Whether it would come again, so that the worker is not to be started again; see `is_own_finding`."""


class ParentGoneError(Exception):
    """The parent closed its end: there is nobody to answer."""


class Channel:
    """The worker's end of the pipe: requests come, answers and lines go.

    Args:
        connection: The pipe.
        pulse: Told when the worker idles.
    """

    def __init__(self, connection: Connection, pulse: Pulse) -> None:
        self._connection, self._pulse = connection, pulse

    def receive(self) -> Request:
        """Wait for the next request.

        Raises:
            ParentGoneError: The parent closed its end.
        """
        self._pulse.doing(Doing.IDLE)
        try:
            request: Request = self._connection.recv()
        except (EOFError, OSError) as error:
            raise ParentGoneError from error
        self._pulse.doing(Doing.STEP)
        return request

    def answer(self, answer: Any = None) -> None:
        """Give the result of a request. None says that it is done or, unasked at the start, that it is ready."""
        try:
            self._connection.send(answer)
        except OSError as error:
            raise ParentGoneError from error

    def say(self, text: str) -> None:
        """A line for the user."""
        self.answer(Said(text))


def state_or_reason(state: Callable[[], list[Any]]) -> list[Any] | InexactError:
    """What ``state`` gives, or why it cannot: that is an answer, not a failure that ends the worker."""
    try:
        return state()
    except InexactError as error:
        return error


Serve = Callable[[Any, Any, Channel, Pulse, int], None]
"""(parts, shared, channel, pulse, incarnation): makes what the job says, reports ready, serves until told to close."""


def run_worker(
    serve: Serve, job: Job, incarnation: int, connection: Connection, pulses: SharedTree, maker: int
) -> None:
    """Serve requests until told to close or until the parent is gone.

    Args:
        serve: See `Serve`.
        job: What to serve.
        incarnation: How often this worker has been started again.
        connection: The pipe to the parent.
        pulses: Signs of life of all workers.
        maker: Id of the process whose main thread makes this one; 0 if another thread does.
    """
    for number in SIGNALS:
        # They may reach the whole group; the parent decides what they mean, and ends its workers by other means. Not
        # SIG_IGN: an environment's own programs would inherit it, and could not be told to end.
        signal.signal(number, _leave_it_to_the_parent)
    unblock()
    _end_with_maker(maker)
    _end_with_parent()
    pulse = Pulse(pulses.tree[job.rank])
    pulse.doing(Doing.START)
    channel = Channel(connection, pulse)
    try:
        if job.cpu is not None and not machine.pin(job.cpu):
            channel.say(f"worker {job.rank}: cannot be pinned to CPU {job.cpu}, goes on unpinned")
        for module in job.imports:
            importlib.import_module(module)
        serve(pickle.loads(job.parts), job.shared, channel, pulse, incarnation)
    except ParentGoneError:
        return
    except BaseException as error:
        inner = error if isinstance(error, WorkerError) else None
        with contextlib.suppress(OSError):
            reason = f"{type(error).__name__}: {error}"
            connection.send(Failure(reason, traceback.format_exc(), inner, is_own_finding(error)))
        sys.exit(1)


def _leave_it_to_the_parent(number: int, frame: object) -> None:
    """Handles a signal by going on."""


def _end_with_maker(maker: int) -> None:
    """Have the system kill this process when its maker ends, even in C code that lets no Python run. Linux only.

    The sign is the end of the thread that made the process, hence only of one that lives as long as its process. A
    process that the fork server made has another parent than its maker, and outlives it by other means.
    """
    if not sys.platform.startswith("linux") or os.getppid() != maker:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != maker:  # it ended before it could be watched
        os._exit(1)


def _end_with_parent() -> None:
    """Leave as soon as the parent has gone, even while an environment is busy."""
    parent = multiprocessing.parent_process()
    parent_id = os.getppid()

    def watch() -> None:
        # The sign of the parent's end is a pipe, whose other end a forked sibling may hold open: look at the id too.
        while parent is None or parent.is_alive():
            if os.getppid() != parent_id:
                break
            if parent is None:
                time.sleep(LOOK_S)
            else:
                parent.join(LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
