"""Environments and workers that fail, in every mode: who, where and why is told in time, and nothing is left."""

import contextlib
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from textwrap import indent

import psutil
import pytest

import rlcli
from rlcli.core.errors import ConfigError, EnvError, WorkerError
from rlcli.core.rng import Purpose, integer_seed
from rlcli.samplers import crew
from tests.fault_probes import CarelessConfig, FaultConfig, LambdaConfig
from tests.sampler_faults import (
    ALL,
    ASYNC,
    PARTS,
    WITH_WORKERS,
    built,
    children,
    collect,
    config,
    kill_when_marked,
    setup,
    soon,
)

ROOT = Path(rlcli.__file__).parents[1]
EVAL_ENV_1 = (integer_seed(0, Purpose.EVAL_ENV, 1),)


@pytest.fixture(autouse=True)
def no_process_is_left():
    before = children()
    yield
    assert soon(lambda: children() <= before), children() - before


@pytest.fixture
def look_often(monkeypatch):
    monkeypatch.setattr(crew, "_LOOK_S", 0.1)


def failure_of(mode, env, do=collect, said=None, **options):
    """The error that ends it."""
    with pytest.raises((EnvError, WorkerError)) as caught, built(mode, env, said, **options) as sampler:
        do(sampler)
    return caught.value


def evaluate(sampler):
    sampler.evaluate(0)


# exceptions and deaths


@pytest.mark.parametrize("mode", ALL)
def test_exception_in_an_env_arrives_with_worker_envs_step_and_traceback(mode):
    error = failure_of(mode, FaultConfig("raise"))

    assert "env 3, step 50: step() raised ValueError: marker-7" in str(error)
    if mode != "serial":
        assert PARTS[mode] == (error.rank, error.env_ids)
        assert "in _raise" in error.remote_traceback


@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_exception_arrives_whatever_the_start_method(start_method):
    error = failure_of("gpu", FaultConfig("raise"), start_method=start_method)

    assert "env 3, step 50: step() raised ValueError: marker-7" in str(error)


@pytest.mark.parametrize("mode", [*WITH_WORKERS, "async-serial"])
def test_exit_of_a_process_is_reported_with_its_code(mode):
    error = failure_of(mode, FaultConfig("exit"))

    assert PARTS[mode] == (error.rank, error.env_ids)
    assert "exited with code 3, at step" == error.reason


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_exit_is_seen_although_a_process_that_the_env_left_holds_the_connection(start_method, look_often):
    leaving = FaultConfig("exit but leave a child", sleep_s=4.0)
    error = failure_of("gpu", leaving, timeout_s=2.0, start_method=start_method)

    assert "exited with code 3, at step" == error.reason


@pytest.mark.parametrize("mode", WITH_WORKERS)
def test_kill_from_outside_while_sampling_is_reported_with_its_signal(mode, tmp_path):
    killer = kill_when_marked(tmp_path / "mark")
    error = failure_of(mode, FaultConfig("hang", mark=str(tmp_path / "mark")))
    killer.join()

    assert PARTS[mode] == (error.rank, error.env_ids)
    assert "worker" == error.name
    assert "died by signal 9, SIGKILL (often: out of memory), at step" == error.reason


@pytest.mark.parametrize("mode", WITH_WORKERS)
def test_kill_from_outside_while_evaluating_is_reported_with_its_signal(mode, tmp_path):
    killer = kill_when_marked(tmp_path / "mark")
    error = failure_of(mode, FaultConfig("hang", at=5, victims=EVAL_ENV_1, mark=str(tmp_path / "mark")), evaluate)
    killer.join()

    assert "died by signal 9, SIGKILL (often: out of memory), at step" == error.reason


