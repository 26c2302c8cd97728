"""rlcli's side of the training benchmarks; each prints one line of JSON: ``{"steps_per_second": ...}``.

They run the command line itself and read its progress.csv. Snapshots are off, since rows are 25 times as frequent here
as by default and each row would write one.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

PONG = ["env=pong", "env.fire_reset=true", "device=cpu", "logger.ui=quiet", "sampler.max_decorrelation_steps=0"]


def train_dqn(seconds: float, seed: int) -> float:
    """DQN on Pong: 1 env, batch 32, one update per 4 steps, epsilon 0.05; 1,000 steps of warm-up."""
    overrides = [
        "algo=dqn",
        "sampler=serial",
        "sampler.batch_T=4",
        "sampler.batch_B=1",
        "algo.min_steps_learn=1000",
        "algo.batch_size=32",
        "algo.replay_ratio=8",
        "replay.size=50_000",
        "epsilon=constant",
        "epsilon.value=0.05",
    ]
    return _train([*PONG, *overrides], warm_steps=1_200, n_steps=1_200 + int(150 * seconds), seed=seed)


def train_a2c(seconds: float, seed: int) -> float:
    """A2C on Pong: 16 envs x 5 steps, two workers."""
    overrides = ["algo=a2c", "sampler=cpu", "sampler.batch_T=5", "sampler.batch_B=16", "sampler.n_workers=2"]
    return _train([*PONG, *overrides], warm_steps=1_600, n_steps=1_600 + int(900 * seconds), seed=seed)


def _train(overrides: list[str], *, warm_steps: int, n_steps: int, seed: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = [
            *overrides,
            f"n_steps={n_steps}",
            "log_interval_steps=400",
            "snapshot_mode=none",
            f"seed={seed}",
            f"run_dir={run}",
        ]
        subprocess.run([sys.executable, "-m", "rlcli", "train", *words], check=True, stdout=subprocess.DEVNULL)
        with (run / "progress.csv").open() as file:
            rows = [(float(row["CumSteps"]), float(row["CumTime (s)"])) for row in csv.DictReader(file)]
    measured = [row for row in rows if row[0] >= warm_steps]
    (first_step, first_s), (last_step, last_s) = measured[0], measured[-1]
    return (last_step - first_step) / (last_s - first_s)


OURS = {"train_dqn": train_dqn, "train_a2c": train_a2c}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=OURS)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(json.dumps({"steps_per_second": OURS[args.name](args.seconds, args.seed)}))
