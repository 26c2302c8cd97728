"""A run that goes on from a checkpoint is the run that was never stopped."""

import csv
import json
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import rlcli
from rlcli.core.errors import ConfigError
from rlcli.record.stats import MACHINE_COLUMNS

DQN = [
    "algo=dqn",
    "algo.min_steps_learn=100",
    "replay.size=300",
    "algo.target_update_interval=10",
    "algo.replay_ratio=2",
]
PRIORITIZED = ["replay=prioritized", "replay.beta_steps=500"]  # by default beta moves to the end of the budget
R2D1 = [
    *DQN[1:],
    "model.recurrent_hidden=8",
    "algo.head_hidden=[8]",
    "algo.batch_size=4",
    "replay.burn_in_T=3",
    "replay.train_T=5",
    "replay.state_interval=4",
    "replay.beta_final=1",
    "replay.beta_steps=500",
]
ALGOS = {
    "dqn": DQN,
    "dqn_prioritized": [*DQN, *PRIORITIZED],
    "cat_dqn": ["algo=cat_dqn", *DQN[1:]],
    "iqn": ["algo=iqn", *DQN[1:]],
    "rainbow": ["algo=rainbow", *DQN[1:], *PRIORITIZED],
    "r2d1": ["algo=r2d1", *R2D1],
    "a2c": ["algo=a2c"],
    "a2c_lstm": ["algo=a2c", "model.recurrent=lstm", "model.recurrent_hidden=8", "model.normalize_obs=true"],
    "ppo": ["algo=ppo", "algo.normalize_reward=true", "model.normalize_obs=true"],
    "ppo_lstm": ["algo=ppo", "model.recurrent=lstm", "model.recurrent_hidden=8"],
}
"""Every algorithm, with what makes it learn within a few hundred steps."""
IN_EVERY_MODE = ("dqn", "a2c", "ppo_lstm")
"""Those that the fast tests try in every mode; the others are tried in serial, and with the slow tests in the rest."""
MODES = {
    "serial": ["sampler=serial"],
    "cpu": ["sampler=cpu", "sampler.n_workers=2", "sampler.start_method=fork"],
    "gpu": ["sampler=gpu", "sampler.n_workers=2", "sampler.start_method=fork"],
    "alternating": ["sampler=alternating", "sampler.n_workers=2", "sampler.start_method=fork"],
}
CARTPOLE = ["env=cartpole", "sampler.batch_B=4", "model.mlp_hidden=[16]", "device=cpu", "torch_threads=1"]
PONG = [
    "env=pong",
    "env.sticky=0.25",
    "sampler.batch_B=4",
    "env.image_size=36",
    "model.conv_channels=[4,4,4]",
    "model.conv_hidden=16",
    "device=cpu",
    "torch_threads=1",
]
MUJOCO = ["env=gym", "env.id=tests.mujoco_env:CheetahGears-v0", *CARTPOLE[1:]]
LONGER = [("pong", "gpu"), ("pong", "alternating"), ("mujoco", "gpu")]
"""With the slow tests: what they would find, the others and CartPole do."""
LOGGED = ["log_interval_steps=90", "logger.ui=quiet"]


def rows(run):
    """progress.csv but for what measures the machine."""
    with (run / "progress.csv").open(newline="") as file:
        return [{k: v for k, v in row.items() if k not in MACHINE_COLUMNS} for row in csv.DictReader(file)]


def checkpoint_steps(run):
    return sorted(int(path.name) for path in (run / "checkpoint").iterdir() if path.name.isdigit())


