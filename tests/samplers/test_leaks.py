"""What samplers leave behind: nothing, however often they are made, and no more of it the longer they run."""

import contextlib
import gc
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.sampler_modes import ONE_OF_EACH, config
from tests.sampler_probes import WeightAgent, make_setup
from tests.space_probes import WideConfig


@dataclass
class Held:
    """What a process holds of the system's."""

    files: int
    mappings: int
    """Of shared memory."""
    threads: int
    children: int
    """Processes of multiprocessing's own, which stay, do not count."""
    segments: set
    """Names in /dev/shm that came since `before`."""


def held(before=frozenset()):
    gc.collect()
    maps = Path("/proc/self/maps").read_text().splitlines()
    return Held(
        files=len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - counts the listing's own descriptor every time
        mappings=sum("memfd:rlcli" in line or "/dev/shm" in line for line in maps),
        threads=threading.active_count(),
        children=sum(is_ours(child) for child in psutil.Process().children(recursive=True)),
        segments=segments() - before,
    )


def is_ours(process):
    try:
        words = " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False
    return "resource_tracker" not in words and "forkserver import main" not in words


def segments():
    return set(Path("/dev/shm").iterdir())


def held_now(before):
    """As soon as other programs have removed their own segments."""
    deadline = time.monotonic() + 10
    while (now := held(before)).segments and time.monotonic() < deadline:
        time.sleep(0.1)
    return now


def assert_holds(expected, before):
    """At once, or as soon as other programs have removed their own segments."""
    deadline = time.monotonic() + 10
    while (now := held(before)) != expected and time.monotonic() < deadline:
        time.sleep(0.1)
    assert expected == now


SLOW = ("async cpu of 2", "async alternating of 2")
"""Many processes; the sampler itself is made 50 times with the other inner ones."""


def make_and_close(mode, setup, start_method):
    with contextlib.closing(config(mode, 3, 4, start_method=start_method).build(setup)) as sampler:
        sampler.collect(0)


@pytest.mark.parametrize(
    ("mode", "start_method", "n"),
    [
        *((mode, "fork", 20) for mode in ONE_OF_EACH if mode not in SLOW),
        *((mode, "fork", 10) for mode in SLOW),
        ("cpu of 2", "spawn", 1),
        ("gpu of 2", "spawn", 2),
        ("alternating of 2", "forkserver", 3),
    ],
)
def test_making_and_closing_a_sampler_again_and_again_leaves_nothing(mode, start_method, n):
    setup, before = make_setup(WideConfig(), WeightAgent()), segments()
    make_and_close(mode, setup, start_method)  # modules are loaded, the processes of multiprocessing run
    first = held_now(before)
    for _ in range(n):
        make_and_close(mode, setup, start_method)

    assert (0, set()) == (first.children, first.segments)
    assert_holds(first, before)


def tree_of_processes():
    """(resident bytes, open files) of this process and its children."""
    found = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(p.memory_info().rss for p in found), [p.num_fds() for p in found]


@pytest.mark.parametrize("mode", ONE_OF_EACH)
def test_two_hundred_batches_take_no_more_memory_or_files_than_fifty(mode):
    batch_bytes = 4096 * 21 * 4
    setup, before = make_setup(WideConfig(), WeightAgent(), eval_n_episodes=2), segments()
    with contextlib.closing(config(mode, 20, 4).build(setup)) as sampler:

        def iterate(n):
            for i in range(n):
                sampler.collect(0)
                sampler.publish()
                if i % 50 == 0:
                    sampler.evaluate(0)

        iterate(50)
        first, (first_bytes, first_files) = held_now(before), tree_of_processes()
        iterate(150)
        grown_bytes = tree_of_processes()[0] - first_bytes

        assert_holds(first, before)
        assert first_files == tree_of_processes()[1]
        assert grown_bytes < 20 * batch_bytes  # 150 batches were kept: 7 times as much
