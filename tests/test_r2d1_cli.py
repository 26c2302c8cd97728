"""R2D1 from the command line."""

import csv
import json

import pytest

import rlcli
from rlcli.core.errors import ConfigError

QUIET = ["logger.ui=quiet", "device=cpu", "torch_threads=1"]
TINY = [
    *QUIET,
    "model.recurrent_hidden=8",
    "algo.head_hidden=[8]",
    "algo.batch_size=4",
    "algo.min_steps_learn=40",
    "algo.replay_ratio=2",
    "replay.burn_in_T=3",
    "replay.train_T=4",
    "algo.n_step_return=2",
    "replay.state_interval=4",
]


def rows(run):
    with (run / "progress.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("env", ["cartpole", "acrobot"])
def test_no_other_key_than_algo_and_env_is_needed(env, tmp_path):
    found = rows(rlcli.train(["algo=r2d1", f"env={env}", "n_steps=160", "logger.ui=quiet", f"run_dir={tmp_path}/run"]))

    assert 160 <= int(found[-1]["CumSteps"])


def test_serial_and_parallel_samplers_gather_the_same_rows(tmp_path):
    words = ["algo=r2d1", "env=cartpole_masked", *TINY, "n_steps=300", "sampler.batch_B=4", "hash_iterations=100"]
    modes = {"serial": [], "cpu": ["sampler.n_workers=2", "sampler.start_method=fork"]}
    gathered = {}
    for mode, more in modes.items():
        run = rlcli.train([*words, f"sampler={mode}", *more, f"run_dir={tmp_path}/{mode}"])
        lines = [json.loads(line)["samples"] for line in (run / "hashes.jsonl").read_text().splitlines()]
        # The last digits of values and states hang on how many rows a network is given at a time.
        gathered[mode] = [
            {k: v for k, v in line.items() if k.split(".")[0] not in ("record", "state")} for line in lines
        ]
    assert gathered["serial"] == gathered["cpu"]
    assert {"obs.obs", "obs.previous_action", "action", "reward", "valid"} <= set(gathered["serial"][0])
    assert len(gathered["serial"]) > 5


@pytest.mark.parametrize(
    ("word", "match"),
    [
        ("env=pendulum", r"algo: r2d1 needs one Discrete action, env has Box"),
        ("model.recurrent=none", r"model.recurrent: algo r2d1 needs a recurrent model"),
        ("replay=uniform", r"replay: it draws transitions, algo r2d1 learns from sequences"),
        ("replay.size=100", r"replay.size: 100 holds no 125-row sequence"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(word, match, tmp_path):
    words = {"env": "env=cartpole"} | {word.partition("=")[0]: word}
    with pytest.raises(ConfigError, match=match):
        rlcli.train(["algo=r2d1", *words.values(), "n_steps=100", f"run_dir={tmp_path}/run"])
    assert not (tmp_path / "run").exists()