@pytest.fixture
def train(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(name, *words):
        given = {word.partition("=")[0]: word for word in [*LOGGED, *words]}  # the last of equal keys
        return rlcli.train([*given.values(), f"run_dir={name}"])

    return run


# the same as without a stop


@pytest.mark.parametrize(
    ("algo", "mode"),
    [
        pytest.param(algo, mode, marks=[] if mode == "serial" or algo in IN_EVERY_MODE else [pytest.mark.slow])
        for algo in ALGOS
        for mode in MODES
    ],
)
def test_half_and_resume_equal_the_whole_on_cartpole(train, algo, mode):
    words = [*CARTPOLE, *ALGOS[algo], *MODES[mode], "eval.interval_steps=200", "eval.n_envs=2", "eval.n_episodes=2"]
    whole = train("whole", *words, "n_steps=600")
    halves = train("halves", *words, "n_steps=300")

    rlcli.resume(halves, ["n_steps=600"])

    assert rows(whole) == rows(halves)
    assert len({row["WeightsHash"] for row in rows(whole)}) > 3
    assert 600 <= int(rows(whole)[-1]["CumSteps"])


@pytest.mark.parametrize(
    ("env", "mode"),
    [
        pytest.param(env, mode, id=f"{name}-{mode}", marks=[pytest.mark.slow] if (name, mode) in LONGER else [])
        for name, env in (("pong", PONG), ("mujoco", MUJOCO))
        for mode in MODES
    ],
)
def test_half_and_resume_equal_the_whole_on_pong_and_mujoco(train, env, mode):
    words = [*env, *DQN, *MODES[mode]]
    whole = train("whole", *words, "n_steps=400")
    halves = train("halves", *words, "n_steps=200")

    rlcli.resume(halves, ["n_steps=400"])

    assert rows(whole) == rows(halves)


@pytest.mark.parametrize("backend", ["python", "ale"])
def test_where_environments_cannot_be_saved_they_begin_anew_in_both_runs(train, monkeypatch, backend):
    if backend == "python":
        monkeypatch.setattr("rlcli.envs.state_trial.trial", lambda *args: "it was so decided")
    words = [*PONG, *DQN, "sampler=serial", f"env.backend={backend}", "checkpoint_interval_steps=100"]
    whole = train("whole", *words, "n_steps=400")
    halves = train("halves", *words, "n_steps=200")

    rlcli.resume(halves, ["n_steps=400"])

    assert rows(whole) == rows(halves)
    assert "all environments begin new episodes at each" in (whole / "debug.log").read_text()


def test_environments_that_begin_anew_see_other_games_than_before(train, monkeypatch):
    monkeypatch.setattr("rlcli.envs.state_trial.trial", lambda *args: "it was so decided")
    words = [*CARTPOLE, *DQN, "sampler=serial", "n_steps=300", "hash_iterations=100"]
    cut = train("cut", *words, "checkpoint_interval_steps=100")
    uncut = train("uncut", *words, "checkpoint_interval_steps=0")

    first, second = ((run / "hashes.jsonl").read_text().splitlines() for run in (cut, uncut))
    assert first[:5] == second[:5]
    assert first[5:] != second[5:]


def test_a_run_that_ends_off_the_grid_leaves_no_row_of_its_own_behind(train):
    words = [*CARTPOLE, *DQN, "sampler=serial", "eval.interval_steps=130", "eval.n_envs=2", "eval.n_episodes=2"]
    halves = train("halves", *words, "n_steps=217")
    stopped_at = rows(halves)[-1]["CumSteps"]
    whole = train("whole", *words, "n_steps=500")

    rlcli.resume(halves, ["n_steps=500"])

    assert rows(whole) == rows(halves)
    assert stopped_at not in [row["CumSteps"] for row in rows(halves)]


def test_resets_between_batches_go_on_exactly_in_other_modes_too(train):
    words = [*CARTPOLE, *DQN, "sampler.reset=between_batches", "sampler.batch_T=20"]
    whole = train("whole", *words, "sampler=serial", "n_steps=600")
    halves = train("halves", *words, *MODES["cpu"], "n_steps=300")

    rlcli.resume(halves, ["n_steps=600", "sampler=serial"])

    assert rows(whole) == rows(halves)


def test_workers_may_be_more_or_fewer(train):
    words = [*CARTPOLE, *DQN]
    whole = train("whole", *words, *MODES["cpu"], "n_steps=600")
    parts = train("parts", *words, *MODES["cpu"], "n_steps=200")

    rlcli.resume(parts, ["n_steps=400", "sampler.n_workers=1"])
    rlcli.resume(parts, ["n_steps=600", "sampler.n_workers=3"])

    assert [row["CumSteps"] for row in rows(whole)] == [row["CumSteps"] for row in rows(parts)]
    for column in ("ReturnAverage", "CumCompletedTrajs", "CumUpdates"):
        assert np.allclose(*([float(r[column]) for r in rows(run)] for run in (whole, parts)), equal_nan=True)


def test_async_goes_on_with_counters_ratio_and_schedules(train):
    words = [*CARTPOLE, *DQN, "sampler=async", "sampler.inner=serial", "epsilon.end_steps=800"]
    run = train("run", *words, "n_steps=300")
    before = rows(run)[-1]

    rlcli.resume(run, ["n_steps=900"])

    after = rows(run)
    steps = [int(row["CumSteps"]) for row in after]
    assert sorted(set(steps)) == steps
    assert steps[-1] >= 900
    assert int(after[-1]["CumUpdates"]) > int(before["CumUpdates"])
    assert abs(float(after[-1]["ReplayRatio"]) - 2) < 0.5
    assert float(after[-1]["Epsilon"]) < float(before["Epsilon"])


# killed


def start(words, cwd):
    program = [sys.executable, "-m", "rlcli", *words]
    return subprocess.Popen(program, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)


def kill_at(process, run, step, timeout_s=60.0):
    """SIGKILL as soon as a checkpoint of ``step`` or later is there."""
    end = time.monotonic() + timeout_s
    while process.poll() is None and time.monotonic() < end:
        if (run / "checkpoint").is_dir() and max(checkpoint_steps(run), default=-1) >= step:
            process.kill()
            process.communicate()
            return
        time.sleep(0.002)
    raise AssertionError(f"no checkpoint: {process.communicate()[0].decode()}")


@pytest.mark.parametrize("mode", ["serial", "cpu"])
def test_killed_and_resumed_equals_the_whole(train, tmp_path, mode):
    words = [*CARTPOLE, *DQN, *MODES[mode], "n_steps=1500", "checkpoint_interval_steps=200"]
    whole = train("whole", *words)

    kill_at(start(["train", *LOGGED, *words, "run_dir=killed"], tmp_path), tmp_path / "killed", 400)
    run = rlcli.resume("killed")

    assert rows(whole) == rows(run)
    assert f"go on from step {checkpoint_steps(run)[-1]:,}" not in (run / "debug.log").read_text()


@pytest.mark.parametrize("by", ["SIGUSR1", "SIGTERM", "max_time=1s"])
def test_stopped_and_resumed_equals_the_whole(train, tmp_path, by):
    limit = [by] if "=" in by else []
    budget = "n_steps=9000" if limit else "n_steps=2500"  # enough to be stopped on any machine
    words = [*CARTPOLE, *DQN, "sampler=serial", budget, "eval.interval_steps=700", "eval.n_episodes=2"]
    whole = train("whole", *words)

    process = start(["train", *LOGGED, *words, *limit, "run_dir=stopped"], tmp_path)
    while process.poll() is None and not limit:
        if (tmp_path / "stopped" / "progress.csv").exists() and len(rows(tmp_path / "stopped")) > 3:
            process.send_signal(getattr(signal, by))
            break
    said = process.communicate()[0].decode()
    run = rlcli.resume(tmp_path / "stopped", ["max_time=null"] if limit else [])

    assert 3 == process.returncode
    assert f"stopped by {by}" in said
    assert f"rlcli resume {run}" in said
    assert rows(whole) == rows(run)


# what may be changed


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """A run of 200 steps, to be copied."""
    folder = tmp_path_factory.mktemp("half") / "run"
    return rlcli.train([*LOGGED, *CARTPOLE, *DQN, "sampler=serial", "n_steps=200", f"run_dir={folder}"])


@pytest.fixture
def run(half, tmp_path):
    return shutil.copytree(half, tmp_path / "a run, with=signs")


def test_a_spent_budget_is_told_and_changes_nothing(run, capsys):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}

    rlcli.resume(run)

    assert "already at 213 of 200 steps" in capsys.readouterr().out
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_a_changed_learning_rate_is_told_kept_and_used(run):
    rlcli.resume(run, ["n_steps=400", "algo.learning_rate=5e-4"])

    assert {"0.0001", "0.0005"} >= {row["LearningRate"] for row in rows(run)}
    assert "0.0005" == rows(run)[-1]["LearningRate"]
    (entry,) = [json.loads(line) for line in (run / "resumes.jsonl").read_text().splitlines()]
    assert {"n_steps": [200, 400], "algo.learning_rate": [1e-4, 5e-4]} == entry["changes"]
    assert "changed: algo.learning_rate: 0.0001 -> 0.0005" in (run / "debug.log").read_text()
    assert "learning_rate: 0.0005" in (run / "config.yaml").read_text()


