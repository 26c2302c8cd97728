"""A whole run, twice: what is promised in docs/determinism.md."""

import csv

import pytest
import torch

import rlcli
from rlcli.record.snapshot import read_snapshot
from rlcli.record.stats import MACHINE_COLUMNS

TINY = ["n_steps=1500", "log_interval_steps=250", "logger.ui=quiet", "sampler.batch_B=5"]
DQN = ["algo=dqn", "env=cartpole", "algo.min_steps_learn=200", "replay.size=1000"]
A2C = ["algo=a2c", "env=cartpole"]
EVAL = ["eval.interval_steps=500", "eval.n_episodes=3", "eval.n_envs=2"]


def rows(folder, without=()):
    with (folder / "progress.csv").open(newline="") as file:
        return [
            {k: v for k, v in row.items() if k not in (*MACHINE_COLUMNS, *without) and not k.startswith("Eval")}
            for row in csv.DictReader(file)
        ]


def weights(folder):
    return read_snapshot(folder / "params.pkl")["agent_state_dict"]["model"]


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("algo", [DQN, A2C], ids=["dqn", "a2c"])
def test_same_seed_gives_the_same_run_and_another_seed_another(algo, tmp_path):
    first, second, other = (
        rlcli.train([*algo, *TINY, "sampler=serial", f"seed={seed}", f"run_dir={tmp_path / name}"])
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )

    assert rows(first) == rows(second)
    assert same(weights(first), weights(second))
    assert rows(first) != rows(other)
    assert len(rows(first)) == 6


def test_pong_run_repeats_itself(tmp_path):
    small = ["n_steps=400", "log_interval_steps=100", "algo.min_steps_learn=100", "replay.size=1000", "seed=3"]
    first, second = (
        rlcli.train(["env=pong", "env.sticky=0.25", *small, "sampler.batch_B=2", f"run_dir={tmp_path / name}"])
        for name in ("a", "b")
    )

    assert rows(first) == rows(second)
    assert same(weights(first), weights(second))


def test_evaluation_on_or_off_leaves_training_as_it_was(tmp_path):
    off = rlcli.train([*DQN, *TINY, f"run_dir={tmp_path / 'off'}"])
    on = rlcli.train([*DQN, *TINY, *EVAL, f"run_dir={tmp_path / 'on'}"])

    assert rows(off) == [row for row in rows(on) if row["Iteration"] != "0"]
    assert same(weights(off), weights(on))


def test_warm_start_begins_with_the_sources_last_evaluation(tmp_path):
    def evaluations(folder):
        with (folder / "progress.csv").open(newline="") as file:
            return [float(row["EvalReturnAverage"]) for row in csv.DictReader(file)]

    source = rlcli.train([*DQN, *TINY, *EVAL, f"run_dir={tmp_path / 'source'}"])
    fresh = rlcli.train([*DQN, *TINY, *EVAL, f"run_dir={tmp_path / 'new'}", f"resume={source / 'params.pkl'}"])

    assert evaluations(source)[-1] == evaluations(fresh)[0] != evaluations(source)[0]
    assert 0 == int(rows(fresh)[0]["CumSteps"]) < int(rows(fresh)[1]["CumSteps"]) < 500  # counters begin anew


def test_warm_start_into_another_network_names_the_shapes(tmp_path):
    from rlcli.core.errors import ConfigError

    source = rlcli.train([*DQN, *TINY, f"run_dir={tmp_path / 'source'}"])

    with pytest.raises(ConfigError) as caught:
        rlcli.train(
            [*DQN, "model.mlp_hidden=[256,64]", f"resume={source / 'params.pkl'}", f"run_dir={tmp_path / 'new'}"]
        )

    text = str(caught.value)
    assert "trunk.mlp.0.weight: file has (64, 4), this run needs (256, 4)" in text
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("mode", "files"),
    [
        ("none", []),
        ("last", ["params.pkl"]),
        ("all", [f"itr_{i}.pkl" for i in range(1, 11)]),
        ("gap", ["itr_3.pkl", "itr_6.pkl", "itr_9.pkl", "itr_10.pkl"]),
        ("last_gap", ["params.pkl", "itr_3.pkl", "itr_6.pkl", "itr_9.pkl"]),
    ],
)
def test_snapshot_modes_leave_the_documented_files(mode, files, tmp_path):
    # 2 x 5 steps an iteration less the filler rows of the games that end: CartPole's last 8 steps at least
    ten = ["sampler.batch_T=2", "sampler.batch_B=5", "sampler.max_decorrelation_steps=0"]
    words = [f"snapshot_mode={mode}", "snapshot_gap=3", "log_interval_steps=1", f"run_dir={tmp_path / 'run'}"]

    folder = rlcli.train([*DQN, *ten, "n_steps=91", *words])

    assert sorted(files) == sorted(p.name for p in folder.glob("*.pkl"))
    always = {"config.yaml", "command.txt", "params.json", "versions.json", "progress.csv", "debug.log"}
    always |= {"checkpoint", "hashes.jsonl"}
    assert always == {p.name for p in folder.iterdir()} - set(files)
