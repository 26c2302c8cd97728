"""rlcli's side of the benchmarks; each prints one line of JSON: ``{"steps_per_second": ...}``.

``train_*`` run the command line itself, logging, snapshots and all, and read its progress.csv.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PONG = ["env=pong", "env.fire_reset=true", "device=cpu", "logger.ui=quiet", "sampler.max_decorrelation_steps=0"]


def env(seconds: float, seed: int) -> float:
    """Agent steps per second of one AtariEnv with random actions."""
    from rlcli.envs.config import AtariConfig

    pong = AtariConfig("pong", fire_reset=False, noop_max=0).build()
    pong.reset(seed=seed)
    draws = np.random.default_rng(seed).integers(int(pong.action_space.n), size=4096).tolist()
    n, start = 0, time.perf_counter()
    while n % 64 or time.perf_counter() - start < seconds:
        _, _, terminated, truncated, _ = pong.step(draws[n % 4096])
        if terminated or truncated:
            pong.reset()
        n += 1
    return n / (time.perf_counter() - start)


class FreeAgent:
    """Takes the action that the uniform says; no network."""

    n_uniforms = 1

    def initial_state(self, n_envs):
        return None

    def act(self, obs, state, uniforms, *, env_ids, step, explore):
        from rlcli.core.protocols import Act

        return Act(action=(uniforms[:, 0] * 6).long(), record=None, state=None)

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass

    def share_memory(self):
        pass

    def to(self, device):
        pass


def cpu_sampler(seconds: float, seed: int) -> float:
    """Agent steps per second of the cpu sampler with 2 workers, 16 envs x 20 steps, and a policy that costs nothing."""
    from rlcli.envs.config import AtariConfig
    from rlcli.envs.probe import probe
    from rlcli.samplers.config import CpuConfig
    from rlcli.samplers.setup import SamplerSetup

    pong = AtariConfig("pong")
    setup = SamplerSetup(
        env=pong,
        eval_env=pong,
        spec=probe(pong),
        agent=FreeAgent(),
        seed=seed,
        discount=0.99,
        eval_n_envs=0,
        eval_n_episodes=1,
        eval_max_steps=1,
        say=lambda line: None,
    )
    with contextlib.closing(CpuConfig(batch_T=20, batch_B=16, n_workers=2).build(setup)) as sampler:
        sampler.collect(0)
        steps, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            steps += sampler.collect(steps).n_steps
        return steps / (time.perf_counter() - start)


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
        words = [*overrides, f"n_steps={n_steps}", "log_interval_steps=400", f"seed={seed}", f"run_dir={run}"]
        subprocess.run([sys.executable, "-m", "rlcli", "train", *words], check=True, stdout=subprocess.DEVNULL)
        with (run / "progress.csv").open() as file:
            rows = [(float(row["CumSteps"]), float(row["CumTime (s)"])) for row in csv.DictReader(file)]
    measured = [row for row in rows if row[0] >= warm_steps]
    (first_step, first_s), (last_step, last_s) = measured[0], measured[-1]
    return (last_step - first_step) / (last_s - first_s)


OURS = {"env": env, "cpu_sampler": cpu_sampler, "train_dqn": train_dqn, "train_a2c": train_a2c}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=OURS)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(json.dumps({"steps_per_second": OURS[args.name](args.seconds, args.seed)}))