@pytest.mark.parametrize(
    "override",
    [
        "model.mlp_hidden=[32]",
        "env.id=Acrobot-v1",
        "seed=3",
        "sampler.batch_B=8",
        "replay.size=500",
        "algo.dueling=true",
    ],
)
def test_a_locked_key_is_refused_by_name_and_nothing_is_touched(run, override):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}

    with pytest.raises(ConfigError, match=rf"^{override.partition('=')[0]}: .* is locked"):
        rlcli.resume(run, ["n_steps=400", override])

    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_a_wrong_key_is_refused_with_the_nearest(run):
    with pytest.raises(ConfigError, match="did you mean"):
        rlcli.resume(run, ["n_stepss=400"])


def test_without_the_replay_it_is_filled_by_the_loaded_policy_before_learning_goes_on(train):
    words = [*CARTPOLE, *DQN, "sampler=serial", "checkpoint_replay=false", "log_interval_steps=20"]
    run = train("run", *words, "n_steps=300")
    updates = int(rows(run)[-1]["CumUpdates"])

    rlcli.resume(run, ["n_steps=500"])
    rlcli.resume(run, ["n_steps=700"])

    assert not (run / "checkpoint" / "replay").exists()
    steps = np.array([int(row["CumSteps"]) for row in rows(run)])
    n_updates = np.array([int(row["CumUpdates"]) for row in rows(run)])
    assert {updates} == set(n_updates[(steps >= 300) & (steps < 390)])
    second = n_updates[steps < 500][-1]
    assert second > updates
    assert 1 == len(set(n_updates[(steps >= 520) & (steps < 590)]))
    assert n_updates[-1] > second
    assert all(float(row["Epsilon"]) < 1 for row in rows(run) if int(row["CumSteps"]) > 300)


