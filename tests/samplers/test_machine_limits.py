"""Machines that give little: one CPU, little shared memory, few open files, no affinity, a quota."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import numpy as np
import psutil
import pytest

import rlcli
from rlcli.core import machine
from rlcli.core.errors import RlcliError
from rlcli.core.tree import leaves
from rlcli.record.snapshot import read_snapshot
from rlcli.samplers.batch import allocate, batch_shapes, share_like, shared_samples
from tests.fault_probes import FaultConfig
from tests.sampler_faults import built, collect
from tests.sampler_modes import assert_same_bytes
from tests.sampler_probes import TableAgent, make_setup

ROOT = Path(rlcli.__file__).parents[1]
MB = 10**6
SMALL = ["algo=dqn", "env=cartpole", "sampler.batch_T=5", "sampler.max_decorrelation_steps=0"]
SMALL += ["logger.ui=plain", "model.mlp_hidden=[8]", "algo.min_steps_learn=100", "replay.size=2000"]


def train(folder, shell, *words, n_steps=200):
    """Exit code and output of ``rlcli train`` started by a line of shell, which ends in ``"$@"``."""
    command = [
        sys.executable,
        "-m",
        "rlcli",
        "train",
        *SMALL,
        f"n_steps={n_steps}",
        *words,
        f"run_dir={folder / 'run'}",
    ]
    done = subprocess.run(
        ["bash", "-c", shell, "bash", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


def said_by(mode="gpu", **options):
    said = []
    with built(mode, FaultConfig(), said, **options) as sampler:
        assert sampler.collect(0).n_steps > 0
    return said


# processors


@pytest.mark.skipif(not shutil.which("taskset"), reason="needs taskset")
def test_four_workers_share_one_cpu(tmp_path):
    cpu = min(machine.usable_cpus())
    words = ["sampler=cpu", "sampler.n_workers=4", "sampler.start_method=fork"]
    code, out, err = train(tmp_path, f'exec taskset -c {cpu} "$@"', *words)

    assert (0, "") == (code, err)
    assert (
        f"workers: 4 (fork), pinned to CPUs {cpu}, {cpu}, {cpu}, {cpu}, 1 thread each, envs 0-3; 4-7; 8-11; 12-15"
        in out
    )


@pytest.mark.parametrize("mode", ["cpu", "gpu", "async-cpu"])
@pytest.mark.parametrize("error", [AttributeError("cpu_affinity"), NotImplementedError(), psutil.AccessDenied(1)])
def test_without_affinity_workers_run_unpinned_and_one_line_says_so(monkeypatch, mode, error):
    def raises(*_):
        raise error

    monkeypatch.setattr(psutil.Process, "cpu_affinity", raises, raising=False)

    assert 1 == sum("not pinned" in line for line in said_by(mode))


def test_system_that_has_no_affinity_at_all_is_as_one_that_refuses_it(monkeypatch):
    monkeypatch.delattr(psutil.Process, "cpu_affinity", raising=False)

    assert 1 == sum("not pinned" in line for line in said_by())


def test_cpu_that_a_worker_may_not_use_is_told_and_done_without(monkeypatch):
    monkeypatch.setattr(machine, "usable_cpus", lambda: [min(machine_cpus), 9999])
    machine_cpus = psutil.Process().cpu_affinity()

    assert ["worker 1: cannot be pinned to CPU 9999, goes on unpinned"] == [
        line for line in said_by() if "cannot" in line
    ]


def test_quota_bounds_the_number_of_workers(monkeypatch, tmp_path):
    (tmp_path / "membership").write_text("0::/job\n")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "cpu.max").write_text("250000 100000\n")
    monkeypatch.setattr(machine, "CGROUP_MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(machine, "CGROUP_MOUNT", tmp_path)
    monkeypatch.setattr(machine, "usable_cpus", lambda: [0] * 8)

    assert any(line.startswith("workers: 3 (fork)") for line in said_by(n_workers=None))


def test_numeric_libraries_of_a_worker_use_one_thread(tmp_path):
    with built("gpu", ThreadsConfig()) as sampler:
        samples = sampler.collect(0).samples

    assert {1.0} == set(samples.obs.flatten().tolist())


# memory


class WideEnv(gymnasium.Env):
    """Observations of 800 kB."""

    observation_space = gymnasium.spaces.Box(0, np.inf, (200_000,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._obs(), {}

    def step(self, action):
        obs = self._obs()
        return obs, float(obs[0]), False, False, {}

    def _obs(self):
        return np.full(200_000, self.np_random.integers(100), np.float32)


@dataclass
class WideConfig:
    def build(self):
        return WideEnv()


class ThreadsEnv(WideEnv):
    """Observes how many threads a numeric library may use."""

    observation_space = gymnasium.spaces.Box(0, np.inf, (1,), np.float32)

    def _obs(self):
        return np.array([os.environ.get("OMP_NUM_THREADS", 0)], np.float32)


@dataclass
class ThreadsConfig:
    def build(self):
        return ThreadsEnv()


@pytest.mark.parametrize("mode", ["cpu", "async-cpu"])
def test_batch_that_does_not_fit_into_memory_goes_to_a_file_and_is_the_same(mode, monkeypatch, tmp_path):
    with built("serial", WideConfig()) as sampler:
        (expected,) = collect(sampler, 1)
    monkeypatch.setattr(machine, "available_memory", lambda: 16 * MB)
    monkeypatch.setattr("psutil.disk_partitions", lambda all: [])  # the test's own folder may lie in memory
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    said = []
    with built(mode, WideConfig(), said) as sampler:
        (got,) = collect(sampler, 1)

    lines = [line for line in said if "nameless file" in line]
    assert {"cpu": 1, "async-cpu": 3}[mode] == len(lines)  # two buffers and the inner sampler's
    assert f"16,000,000 are free in memory: it is a nameless file in {tmp_path} instead" in lines[0]
    for (path, a), (_, b) in zip(leaves(expected.samples.obs), leaves(got.samples.obs), strict=True):
        assert a.equal(b), path
    assert expected.samples.action.equal(got.samples.action)


@pytest.mark.parametrize("mode", ["serial", "gpu", "alternating"])
def test_batch_of_this_process_that_does_not_fit_into_memory_is_refused_in_one_line(mode, monkeypatch):
    monkeypatch.setattr(machine, "available_memory", lambda: 16 * MB)
    told = "sampler.batch_T=20, sampler.batch_B=5: the batch needs 84,002,740 bytes, 16,000,000 are free in memory; "
    with pytest.raises(RlcliError, match=re.escape(f"{told}make one of them smaller")):
        built(mode, WideConfig()).__enter__()


def test_batch_that_cannot_be_had_although_memory_is_free_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(machine, "available_memory", lambda: 10**30)
    spec = make_setup(WideConfig()).spec
    with pytest.raises(
        RlcliError, match=r"^sampler.batch_T=1000000, .* are free but cannot be had \(.*allocate memory"
    ):
        allocate(spec, TableAgent(), 10**6, 10**6)


def test_batch_for_shared_memory_takes_none_of_the_process(monkeypatch):
    monkeypatch.setattr(machine, "available_memory", lambda: 0)
    setup = make_setup()
    shapes = batch_shapes(setup.spec, setup.agent, 10**6, 10**3)
    monkeypatch.undo()
    memory = share_like(batch_shapes(setup.spec, setup.agent, 2, 3), lambda line: None)
    expected, actual = allocate(setup.spec, setup.agent, 2, 3), shared_samples(memory)

    assert (10**6 + 1, 10**3, 4) == shapes.obs.shape
    assert_same_bytes(expected, actual)
    memory.close()


def _may_mount():
    probe = ["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/dev/shm"]
    return shutil.which("unshare") and subprocess.run(probe, capture_output=True).returncode == 0


@pytest.mark.parametrize("mode", ["cpu", "async"])
def test_small_dev_shm_is_no_bound(tmp_path, mode):
    if not _may_mount():
        pytest.skip("this system lets nobody but root mount a small /dev/shm")
    mount = 'exec unshare -rm bash -c \'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"\' bash "$@"'
    words = [f"sampler={mode}", "sampler.n_workers=2", "sampler.start_method=fork", "sampler.batch_B=200"]
    code, out, err = train(tmp_path, mount, *words, n_steps=3000)

    assert (0, "") == (code, err)
    assert "nameless file" not in out


# open files


def test_four_workers_need_few_files(tmp_path):
    words = ["sampler=gpu", "sampler.n_workers=4", "sampler.start_method=fork"]
    code, _, err = train(tmp_path, 'ulimit -n 64; exec "$@"', *words)

    assert (0, "") == (code, err)
    assert read_snapshot(tmp_path / "run" / "params.pkl")["cum_steps"] >= 200


def test_more_workers_than_files_are_refused_with_the_number_needed(tmp_path):
    words = ["sampler=gpu", "sampler.n_workers=40", "sampler.batch_B=40"]
    code, _, err = train(tmp_path, 'ulimit -n 64; exec "$@"', *words)

    assert 1 == code
    assert re.search(
        r"^sampler.n_workers: 40 workers need 160 open files, the limit is 64 \(ulimit -n 64\), \d+ are in use; "
        r"raise it \(ulimit -n 256\) or ask for less\n",
        err,
    )
    assert "Traceback" not in err


def test_files_that_an_async_sampler_lacks_are_told_without_a_traceback(tmp_path):
    words = ["sampler=async", "sampler.inner=gpu", "sampler.n_workers=40", "sampler.batch_B=40"]
    code, _, err = train(tmp_path, 'ulimit -n 64; exec "$@"', *words, "sampler.start_method=fork")

    assert 1 == code
    assert re.search(r"^sampler process 0 \(envs 0-39\): RlcliError: sampler.n_workers: 40 workers need 160 open", err)
    assert "Traceback" not in err


def test_process_that_cannot_be_started_is_told_in_one_line(tmp_path):
    far = tmp_path / ("long" * 25)  # no socket has so long a path
    far.mkdir()
    words = ["sampler=gpu", "sampler.n_workers=2", "sampler.start_method=forkserver"]
    code, _, err = train(tmp_path, f'TMPDIR={far} exec "$@"', *words)

    assert 1 == code
    assert err.startswith("worker 0 cannot be started (sampler.start_method=forkserver): AF_UNIX path too long")
    assert "Traceback" not in err
