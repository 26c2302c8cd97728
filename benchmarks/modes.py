"""The sampler modes on Pong: ours against bare loops and against each other, in short windows by turns.

Prints one line of JSON with the median, smallest and largest ratio over the windows.

ale: the serial sampler on env.backend=ale, 16 environments, 2 threads, a policy that costs nothing, against a loop of
bare AtariVectorEnv calls of the same size and threads.
net: with the nature network, 16 environments: the cpu sampler with 2 workers, its environments in Python (cpu) or in
C++ (cpu_ale), against a loop of AtariVectorEnv (2 threads) and one forward of batch 16 (2 threads).
central: the same network acting in the learner's process: alternating against gpu, with workers and with C++ threads,
and alternating against its variant without overlap.
slow: 4 workers, 8 environments that sleep 5 ms in each step: the ideal wall time over the measured one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass

import gymnasium
import numpy as np
from sampling import WINDOW_S, build, rate


@dataclass
class SleepConfig:
    """An environment whose step takes 5 ms and no CPU."""

    def build(self):
        return SleepEnv()


class SleepEnv(gymnasium.Env):
    """Sleeps until 5 ms after the step began."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(6)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        time.sleep(0.005)
        return np.zeros(4, np.float32), 0.0, False, False, {}


def nature_agent(spec):
    """Epsilon-greedy on the nature network, epsilon 0.05."""
    from rlcli.agents.epsilon_config import ConstantEpsilon
    from rlcli.agents.q import QAgent
    from rlcli.models.config import AutoModelConfig
    from rlcli.models.heads import QNetwork

    return QAgent(QNetwork(AutoModelConfig().build(spec.observation_space), 6, False), ConstantEpsilon(0.05), 16)


class BareVector:
    """ale_py's AtariVectorEnv alone, 16 environments, 2 threads; with a network: one forward for each step."""

    def __init__(self, network: bool) -> None:
        import ale_py
        import torch
        from torch import nn

        self.env = ale_py.AtariVectorEnv("pong", num_envs=16, num_threads=2)
        self.obs, _ = self.env.reset(seed=1)
        self.draws = np.random.default_rng(1).integers(6, size=(4096, 16))
        convs = [nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1)]
        dense = [nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 6)]
        self.model = nn.Sequential(*convs, *dense) if network else None
        self.torch, self.n = torch, 0

    def rate(self) -> float:
        """Steps per second over one window."""
        n, start = 0, time.perf_counter()
        with self.torch.inference_mode():
            while time.perf_counter() - start < WINDOW_S:
                action = self.draws[self.n % 4096]
                if self.model is not None:
                    q = self.model(self.torch.from_numpy(self.obs).float().div_(255.0))
                    action = np.where(action == 0, q.argmax(1).numpy(), action)
                self.obs = self.env.step(action)[0]
                n, self.n = n + 16, self.n + 1
        return n / (time.perf_counter() - start)


def measure_ale(n_windows: int) -> dict[str, list[float]]:
    """The ale backend against the bare vector environment."""
    from rlcli.envs.config import AtariConfig
    from rlcli.samplers.config import SerialConfig

    bare, ratios = BareVector(network=False), []
    with build(SerialConfig(batch_T=64, batch_B=16), AtariConfig("pong", backend="ale")) as ours:
        rate(ours), bare.rate()
        for _ in range(n_windows):
            ratios.append(rate(ours) / bare.rate())
    return {"over_bare": ratios}


def measure_net(n_windows: int) -> dict[str, list[float]]:
    """Workers that act for themselves against the loop around the vector environment."""
    from rlcli.envs.config import AtariConfig
    from rlcli.samplers.config import CpuConfig

    bare, config = BareVector(network=True), CpuConfig(batch_T=64, batch_B=16, n_workers=2)
    ratios: dict[str, list[float]] = {"cpu": [], "cpu_ale": []}
    with (
        build(config, AtariConfig("pong"), nature_agent) as python,
        build(config, AtariConfig("pong", backend="ale"), nature_agent) as native,
    ):
        rate(python), rate(native), bare.rate()
        for _ in range(n_windows):
            loop = bare.rate()
            ratios["cpu"].append(rate(python) / loop)
            ratios["cpu_ale"].append(rate(native) / loop)
    return ratios


def measure_central(n_windows: int) -> dict[str, list[float]]:
    """Acting in one process: two halves in turn against all at once."""
    from rlcli.envs.config import AtariConfig
    from rlcli.samplers.config import AlternatingConfig, GpuConfig

    shape = {"batch_T": 64, "batch_B": 16, "n_workers": 2}
    ratios: dict[str, list[float]] = {}
    for backend in ("python", "ale"):
        env = AtariConfig("pong", backend=backend)
        with (
            build(GpuConfig(**shape), env, nature_agent) as gpu,
            build(AlternatingConfig(**shape), env, nature_agent) as halves,
            build(AlternatingConfig(**shape, overlap=False), env, nature_agent) as no_overlap,
        ):
            for sampler in (gpu, halves, no_overlap):
                rate(sampler)
            for _ in range(n_windows):
                one, two, three = rate(gpu), rate(halves), rate(no_overlap)
                ratios.setdefault(f"alternating_over_gpu_{backend}", []).append(two / one)
                ratios.setdefault(f"overlap_gains_{backend}", []).append(two / three)
    return ratios


def measure_slow(n_windows: int) -> dict[str, list[float]]:
    """How much of the ideal remains where environments are slow: two of them after each other in each of 4 workers."""
    from rlcli.samplers.config import CpuConfig

    config = CpuConfig(batch_T=32, batch_B=8, n_workers=4, max_decorrelation_steps=0)
    with build(config, SleepConfig()) as sampler:
        rate(sampler)
        slept = 0.005 * 2
        return {"ideal": [rate(sampler) * slept / 8 for _ in range(n_windows)]}


if __name__ == "__main__":
    jobs = {"ale": measure_ale, "net": measure_net, "central": measure_central, "slow": measure_slow}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=tuple(jobs))
    parser.add_argument("--windows", type=int, default=15)
    args = parser.parse_args()
    found = jobs[args.name](args.windows)
    print(json.dumps({name: [statistics.median(r), min(r), max(r)] for name, r in found.items()}))
