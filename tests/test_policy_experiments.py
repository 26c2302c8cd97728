"""Every reference configuration of A2C and PPO takes two iterations."""

import csv

import pytest

import rlcli
from rlcli.core.errors import ConfigError

TINY = {
    "cartpole_a2c": (80, []),
    "cartpole_ppo": (64, ["sampler.batch_T=8"]),
    "cartpole_masked_ppo_lstm": (128, ["sampler.batch_T=8"]),
    "mujoco_ppo": (64, ["sampler.batch_T=64"]),
    "atari_ppo": (16, ["sampler.batch_T=4", "sampler.batch_B=4"]),
    "atari_a2c": (16, ["sampler.batch_T=4", "sampler.batch_B=4"]),
    "atari_lstm_ppo": (16, ["sampler.batch_T=4", "sampler.batch_B=4"]),
    "atari_lstm_a2c": (16, ["sampler.batch_T=4", "sampler.batch_B=4"]),
}
"""By experiment: rows of a batch, and what makes it so small."""
QUIET = ["logger.ui=quiet", "eval.interval_steps=0", "device=cpu", "log_interval_steps=1"]


def rows(run):
    with (run / "progress.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("experiment", TINY)
def test_reference_config_takes_two_iterations(experiment, tmp_path):
    if experiment.startswith("mujoco"):
        pytest.importorskip("mujoco")
    n_rows, words = TINY[experiment]
    if experiment.startswith("atari"):
        words = [*words, "sampler.n_workers=2", "sampler.start_method=fork", "sampler.max_decorrelation_steps=2"]
    words = [f"experiment={experiment}", *words, *QUIET, f"n_steps={n_rows + 1}", f"run_dir={tmp_path}/run"]

    found = rows(rlcli.train(words))

    assert 2 == len(found)
    assert all(float(row["lossAverage"]) == float(row["lossAverage"]) for row in found)
    assert found[0]["WeightsHash"] != found[1]["WeightsHash"]


@pytest.mark.parametrize("env", ["cartpole", "pendulum", "mountaincar_continuous", "acrobot"])
@pytest.mark.parametrize("algo", ["a2c", "ppo"])
def test_no_other_key_than_algo_and_env_is_needed(algo, env, tmp_path):
    words = [f"algo={algo}", f"env={env}", "n_steps=160", "logger.ui=quiet", f"run_dir={tmp_path}/run"]

    assert float(rows(rlcli.train(words))[-1]["gradNormAverage"]) > 0


@pytest.mark.parametrize("option", ["recurrent=gru", "normalize_obs=true", "shared_trunk=false"])
def test_an_algorithm_that_knows_no_such_model_refuses_it_by_name(option, tmp_path):
    with pytest.raises(ConfigError, match=f"model.{option.partition('=')[0]}: .* is not for this algo"):
        rlcli.train(["algo=dqn", "env=cartpole", f"model.{option}", "n_steps=100", f"run_dir={tmp_path}/run"])
    assert not (tmp_path / "run").exists()
