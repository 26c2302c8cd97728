"""Whole runs that fail, are killed, or go on: what is said and saved, and that nothing is left of their processes."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

import rlcli
from rlcli.cli.main import main
from rlcli.core.rng import Purpose, integer_seed
from rlcli.core.tree import leaves
from rlcli.record.snapshot import read_snapshot
from rlcli.samplers import crew
from tests.fault_probes import ID
from tests.sampler_faults import children, soon

ROOT = Path(rlcli.__file__).parents[1]
ENV_3 = integer_seed(0, Purpose.ENV, 3)
EVAL_ENV_1 = integer_seed(0, Purpose.EVAL_ENV, 1)

# 25 steps an iteration, a row every 50
SMALL = ["env=gym", "sampler.batch_T=5", "sampler.batch_B=5", "sampler.max_decorrelation_steps=0", "device=cpu"]
SMALL += ["log_interval_steps=50", "logger.ui=plain", "model.mlp_hidden=[8]"]
A2C = ["algo=a2c", *SMALL]
DQN = ["algo=dqn", *SMALL, "algo.batch_size=8", "algo.min_steps_learn=50", "replay.size=2000"]
EVALUATING = ["eval.interval_steps=50", "eval.n_envs=3", "eval.n_episodes=7"]
"""The algo keys are dqn's."""


def env(fault="", **kwargs):
    """The words that ask for a FaultEnv; the fault happens to environment 3 unless ``victims`` says otherwise."""
    given = {"fault": fault, "victims": [ENV_3], "in_worker": True, **kwargs}
    return [f"env.id={ID}", "env.kwargs={" + ",".join(f"{k}: {_text(v)}" for k, v in given.items()) + "}"]


def _text(value):
    return f"'{value}'" if isinstance(value, str | Path) else str(value).lower()


def workers(mode, start_method="spawn", n=2):
    name, _, inner = mode.partition("-")
    return [f"sampler={name}", f"sampler.n_workers={n}", f"sampler.start_method={start_method}"] + (
        [f"sampler.inner={inner}"] if inner else []
    )


@pytest.fixture
def folder(tmp_path):
    before = children()
    yield tmp_path / "run"
    assert soon(lambda: children() <= before), children() - before


def log(folder):
    return (folder / "debug.log").read_text()


def cum_steps(folder):
    return read_snapshot(folder / "params.pkl")["cum_steps"]


# in this process


@pytest.mark.parametrize(
    ("mode", "start_method", "worker"),
    [("gpu", "spawn", "worker 1 (envs 3-4)"), ("alternating", "fork", "worker 0 (envs 0-1, 3)")],
)
def test_exception_in_a_worker_is_told_with_all_that_helps_and_the_snapshot_stays(
    folder, capsys, mode, start_method, worker
):
    code = main(["train", *A2C, *workers(mode, start_method), *env("raise"), f"run_dir={folder}"])
    err = capsys.readouterr().err

    assert 1 == code
    assert 'raise ValueError("marker-7")\nValueError: marker-7\n' in err
    assert f"\n{worker}: EnvError: env 3, step 50: step() raised ValueError: marker-7\n" in err
    assert re.search(r"\nin iteration \d+, sampling, step \d+\n", err)
    assert not re.search(r"rlcli/(samplers|envs|core|cli)/", err)
    assert err.startswith("Traceback")
    assert f"{worker}: EnvError: env 3, step 50" in log(folder)
    assert cum_steps(folder) >= 200


def test_exception_in_the_process_of_an_async_sampler_is_told(folder, capsys):
    code = main(["train", *DQN, *workers("async-serial", "fork"), *env("raise"), f"run_dir={folder}"])
    err = capsys.readouterr().err

    assert 1 == code
    assert "\nsampler process 0 (envs 0-4): EnvError: env 3, step 50: step() raised ValueError: marker-7\n" in err
    assert 'raise ValueError("marker-7")' in err


@pytest.mark.parametrize("fault", ["exit", "kill"])
def test_death_of_a_worker_ends_the_run_with_its_cause(folder, capsys, fault):
    code = main(["train", *A2C, *workers("gpu", "fork"), *env(fault), f"run_dir={folder}"])
    err = capsys.readouterr().err

    assert 1 == code
    told = {"exit": "exited with code 3, at step", "kill": "died by signal 9, SIGKILL (often: out of memory), at step"}[
        fault
    ]
    assert err.startswith(f"worker 1 (envs 3-4): {told}\nin iteration ")
    assert cum_steps(folder) >= 200


def test_death_in_an_evaluation_ends_the_run_with_its_cause(folder, capsys):
    dying = env("exit", at=5, victims=[EVAL_ENV_1])
    code = main(["train", *A2C, *workers("gpu", "fork"), *EVALUATING, *dying, f"run_dir={folder}"])
    err = capsys.readouterr().err

    assert 1 == code
    assert re.search(
        r"^worker 0 \(envs .*\): exited with code 3, at step\nafter iteration 0, evaluating, step 0\n", err, re.M
    )