@pytest.mark.parametrize("mode", ["cpu", "gpu", "alternating"])
def test_kill_between_two_batches_is_told_by_the_next(mode):
    with built(mode, FaultConfig()) as sampler:
        sampler.collect(0)
        (victim,) = [p for p in multiprocessing.active_children() if p.name == "rlcli-worker-1"]
        os.kill(victim.pid, signal.SIGKILL)
        victim.join()
        with pytest.raises(WorkerError, match=r"worker 1 .*SIGKILL"):
            sampler.collect(0)


@pytest.mark.parametrize("mode", ASYNC)
def test_kill_of_the_sampler_s_process_is_told_and_takes_its_workers_along(mode):
    def kill_and_collect(sampler):
        sampler.collect(0)
        (process,) = multiprocessing.active_children()
        os.kill(process.pid, signal.SIGKILL)
        collect(sampler)

    error = failure_of(mode, FaultConfig(), kill_and_collect)

    assert ("sampler process", 0) == (error.name, error.rank)
    assert error.reason.startswith("died by signal 9, SIGKILL (often: out of memory), at ")  # a step, or a reset


@pytest.mark.parametrize("mode", ["cpu", "gpu", "async-serial", "async-gpu"])
@pytest.mark.parametrize(("fault", "where"), [("raise", "reset"), ("exit", "build")])
def test_failure_at_the_start_leaves_nothing(mode, fault, where, tmp_path):
    once = str(tmp_path / "once") if where == "build" else ""
    error = failure_of(mode, FaultConfig(fault, where, at=1, once=once))

    told = {
        "raise": r"EnvError: env 3, step 0: reset\(\) raised ValueError: marker-7",
        "exit": r"exited with code 3, at constructing env \d",
    }
    assert re.fullmatch(told[fault], error.reason)


# waiting


@pytest.mark.parametrize("mode", WITH_WORKERS)
def test_reset_that_never_returns_is_named_and_stopped(mode, look_often):
    error = failure_of(mode, FaultConfig("hang", "reset", at=2), timeout_s=1.0)

    assert PARTS[mode] == (error.rank, error.env_ids)
    assert re.match(r"no sign of life for \d s \(sampler.timeout_s\) at reset of env 3, asked to", error.reason)


@pytest.mark.parametrize("mode", ["gpu", "async-cpu"])
def test_first_reset_that_never_returns_is_named_and_stopped(mode, look_often):
    error = failure_of(mode, FaultConfig("hang", "reset", at=1), timeout_s=1.0)

    assert "at reset of env 3" in error.reason


@pytest.mark.parametrize("mode", ["cpu", "gpu", "alternating", "async-serial"])
def test_step_that_hangs_is_stopped(mode, look_often):
    error = failure_of(mode, FaultConfig("hang"), timeout_s=1.0)

    assert PARTS[mode] == (error.rank, error.env_ids)
    assert "(sampler.timeout_s) at step" in error.reason


@pytest.mark.parametrize("mode", ["cpu", "gpu"])
def test_all_that_hang_are_named(mode, monkeypatch):
    monkeypatch.setattr(crew, "_LOOK_S", 0.4)
    error = failure_of(mode, FaultConfig("hang", at=1, victims=()), timeout_s=1.5)

    assert re.search(
        r"asked to (collect|step); quiet as well: worker [01] \(envs [-034 12]+\), \d s at step$", str(error)
    )
    assert "worker 0 (envs 0-2)" in str(error)
    assert "worker 1 (envs 3-4)" in str(error)


@pytest.mark.parametrize("mode", ["cpu", "async-serial", "async-cpu"])
def test_slow_steps_whose_batch_is_longer_than_the_limit_are_no_stall(mode, look_often):
    slow = FaultConfig("sleep", at=0, sleep_s=0.08)
    with built(mode, slow, timeout_s=1.0) as sampler:
        begin = time.monotonic()
        got = sampler.collect(0)

    assert time.monotonic() - begin > 1.0
    assert got.n_steps > 0


