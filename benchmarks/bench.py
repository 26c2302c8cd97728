"""Speed as ratios, measured side by side in one run: ``make bench`` or ``python benchmarks/bench.py``.

Training jobs are whole processes that go round in turn (A B A B ...); sampling is measured in short windows by turns.
So a drift of the machine meets all alike, and a ratio is the median of the ratios within each round or window. Run
nothing else meanwhile.
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
from typing import Any

HERE = Path(__file__).parent


SAMPLING = {
    ("sampling.py", "env", "over_bare"): ("Atari env / bare loop of the same calls", 0.9),
    ("sampling.py", "cpu", "over_twice_one"): ("cpu sampler, 2 workers / 2 x a plain loop in one process", 0.9),
    ("sampling.py", "cpu", "over_two_at_once"): ("cpu sampler, 2 workers / two plain loops at once", 0.9),
    ("modes.py", "ale", "over_bare"): ("backend=ale, 16 envs, 2 threads / bare AtariVectorEnv", 0.95),
    ("modes.py", "net", "cpu"): ("cpu, 2 workers, nature net / AtariVectorEnv + forward", 1.3),
    ("modes.py", "net", "cpu_ale"): ("the same with backend=ale in the workers", 1.3),
    ("modes.py", "central", "alternating_over_gpu_python"): ("alternating / gpu, nature net on the CPU, workers", 1.0),
    ("modes.py", "central", "alternating_over_gpu_ale"): ("alternating / gpu, nature net on the CPU, backend=ale", 1.0),
    ("modes.py", "central", "overlap_gains_python"): ("alternating / without overlap, workers", 1.0),
    ("modes.py", "central", "overlap_gains_ale"): ("alternating / without overlap, backend=ale", 1.0),
    ("modes.py", "slow", "ideal"): ("cpu, 4 workers, envs of 5 ms / ideal", 0.91),
}
"""(script, job, ratio) -> title, goal."""


@dataclass(frozen=True)
class Comparison:
    """Training: ours against another."""

    title: str
    ours: tuple[str, str]
    other: tuple[str, str]
    goal: float


TRAINING = [
    Comparison("DQN Pong / bare step + forward + update", ("ours.py", "train_dqn"), ("floor.py", "dqn"), 0.8),
    Comparison("DQN Pong / stable-baselines3", ("ours.py", "train_dqn"), ("peer_sb3.py", "dqn"), 1.3),
    Comparison("A2C Pong 16 x 5 / stable-baselines3", ("ours.py", "train_a2c"), ("peer_sb3.py", "a2c"), 1.6),
]


def run(*words: str) -> dict[str, Any]:
    """The line of JSON that a script here prints."""
    command = [sys.executable, str(HERE / words[0]), *words[1:]]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def sampling(only: str) -> list[str]:
    """Lines of the table about stepping environments."""
    chosen = {key: value for key, value in SAMPLING.items() if only in value[0].lower()}
    found = {job: run(*job) for job in dict.fromkeys((script, job) for script, job, _ in chosen)}
    return [line(title, *found[script, job][ratio], goal) for (script, job, ratio), (title, goal) in chosen.items()]


def training(only: str, rounds: int, seconds: float) -> list[str]:
    """Lines of the table about training; the jobs go round in turn."""
    chosen = [c for c in TRAINING if only in c.title.lower()]
    if importlib.util.find_spec("stable_baselines3") is None:
        print("stable-baselines3 is not installed (pip install 'rlcli[bench]'): its comparisons are left out")
        chosen = [c for c in chosen if c.other[0] != "peer_sb3.py"]
    jobs = list(dict.fromkeys(job for c in chosen for job in (c.ours, c.other)))
    speeds: dict[tuple[str, str], list[float]] = {job: [] for job in jobs}
    for n in range(rounds):
        for job in jobs:
            speeds[job].append(float(run(*job, "--seconds", str(seconds))["steps_per_second"]))
            print(f"round {n + 1}  {job[0]:12} {job[1]:10} {speeds[job][-1]:9.1f} steps/s", flush=True)
    lines = []
    for c in chosen:
        ratios = [a / b for a, b in zip(speeds[c.ours], speeds[c.other], strict=True)]
        lines.append(line(c.title, statistics.median(ratios), min(ratios), max(ratios), c.goal))
    return lines


def line(title: str, median: float, low: float, high: float, goal: float) -> str:
    """One line of the table."""
    return f"{title:60} {median:5.2f}  ({low:.2f} - {high:.2f})   goal >= {goal:g}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--only", default="", help="part of a comparison's title")
    args = parser.parse_args()
    lines = sampling(args.only.lower()) + training(args.only.lower(), args.rounds, args.seconds)
    print(f"\n{'comparison':60} ratio  (min - max)")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
