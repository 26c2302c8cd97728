"""The mailbox between learner and sampler: never half a set, the newest wins, the writer never waits for a reader."""

import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
import time

import pytest
import torch

from rlcli.core.errors import RlcliError
from rlcli.samplers import weights
from rlcli.samplers.shared import ProcessLock
from rlcli.samplers.weights import SharedWeights, WeightMailbox


class ConstantAgent:
    """Weights of three dtypes, large, empty and scalar, all of one value."""

    def __init__(self, value=0, size=200_000):
        self.tensors = {
            "large": torch.full((size,), float(value)),
            "half": torch.full((7, 3), float(value), dtype=torch.bfloat16),
            "empty": torch.zeros(0, 4),
            "counter": torch.tensor(value),
        }

    def weights(self):
        return self.tensors

    def set(self, value):
        for tensor in self.tensors.values():
            tensor.fill_(value)

    def values(self):
        """The distinct values; one if the set is whole."""
        return {v for t in self.tensors.values() for v in t.unique().tolist()}


class LockOnRelease:
    """A lock that does something once when it is released for the n-th time."""

    def __init__(self, n, action):
        self.lock, self.n, self.action, self.releases = threading.Lock(), n, action, 0

    def acquire(self, timeout):
        return self.lock.acquire(timeout=timeout)

    def release(self):
        self.lock.release()
        self.releases += 1
        if self.releases == self.n:
            self.action()


def mailbox(agent, lock=None):
    return contextlib.closing(WeightMailbox(agent, lock or threading.Lock(), print))


def test_reader_gets_the_newest_set_and_its_version():
    writer, reader = ConstantAgent(), ConstantAgent()
    with mailbox(writer) as box:
        for value in (10, 20, 30):
            writer.set(value)
            version = box.put(writer)

        assert (3, 3, 3) == (version, box.take(reader), box.take(reader))
        assert {30} == reader.values()


def test_versions_count_the_publications():
    writer, reader = ConstantAgent(size=1), ConstantAgent(size=1)
    with mailbox(writer) as box:
        assert [1, 1, 2, 2, 3, 3] == [f(a) for _ in range(3) for f, a in ((box.put, writer), (box.take, reader))]


def test_publications_during_a_readers_copy_neither_wait_nor_touch_what_it_copies():
    writer, reader, late = ConstantAgent(), ConstantAgent(), ConstantAgent()

    def publish_often():
        for value in range(2, 12):
            writer.set(value)
            box.put(writer)

    # Each put takes the lock twice; the reader's first release is the third, before it copies.
    with mailbox(writer, LockOnRelease(3, publish_often)) as box:
        writer.set(1)
        box.put(writer)

        assert 1 == box.take(reader)
        assert {1} == reader.values()
        assert 11 == box.take(late)
        assert {11} == late.values()


def publish_until(box, enough):
    torch.set_num_threads(1)  # the fork has none of its parent's
    agent = ConstantAgent()
    for value in itertools.count(1):
        agent.set(value % 100)  # bfloat16 has no whole numbers beyond 256
        box.put(agent)
        if enough.is_set():
            return


def test_reader_beside_a_busy_writer_process_never_sees_half_a_set():
    context = multiprocessing.get_context("fork")
    reader, enough, seen = ConstantAgent(), context.Event(), []
    with mailbox(reader, ProcessLock()) as box:
        box.put(reader)  # there is something to take from the beginning; the process counts from 2
        process = context.Process(target=publish_until, args=(box, enough))
        process.start()
        try:
            deadline = time.monotonic() + 60
            while len(set(seen)) < 100 and time.monotonic() < deadline:
                version = box.take(reader)
                assert {(version - 1) % 100} == reader.values()
                seen.append(version)
        finally:
            enough.set()
            process.join()

    assert len(set(seen)) == 100
    assert sorted(seen) == seen


def test_lock_that_is_never_released_ends_in_an_error(monkeypatch):
    monkeypatch.setattr(weights, "_LOCK_S", 0.05)
    lock = threading.Lock()
    with mailbox(ConstantAgent(), lock) as box, lock, pytest.raises(RlcliError, match="has been stopped"):
        box.take(ConstantAgent())


def hold_and_die(lock, held, may_die):
    lock.acquire(1)
    held.set()
    may_die.wait(60)
    os.kill(os.getpid(), signal.SIGKILL)


def test_lock_excludes_another_process_and_is_free_when_its_holder_is_killed():
    context = multiprocessing.get_context("fork")
    held, may_die = context.Event(), context.Event()
    with contextlib.closing(ProcessLock()) as lock:
        process = context.Process(target=hold_and_die, args=(lock, held, may_die))
        process.start()
        held.wait(60)
        while_held = lock.acquire(0.05)
        may_die.set()
        process.join()

        assert (False, True) == (while_held, lock.acquire(1))


def test_agents_that_share_weights_see_each_others_changes():
    learner, actor = ConstantAgent(5), ConstantAgent(0)
    with contextlib.closing(SharedWeights(learner, print)) as shared:
        shared.host(learner)
        shared.adopt(actor)
        before = actor.values()
        learner.set(6)

        assert {5} == before
        assert {6} == actor.values()
