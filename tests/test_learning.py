"""Learning runs of minutes, through the command line's own function: make test-slow."""

import csv
import math

import pytest

import rlcli

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def last_evaluation(folder):
    with (folder / "progress.csv").open(newline="") as file:
        scores = [float(row["EvalReturnAverage"]) for row in csv.DictReader(file)]
    return [score for score in scores if not math.isnan(score)][-1]


def test_quickstart_solves_cartpole_for_four_of_five_seeds(tmp_path):
    scores = [
        last_evaluation(rlcli.train(["experiment=quickstart", f"seed={seed}", f"run_dir={tmp_path}/{seed}"]))
        for seed in range(5)
    ]

    assert sum(score >= 475 for score in scores) >= 4, scores


def test_a2c_solves_cartpole_for_two_of_three_seeds(tmp_path):
    scores = [
        last_evaluation(rlcli.train(["experiment=cartpole_a2c", f"seed={seed}", f"run_dir={tmp_path}/{seed}"]))
        for seed in range(3)
    ]

    assert sum(score >= 475 for score in scores) >= 2, scores
