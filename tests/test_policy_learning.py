"""Learning runs of A2C's and PPO's reference configurations, minutes each: make test-slow."""

import csv
import math

import pytest

import rlcli

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def last_evaluation(folder):
    with (folder / "progress.csv").open(newline="") as file:
        scores = [float(row["EvalReturnAverage"]) for row in csv.DictReader(file)]
    return [score for score in scores if not math.isnan(score)][-1]


@pytest.mark.parametrize("experiment", ["cartpole_ppo", "cartpole_masked_ppo_lstm"])
def test_cartpole_is_solved_within_100_000_steps_for_two_of_three_seeds(experiment, tmp_path):
    words = [f"experiment={experiment}", "logger.ui=quiet"]
    scores = [last_evaluation(rlcli.train([*words, f"seed={s}", f"run_dir={tmp_path}/{s}"])) for s in range(3)]

    assert sum(score >= 475 for score in scores) >= 2, scores


def test_velocities_cannot_be_told_without_a_memory(tmp_path):
    words = ["experiment=cartpole_masked_ppo_lstm", "model.recurrent=none", "n_steps=50000", "logger.ui=quiet"]

    assert last_evaluation(rlcli.train([*words, f"run_dir={tmp_path}/run"])) < 300
