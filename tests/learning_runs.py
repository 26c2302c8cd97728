"""Learning runs of minutes, through the command line's own function, one for each seed."""

import csv
import math

import rlcli

SEEDS = range(3)
SOLVED = 475
"""CartPole-v1's own threshold."""


def last_evaluations(words, folder, seeds=SEEDS):
    """By seed, the mean score of the last evaluation's games; also printed, for the record of what passed.

    Runs are kept under ``folder``, as <experiment>/<seed>: what experiments/study.py makes a figure of.
    """
    words = [*words, "logger.ui=quiet"]
    label = words[0].partition("=")[2]
    scores = {}
    for seed in seeds:
        run = rlcli.train([*words, f"seed={seed}", f"run_dir={folder}/{label}/{seed}"])
        with (run / "progress.csv").open(newline="") as file:
            found = [float(row["EvalGameScoreAverage"]) for row in csv.DictReader(file)]
        scores[seed] = [score for score in found if not math.isnan(score)][-1]
    print(f"{' '.join(words)}: {scores}")
    return scores