def test_slow_decorrelation_is_no_stall(look_often):
    slow = FaultConfig("sleep", at=0, sleep_s=0.08)
    begin = time.monotonic()
    with built("gpu", slow, timeout_s=1.0, max_decorrelation_steps=20):  # environment 3 takes 18
        assert time.monotonic() - begin > 1.0


@pytest.mark.parametrize("mode", ["cpu", "gpu", "alternating", "async-cpu"])
def test_slow_phase_of_the_parent_is_no_stall_of_its_workers(mode, monkeypatch):
    monkeypatch.setattr(crew, "_LOOK_S", 0.05)
    with built("serial", FaultConfig()) as sampler:
        n_steps = int(sampler.collect(0).samples.valid[:, 3].sum())
    with built(mode, FaultConfig("sleep", at=n_steps + 1, sleep_s=0.5), timeout_s=1.2) as sampler:
        sampler.collect(0)
        time.sleep(1.5)
        n_steps = sum(batch.n_steps for batch in collect(sampler, 2))

    assert n_steps > 0


@pytest.mark.parametrize("mode", ["cpu", "gpu", "async-gpu"])
def test_slow_constructor_is_waited_for_with_lines_that_name_it(mode, monkeypatch, look_often, tmp_path):
    monkeypatch.setattr(crew, "_QUIET_S", 0.3)
    said = []
    slow = FaultConfig("sleep", "build", at=1, sleep_s=1.0, once=str(tmp_path / "once"))
    with built(mode, slow, said) as sampler:
        n_steps = sampler.collect(0).n_steps

    assert n_steps > 0
    lines = [line for line in said if line.startswith("waiting for")]
    assert lines
    assert all(re.fullmatch(r"waiting for worker [01]: constructing env \d, \d s", line) for line in lines)


@pytest.mark.slow
def test_constructor_that_sleeps_20_s_is_told_after_10_s(tmp_path):
    said = []
    slow = FaultConfig("sleep", "build", at=1, sleep_s=20, once=str(tmp_path / "once"))
    with built("gpu", slow, said) as sampler:
        sampler.collect(0)

    assert [line for line in said if re.fullmatch(r"waiting for worker [01]: constructing env \d, 1\d s", line)]


# closing


def test_worker_that_does_not_leave_is_killed():
    begin = time.monotonic()
    with built("gpu", FaultConfig("hang", "close", at=1)) as sampler:
        sampler.collect(0)

    assert time.monotonic() - begin < 15


@pytest.mark.parametrize("mode", ALL)
def test_close_twice_is_harmless(mode):
    with built(mode, FaultConfig()) as sampler:
        sampler.close()


