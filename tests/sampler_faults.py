"""What the tests of faults share: each sampler mode by its name, and a run of it until something happens."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from dataclasses import fields, replace
from pathlib import Path

import psutil
import torch

from rlcli.core.samples import Samples
from rlcli.core.tree import map_tree
from rlcli.samplers.config import AlternatingConfig, AsyncConfig, CpuConfig, GpuConfig, SerialConfig
from tests.sampler_probes import TableAgent, make_setup

ASYNC = ("async-serial", "async-cpu", "async-gpu", "async-alternating")
WITH_WORKERS = ("cpu", "gpu", "alternating", "async-cpu", "async-gpu", "async-alternating")
"""Modes in which worker processes step the environments."""
ALL = ("serial", *WITH_WORKERS, "async-serial")
PARTS = {
    "serial": None,
    "cpu": (1, (3, 4)),
    "gpu": (1, (3, 4)),
    "alternating": (0, (0, 1, 3)),
    "async-serial": (0, (0, 1, 2, 3, 4)),
    "async-cpu": (1, (3, 4)),
    "async-gpu": (1, (3, 4)),
    "async-alternating": (0, (0, 1, 3)),
}
"""Rank and environments of the process that steps environment 3."""
T, B = 20, 5
_PLAIN = {"cpu": CpuConfig, "gpu": GpuConfig, "alternating": AlternatingConfig}


def config(mode, **options):
    """A sampler over 5 environments with 2 workers, batches of 20 rows; forks, since that is quickest."""
    options = {"max_decorrelation_steps": 0, **options}
    if mode == "serial":
        return SerialConfig(T, B, **options)
    options = {"n_workers": 2, "start_method": "fork", **options}
    if mode in _PLAIN:
        return _PLAIN[mode](T, B, **options)
    return AsyncConfig(T, B, inner=mode.removeprefix("async-"), **options)


def setup(env, said=None, **changes):
    """A run's side; the environment is not probed, so its fault is still to come."""
    changes = {"agent": TableAgent(use_step=False), **changes}
    healthy = make_setup(replace(env, fault="") if hasattr(env, "fault") else env, **changes)
    return replace(healthy, env=env, eval_env=env, say=(lambda line: None) if said is None else said.append)


@contextlib.contextmanager
def built(mode, env, said=None, **options):
    """The sampler, closed at the end."""
    if mode == "serial" and hasattr(env, "in_worker"):
        env = replace(env, in_worker=False)
    with contextlib.closing(config(mode, **options).build(setup(env, said))) as sampler:
        yield sampler


def collect(sampler, n=8):
    """Copies of ``n`` batches; they begin at the steps of a run that loses none."""
    batches = []
    for i in range(n):
        got = sampler.collect(i * T * B)
        batches.append(replace(got, samples=copy_of(got.samples)))
    return batches


def copy_of(samples):
    return Samples(**{f.name: map_tree(torch.clone, getattr(samples, f.name)) for f in fields(samples)})


def children():
    """All processes under this one but the servants of multiprocessing."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            servant = re.search("resource_tracker|forkserver import main", " ".join(process.cmdline()))
            if process.status() != psutil.STATUS_ZOMBIE and not servant:
                found.add(process)
    return found


def soon(condition, seconds=15.0):
    """Whether it comes true in that time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def kill_when_marked(mark: Path):
    """Kill, from outside, the process that writes its id there."""

    def work():
        assert soon(lambda: mark.exists() and mark.read_text().endswith("\n"), 60)
        os.kill(int(mark.read_text()), signal.SIGKILL)

    thread = threading.Thread(target=work)
    thread.start()
    return thread
