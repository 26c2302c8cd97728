"""A2C and PPO from the command line, with no key but the environment."""

import csv

import pytest

import rlcli
from rlcli.core.errors import ConfigError


def rows(run):
    with (run / "progress.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("env", ["cartpole", "pendulum", "mountaincar_continuous", "acrobot"])
@pytest.mark.parametrize("algo", ["a2c", "ppo"])
def test_no_other_key_than_algo_and_env_is_needed(algo, env, tmp_path):
    words = [f"algo={algo}", f"env={env}", "n_steps=160", "logger.ui=quiet", f"run_dir={tmp_path}/run"]

    assert float(rows(rlcli.train(words))[-1]["gradNormAverage"]) > 0


@pytest.mark.parametrize("option", ["recurrent=gru", "shared_trunk=false"])
def test_an_algorithm_that_knows_no_such_model_refuses_it_by_name(option, tmp_path):
    with pytest.raises(ConfigError, match=f"model.{option.partition('=')[0]}: .* is not for this algo"):
        rlcli.train(["algo=dqn", "env=cartpole", f"model.{option}", "n_steps=100", f"run_dir={tmp_path}/run"])
    assert not (tmp_path / "run").exists()
