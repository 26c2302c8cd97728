"""What runs in every worker process, and the words it exchanges with its parent. Imports no torch."""

from __future__ import annotations

import contextlib
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
from rlcli.core.errors import WorkerError
from rlcli.core.pulse import Doing, Pulse
from rlcli.core.stop import unblock
from rlcli.samplers.shared import SharedTree

_LOOK_S = 1.0
"""How often a worker looks whether its parent still lives, beside waiting for the sign of it."""


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


Serve = Callable[[Any, Any, Channel, Pulse, int], None]
"""(parts, shared, channel, pulse, incarnation): makes what the job says, reports ready, serves until told to close."""


def run_worker(serve: Serve, job: Job, incarnation: int, connection: Connection, pulses: SharedTree) -> None:
    """Serve requests until told to close or until the parent is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # Both may reach the whole group; the parent decides what they mean, and ends its workers by other means. Not
        # SIG_IGN: an environment's own programs would inherit it, and could not be told to end.
        signal.signal(number, _leave_it_to_the_parent)
    unblock()
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
            connection.send(Failure(f"{type(error).__name__}: {error}", traceback.format_exc(), inner))
        sys.exit(1)


def _leave_it_to_the_parent(number: int, frame: object) -> None:
    """Handles a signal by going on."""


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
                time.sleep(_LOOK_S)
            else:
                parent.join(_LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
