"""What runs in a worker process of the cpu sampler, and the words it exchanges with its parent."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection

import psutil
import torch

from rlcli.core.samples import Evaluation, Samples
from rlcli.envs.vector import InProcessVectorEnv
from rlcli.samplers.collector import Collector, CollectorOptions, Gathered
from rlcli.samplers.evaluation import Evaluator, build_evaluator
from rlcli.samplers.setup import SamplerSetup


@dataclass(frozen=True)
class WorkerTask:
    """Everything one worker needs; crosses the process border by pickling, the tensors by shared memory."""

    rank: int
    setup: SamplerSetup
    env_ids: range
    """Global ids of its training environments."""
    eval_env_ids: range
    """Ids of its evaluation environments; may be empty."""
    samples: Samples
    """Its slice of the batch, in shared memory."""
    options: CollectorOptions
    cpu: int | None
    """CPU to pin to."""


@dataclass(frozen=True)
class Request:
    """Parent to worker."""

    verb: str
    """collect, evaluate or close."""
    step: int = 0


@dataclass(frozen=True)
class Failure:
    """Worker to parent: an exception ended the worker."""

    reason: str
    remote_traceback: str


Answer = Gathered | Evaluation | Failure | None
"""Worker to parent: the result of a request; None says that the worker is ready."""


def run_worker(task: WorkerTask, connection: Connection) -> None:
    """Serve requests until told to close or until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what it means
    _end_with_parent()
    torch.set_num_threads(1)
    if task.cpu is not None:
        with contextlib.suppress(OSError, AttributeError, ValueError):
            psutil.Process().cpu_affinity([task.cpu])
    try:
        _serve(task, connection)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the parent closed its end: nobody to answer
    except BaseException as error:
        with contextlib.suppress(OSError):
            connection.send(Failure(f"{type(error).__name__}: {error}", traceback.format_exc()))
        sys.exit(1)


def _serve(task: WorkerTask, connection: Connection) -> None:
    for module in task.setup.imports:
        importlib.import_module(module)
    env = InProcessVectorEnv(task.setup.env, task.env_ids, task.setup.seed, spec=task.setup.spec)
    collector = Collector(env, task.setup.agent, task.samples, task.options)
    collector.start()
    connection.send(None)
    evaluator: Evaluator | None = None
    try:
        while (request := connection.recv()).verb != "close":
            if request.verb == "collect":
                connection.send(collector.collect(request.step))
                collector.reset_idle()  # while the learner works
            else:
                evaluator = evaluator or build_evaluator(task.setup, task.eval_env_ids)
                connection.send(evaluator.evaluate(request.step))
    finally:
        env.close()
        if evaluator is not None:
            evaluator.close()


def _end_with_parent() -> None:
    """Leave as soon as the parent has gone, even while an environment is busy."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
