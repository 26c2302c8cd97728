"""Workers that raise, die or stall: the run ends in bounded time, with the worker's own words, and leaves nothing."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from rlcli.core.errors import WorkerError
from rlcli.core.rng import Purpose, integer_seed
from rlcli.samplers.config import CpuConfig
from tests.sampler_probes import WanderConfig, make_setup


def failing(fault, at=50):
    return WanderConfig(fault=fault, at=at, victim=integer_seed(0, Purpose.ENV, 3))


def collect_often(sampler):
    for _ in range(20):
        sampler.collect(0)


def run_to_failure(env, timeout_s=600.0):
    before = set(psutil.Process().children(recursive=True))
    config = CpuConfig(20, 5, 2, max_decorrelation_steps=0)
    with contextlib.closing(config.build(make_setup(env))) as sampler:
        sampler._timeout_s = timeout_s  # not in the config: the start of the processes has no bound on a busy machine
        with pytest.raises(WorkerError) as caught:
            collect_often(sampler)
    time.sleep(0.2)
    left = [
        p for p in psutil.Process().children(recursive=True) if p not in before and "spawn_main" in str(p.cmdline())
    ]
    assert [] == left
    return caught.value


def test_exception_in_an_env_arrives_with_traceback_rank_env_and_step():
    error = run_to_failure(failing("raise"))

    assert error.rank == 1
    assert (3, 4) == error.env_ids
    assert "marker-7" in error.reason
    assert "env 3, step 49" in error.reason
    assert "_on_step" in error.remote_traceback


def test_exit_of_a_worker_is_reported_with_its_code():
    assert "exited with code 3" in run_to_failure(failing("exit")).reason


def test_kill_of_a_worker_is_reported_with_its_signal():
    assert "signal 9, SIGKILL (often: out of memory)" in run_to_failure(failing("kill")).reason


def test_stalled_worker_ends_the_run_at_the_time_limit():
    error = run_to_failure(failing("hang"), timeout_s=2.0)

    assert error.rank == 1
    assert "sampler.timeout_s" in error.reason


def test_failure_while_starting_leaves_no_process():
    with pytest.raises(WorkerError, match="marker-7"):
        CpuConfig(20, 5, 2).build(make_setup(failing("raise", at=1)))


def test_close_twice_is_harmless():
    sampler = CpuConfig(5, 2, 1).build(make_setup())
    sampler.close()
    sampler.close()


def test_more_workers_than_envs_are_not_started():
    with contextlib.closing(CpuConfig(5, 2, 4).build(make_setup())) as sampler:
        assert len(sampler._processes) == 2


PARENT = """
import os, sys
from rlcli.samplers.config import CpuConfig
from tests.sampler_probes import make_setup
if __name__ == "__main__":
    sampler = CpuConfig(50, 4, 2).build(make_setup())
    print(*[p.pid for p in sampler._processes], flush=True)
    while True:
        sampler.collect(0)
"""


def test_workers_leave_when_the_parent_is_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    root = Path(__file__).parents[2]
    shm_before = set(Path("/dev/shm").iterdir())
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(root)}, text=True
    )
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    parent.kill()
    parent.communicate()

    deadline = time.monotonic() + 15
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert set(Path("/dev/shm").iterdir()) <= shm_before