def test_reset_that_never_returns_ends_the_run_by_name(folder, capsys):
    words = [*workers("gpu", "fork"), *env("hang", where="reset", at=2), "sampler.timeout_s=1.5"]
    code = main(["train", *A2C, *words, f"run_dir={folder}"])
    err = capsys.readouterr().err

    assert 1 == code
    assert "worker 1 (envs 3-4): no sign of life for " in err
    assert " s (sampler.timeout_s) at reset of env 3, asked to step\n" in err


@pytest.mark.parametrize(
    ("fault", "what"), [("nan reward", "step 50: reward is nan"), ("nan obs", "step 50: obs is nan")]
)
def test_number_that_is_not_finite_ends_the_run_and_the_snapshot_is_a_good_one(folder, capsys, fault, what):
    code = main(["train", *A2C, *workers("gpu", "fork"), *env(fault), f"run_dir={folder}"])
    err = capsys.readouterr().err

    assert 1 == code
    assert f"env 3, {what}, must be finite\nin iteration " in err
    weights = list(leaves(read_snapshot(folder / "params.pkl")["agent_state_dict"]))
    assert len(weights) >= 4
    assert all(bool(weight.isfinite().all()) for _, weight in weights)


@pytest.mark.parametrize("mode", ["gpu", "alternating", "async-gpu"])
def test_run_whose_worker_dies_once_ends_with_the_right_number_of_steps(folder, monkeypatch, mode):
    monkeypatch.setattr(crew, "_FIRST_BACKOFF_S", 0.02)
    words = [*workers(mode, "fork"), "sampler.on_worker_failure=restart", *env("exit"), "n_steps=600"]

    assert 0 == main(["train", *DQN, *words, f"run_dir={folder}"])
    assert 1 == log(folder).count("worker_restart: worker ")
    assert 600 <= cum_steps(folder) < 625
    assert (folder / "progress.csv").read_text().splitlines()[-1]


def test_run_whose_worker_always_dies_stops_and_says_so(folder, monkeypatch, capsys):
    monkeypatch.setattr(crew, "_FIRST_BACKOFF_S", 0.02)
    words = [*workers("gpu", "fork", 1), "sampler.on_worker_failure=restart", *env("exit", victims=[], at=10)]

    assert 1 == main(["train", *A2C, *words, f"run_dir={folder}"])
    assert (
        "worker 0 (envs 0-4): exited with code 3, at step; it had been started again 3 times within an hour "
        "(sampler.max_restarts)\n"
    ) in capsys.readouterr().err
    assert 3 == log(folder).count("worker_restart: ")


@pytest.mark.parametrize("mode", ["serial", "gpu"])
def test_env_of_the_old_api_is_refused_in_one_line(folder, capsys, mode):
    words = workers(mode) if mode != "serial" else ["sampler=serial"]
    code = main(["train", *A2C, *words, "env.id=tests.fault_probes:Old-v0", f"run_dir={folder}"])

    assert 1 == code
    assert capsys.readouterr().err.splitlines()[0] == (
        "step() must return (observation, reward, terminated, truncated, info), "
        "it returned 4 values, the old API of gym"
    )
    assert not folder.exists()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_env_that_reuses_its_arrays_and_infos_trains(folder, dtype):
    words = [*workers("gpu", "fork"), "env.id=tests.fault_probes:Careless-v0", f"env.kwargs={{dtype:{dtype}}}"]

    assert 0 == main(["train", *A2C, *words, "n_steps=200", f"run_dir={folder}"])
    assert 200 <= cum_steps(folder) < 225


# processes of their own


class Run:
    """``rlcli train`` in a process of its own, in a folder of its own, with its own folder for temporary files."""

    def __init__(self, folder, words, before=()):
        self.folder = folder / "run"
        # short: the path of a socket, of which forkserver makes one there, has no room for pytest's folders
        self.temporary = Path(tempfile.mkdtemp(prefix="rlcli-"))
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "TMPDIR": str(self.temporary)}
        command = [*before, sys.executable, "-m", "rlcli", "train", *words, f"run_dir={self.folder}"]
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            start_new_session=True,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def descendants(self):
        return psutil.Process(self.process.pid).children(recursive=True)

    def wait_for(self, ready):
        assert soon(lambda: ready() or self.process.poll() is not None, 120)
        assert self.process.poll() is None, self.process.communicate()

    def signal(self, number):
        """Send it; gives what came out, and asserts that all processes under it end."""
        below = self.descendants()
        assert below
        self.process.send_signal(number)
        try:
            out, err = self.process.communicate(timeout=20)
            assert soon(lambda: not [p for p in below if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]), below
        finally:
            for process in below:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        return out, err


@pytest.fixture
def start(tmp_path):
    runs = []

    def start(*words, before=()):
        runs.append(Run(tmp_path, words, before))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            os.killpg(run.process.pid, signal.SIGKILL)
            run.process.communicate()
        shutil.rmtree(run.temporary)