def test_evaluation_may_be_switched_on(run):
    rlcli.resume(run, ["n_steps=400", "eval.interval_steps=100", "eval.n_episodes=2", "eval.n_envs=2"])

    assert "nan" == rows(run)[0]["EvalReturnAverage"]
    assert "nan" != rows(run)[-1]["EvalReturnAverage"]


# damage


def test_a_damaged_checkpoint_is_left_out_for_the_one_before(train):
    words = [*CARTPOLE, *DQN, "sampler=serial", "n_steps=400"]
    whole = train("whole", *words)
    run = train("run", *words, "checkpoint_interval_steps=100", "n_steps=300")
    state = run / "checkpoint" / f"{checkpoint_steps(run)[-1]:012d}" / "state.tree"
    state.write_bytes(state.read_bytes()[: state.stat().st_size // 2])

    rlcli.resume(run, ["n_steps=400"])

    assert rows(whole) == rows(run)
    assert "checkpoint left out: " in (run / "debug.log").read_text()


@pytest.mark.parametrize("damage", ["empty", "cut mid-line", "rows beyond", "gone"])
def test_progress_csv_is_mended(train, damage):
    words = [*CARTPOLE, *DQN, "sampler=serial"]
    whole = train("whole", *words, "n_steps=500")
    run = train("run", *words, "n_steps=300")
    file = run / "progress.csv"
    text = file.read_text()
    if damage == "gone":
        file.unlink()
    else:
        file.write_text({"empty": "", "cut mid-line": text[:-40], "rows beyond": text + text[-60:]}[damage])

    rlcli.resume(run, ["n_steps=500"])

    assert rows(whole) == rows(run)
    assert 1 == (run / "progress.csv").read_text().count("CumSteps")


def test_another_format_number_is_refused_by_name(run):
    for manifest in run.glob("checkpoint/*/manifest.json"):
        manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 7'))

    with pytest.raises(ConfigError, match=r"has format 7, this rlcli reads format 1"):
        rlcli.resume(run, ["n_steps=400"])


def test_a_run_killed_before_its_first_checkpoint_begins_again(run, half):
    shutil.rmtree(run / "checkpoint")
    header = (run / "progress.csv").read_text().splitlines()[0]
    (run / "progress.csv").write_text(f"{header}\n")

    rlcli.resume(run, ["n_steps=200"])

    assert rows(half) == rows(run)


def test_a_run_with_rows_and_no_checkpoint_is_not_begun_again(run):
    shutil.rmtree(run / "checkpoint")
    before = (run / "progress.csv").read_bytes()

    with pytest.raises(ConfigError, match="has rows but no checkpoint"):
        rlcli.resume(run, ["n_steps=400"])

    assert before == (run / "progress.csv").read_bytes()


def test_the_replay_may_be_left_out_and_taken_in_again(run):
    rlcli.resume(run, ["n_steps=400", "checkpoint_replay=false"])
    rlcli.resume(run, ["n_steps=600", "checkpoint_replay=true"])

    rlcli.resume(run, ["n_steps=700"])

    assert 700 <= int(rows(run)[-1]["CumSteps"])


def test_a_change_outlives_a_kill_before_the_next_checkpoint(run):
    before = shutil.copytree(run / "checkpoint", run.parent / "checkpoint")
    rlcli.resume(run, ["n_steps=400", "algo.learning_rate=5e-4"])
    shutil.rmtree(run / "checkpoint")
    before.rename(run / "checkpoint")

    rlcli.resume(run)

    assert "0.0005" == rows(run)[-1]["LearningRate"]
    assert "rows after step 213 dropped, they come again" in (run / "debug.log").read_text()


def test_a_device_that_is_asked_for_and_not_there_is_refused(run):
    with pytest.raises(ConfigError, match=r"^device: 'cuda:99' is not there"):
        rlcli.resume(run, ["n_steps=400", "device=cuda:99"])


def test_another_sampler_may_go_on_also_async(run):
    rlcli.resume(run, ["n_steps=400", "sampler=async", "sampler.inner=serial"])
    rlcli.resume(run, ["n_steps=600", "sampler=gpu", "sampler.n_workers=1", "sampler.start_method=fork"])

    steps = [int(row["CumSteps"]) for row in rows(run)]
    assert sorted(set(steps)) == steps
    assert 600 <= steps[-1]


def test_a_run_that_still_runs_is_not_gone_on_with(train, tmp_path):
    words = [*LOGGED, *CARTPOLE, *DQN, "sampler=serial", "n_steps=1e6", "run_dir=run", "checkpoint_interval_steps=100"]
    process = start(["train", *words], tmp_path)
    try:
        while not (tmp_path / "run" / "checkpoint").is_dir() or not checkpoint_steps(tmp_path / "run"):
            assert process.poll() is None
            time.sleep(0.01)
        with pytest.raises(ConfigError, match="is being written by another process"):
            rlcli.resume("run")
    finally:
        process.kill()
        process.communicate()