HELD = """
from tests.fault_probes import FaultConfig
from tests.sampler_faults import built
with built("gpu", FaultConfig("hold the interpreter", at=5, mark={mark!r}), start_method={start_method!r}) as sampler:
    sampler.collect(0)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can end such a worker")
@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_worker_in_a_long_call_that_lets_no_python_run_ends_with_its_parent(start_method, tmp_path):
    mark, script = tmp_path / "mark", tmp_path / "script.py"
    script.write_text(
        f"if __name__ == '__main__':\n{indent(HELD.format(mark=str(mark), start_method=start_method), '  ')}"
    )
    parent = subprocess.Popen([sys.executable, script], env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        assert soon(lambda: mark.exists() and mark.read_text().endswith("\n"), 60)
    finally:
        parent.kill()
        parent.wait()

    worker = int(mark.read_text())
    ended = soon(lambda: not psutil.pid_exists(worker), 2)
    if not ended:
        os.kill(worker, signal.SIGKILL)

    assert ended


def test_workers_that_a_thread_started_outlive_it():
    made = []
    thread = threading.Thread(target=lambda: made.append(config("gpu").build(setup(FaultConfig()))))
    thread.start()
    thread.join()
    with contextlib.closing(made[0]) as sampler:
        assert sampler.collect(0).n_steps > 0


def test_worker_whose_parent_ended_before_it_could_be_watched_ends_too():
    code = "import os; from rlcli.samplers import worker; ids = iter([7, 1]); os.getppid = lambda: next(ids); "
    code += "worker._end_with_maker(7)"

    assert 1 == subprocess.run([sys.executable, "-c", code], timeout=60).returncode


def test_more_workers_than_envs_are_not_started():
    with built("gpu", FaultConfig(), n_workers=8):
        assert 5 == len(multiprocessing.active_children())


# numbers that nothing can be learned from


@pytest.mark.parametrize("mode", ALL)
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("nan reward", "env 3, step 50: reward is nan, must be finite"),
        ("inf reward", "env 3, step 50: reward is -inf, must be finite"),
        ("nan obs", "env 3, step 50: obs is nan, must be finite"),
    ],
)
def test_reward_or_observation_that_is_not_finite_names_env_and_step(mode, fault, told):
    assert told in str(failure_of(mode, FaultConfig(fault)))


@pytest.mark.parametrize("mode", ALL)
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("nan reward", "evaluation env 1, step 4: reward is nan, must be finite"),
        ("nan obs", "evaluation env 1, step 4: obs[3] is nan, must be finite"),
    ],
)
def test_reward_or_observation_that_is_not_finite_ends_an_evaluation(mode, fault, told):
    assert told in str(failure_of(mode, FaultConfig(fault, at=4, victims=EVAL_ENV_1), evaluate))


# environments that take liberties


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", ["serial", "cpu", "gpu", "alternating", "async-gpu"])
def test_env_may_reuse_its_arrays_and_infos_and_have_wider_floats(mode, dtype):
    with built(mode, CarelessConfig(dtype)) as sampler:
        samples = collect(sampler, 1)[0].samples

    expected = [[0, t] for t in range(8)] + [[1, t] for t in range(8)] + [[2, t] for t in range(5)]
    assert [expected] * 5 == samples.obs.transpose(0, 1).tolist()


@pytest.mark.parametrize("mode", ["cpu", "gpu", "alternating", "async-serial", "async-cpu"])
@pytest.mark.parametrize("start_method", ["spawn", "fork"])
def test_config_that_cannot_be_sent_names_the_object(mode, start_method):
    with pytest.raises(ConfigError, match=r"^the run's setup\.(setup\.|groups\.).*shaping \(function\) cannot be sent"):
        config(mode, start_method=start_method).build(setup(LambdaConfig(lambda r: r)))


# what is told


@pytest.mark.parametrize("mode", ["cpu", "gpu", "alternating", "async-cpu", "async-gpu"])
def test_map_of_the_workers_and_the_start_method_are_told_once(mode):
    said = []
    with built(mode, FaultConfig(), said) as sampler:
        collect(sampler, 2)

    (line,) = [line for line in said if line.startswith("workers: ")]
    assert re.fullmatch(r"workers: 2 \(fork\), (pinned to CPUs \d+, \d+|not pinned), 1 thread each, envs .*", line)


def test_process_of_an_async_sampler_is_told_with_its_start_method():
    said = []
    with built("async-serial", FaultConfig(), said):
        pass

    assert ["sampling in a process of its own (fork), inner sampler: serial"] == said


def test_close_that_a_second_ctrl_c_cuts_short_leaves_no_worker():
    # One that is left would keep the process from ending: multiprocessing waits for it at exit.
    before = children()

    def second_ctrl_c(number, frame):
        raise KeyboardInterrupt

    handler = signal.signal(signal.SIGUSR1, second_ctrl_c)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        sampler = config("gpu", start_method="fork").build(setup(FaultConfig(), []))
        for process in children() - before:
            process.suspend()  # does not hear that it is to end, so that close waits
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            sampler.close()
    finally:
        timer.cancel()
        signal.signal(signal.SIGUSR1, handler)

    assert children() <= before