def unused_shared_memory():
    """Files in shared memory that no living process has: what was left behind."""
    files = set(Path("/dev/shm").iterdir()) if Path("/dev/shm").is_dir() else set()
    used = set()
    for process in psutil.process_iter() if files else ():
        with contextlib.suppress(psutil.Error, OSError):
            used |= {Path(memory.path) for memory in process.memory_maps()}
    return files - used


SLOW_LEARNING = """
import multiprocessing, pathlib, time
if multiprocessing.parent_process() is None:
    from rlcli.algos.replay_learner import ReplayLearner as DQN
    def update(self, samples, *, step):
        pathlib.Path("learning").touch()
        time.sleep(3600)
    DQN.update = update
"""


def until_building(run, mark):
    run.wait_for(mark.exists)


def until_sampling(run, mark):
    run.wait_for(lambda: (run.folder / "params.pkl").exists())


def until_learning(run, mark):
    run.wait_for((run.folder.parent / "learning").exists)


AT_START = env("hang", where="build", at=1, mark="mark")


@pytest.mark.parametrize(
    ("mode", "start_method", "until", "words"),
    [
        ("cpu", "spawn", until_building, AT_START),
        ("async-gpu", "forkserver", until_building, AT_START),
        ("gpu", "spawn", until_sampling, env()),
        ("async-cpu", "fork", until_sampling, env()),
        ("async-alternating", "fork", until_sampling, env("hang")),
        ("alternating", "forkserver", until_learning, [*env(), "imports=[slow_learning]"]),
        ("async-serial", "spawn", until_learning, [*env(), "imports=[slow_learning]"]),
    ],
)
def test_kill_of_the_run_leaves_nothing_and_the_next_can_start(start, folder, mode, start_method, until, words):
    (folder.parent / "slow_learning.py").write_text(SLOW_LEARNING)
    before = unused_shared_memory()
    run = start(*DQN, *workers(mode, start_method), *words)
    until(run, folder.parent / "mark")
    run.signal(signal.SIGKILL)

    assert soon(lambda: unused_shared_memory() <= before)
    # folders stay that Python's forkserver and torch have made there
    assert [] == [path for path in run.temporary.rglob("*") if path.is_file()]
    if until is until_sampling:
        assert cum_steps(folder) >= 50
        saved = folder.rename(folder.parent / "killed") / "params.pkl"
        again = ["train", *DQN, *workers(mode, "fork"), *env(), "n_steps=100", "--resume", str(saved)]
        assert 0 == main([*again, f"run_dir={folder}"])


@pytest.mark.parametrize(
    ("mode", "number", "code"),
    [
        ("gpu", signal.SIGINT, 130),
        ("alternating", signal.SIGTERM, 3),
        ("async-gpu", signal.SIGINT, 130),
        ("async-serial", signal.SIGTERM, 3),
    ],
)
def test_signal_while_sampling_ends_with_a_snapshot_and_leaves_no_child(start, mode, number, code):
    run = start(*DQN, *workers(mode, "fork"), *env())
    until_sampling(run, None)
    run.signal(number)

    assert code == run.process.returncode
    last = (run.folder / "progress.csv").read_text().splitlines()[-1]
    assert f"{cum_steps(run.folder)}" in last.split(",")


# the user's code and ALE's, in workers


USER_ENV = """
import gymnasium
from tests.fault_probes import CarelessEnv
gymnasium.register("Mine_{name}-v0", entry_point=CarelessEnv, disable_env_checker=True)
"""


@pytest.mark.parametrize(
    ("mode", "start_method", "how"),
    [
        ("gpu", "spawn", "id"),
        ("gpu", "forkserver", "imports"),
        ("gpu", "fork", "imports"),
        ("cpu", "forkserver", "id"),
        ("async-gpu", "spawn", "imports"),
    ],
)
def test_env_of_the_user_is_found_in_every_process(folder, monkeypatch, mode, start_method, how):
    name = f"{mode}_{start_method}".replace("-", "_")
    (folder.parent / f"my_{name}.py").write_text(USER_ENV.format(name=name))
    monkeypatch.chdir(folder.parent)
    monkeypatch.setattr(sys, "path", list(sys.path))
    named = [f"env.id=my_{name}:Mine_{name}-v0"]
    if how == "imports":
        named = [f"env.id=Mine_{name}-v0", f"imports=[my_{name}]"]

    assert 0 == main(["train", *DQN, *workers(mode, start_method, 1), *named, "n_steps=100", f"run_dir={folder}"])
    assert f"workers: 1 ({start_method}), " in log(folder)


@pytest.mark.parametrize("start_method", ["spawn", "forkserver", "fork"])
def test_ale_ids_are_known_in_every_process(folder, start_method):
    words = ["algo=a2c", "env=gym", "env.id=ALE/Pong-v5", "env.kwargs={obs_type:ram}", "sampler.batch_T=2"]
    words += ["sampler.batch_B=2", "sampler.max_decorrelation_steps=0", "model.mlp_hidden=[8]", "logger.ui=plain"]

    assert 0 == main(["train", *words, *workers("gpu", start_method), "n_steps=8", f"run_dir={folder}"])
