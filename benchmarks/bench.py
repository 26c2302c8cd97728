"""Speed as ratios, measured side by side in one run: ``make bench`` or ``python benchmarks/bench.py``.

Each job is a whole process. The jobs of a comparison go round in turn (A B A B ...), so that a drift of the machine
meets all alike; a ratio is the median over the rounds of the ratio within each round. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Comparison:
    """Ours against another, or against ``factor`` times it."""

    title: str
    ours: tuple[str, str]
    other: tuple[str, str]
    goal: float
    factor: float = 1.0


COMPARISONS = [
    Comparison("Atari env / bare loop of the same calls", ("ours.py", "env"), ("floor.py", "raw_env"), 0.9),
    Comparison(
        "cpu sampler, 2 workers, free policy / 2 x our env in one process",
        ("ours.py", "cpu_sampler"),
        ("ours.py", "env"),
        0.9,
        factor=2.0,
    ),
    Comparison("two bare loops at once / 2 x one", ("floor.py", "raw_env_twice"), ("floor.py", "raw_env"), 0.0, 2.0),
    Comparison("DQN Pong / bare step + forward + update", ("ours.py", "train_dqn"), ("floor.py", "dqn"), 0.8),
    Comparison("DQN Pong / stable-baselines3", ("ours.py", "train_dqn"), ("peer_sb3.py", "dqn"), 1.3),
    Comparison("A2C Pong 16 x 5 / stable-baselines3", ("ours.py", "train_a2c"), ("peer_sb3.py", "a2c"), 1.6),
]


def run(job: tuple[str, str], seconds: float) -> float:
    """Steps per second of one job."""
    command = [sys.executable, str(HERE / job[0]), job[1], "--seconds", str(seconds)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(json.loads(done.stdout.splitlines()[-1])["steps_per_second"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--only", default="", help="part of a comparison's title")
    args = parser.parse_args()
    chosen = [c for c in COMPARISONS if args.only.lower() in c.title.lower()]
    if importlib.util.find_spec("stable_baselines3") is None:
        print("stable-baselines3 is not installed (pip install 'rlcli[bench]'): its comparisons are left out")
        chosen = [c for c in chosen if c.other[0] != "peer_sb3.py"]
    jobs = list(dict.fromkeys(job for c in chosen for job in (c.ours, c.other)))
    speeds: dict[tuple[str, str], list[float]] = {job: [] for job in jobs}
    for n in range(args.rounds):
        for job in jobs:
            speeds[job].append(run(job, args.seconds))
            print(f"round {n + 1}  {job[0]} {job[1]:14} {speeds[job][-1]:9.1f} steps/s", flush=True)
    print(f"\n{'comparison':70} ratio (min - max over {args.rounds} rounds)  goal")
    for c in chosen:
        ratios = [a / (c.factor * b) for a, b in zip(speeds[c.ours], speeds[c.other], strict=True)]
        goal = f">= {c.goal:g}" if c.goal else "(what the machine gives)"
        print(f"{c.title:70} {statistics.median(ratios):5.2f} ({min(ratios):.2f} - {max(ratios):.2f})   {goal}")


if __name__ == "__main__":
    main()
