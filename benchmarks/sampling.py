"""Stepping Pong: ours against bare loops, in short windows by turns within one process tree.

Prints one line of JSON with the median, smallest and largest ratio over the windows: drift of the machine, which is
large on shared ones, meets both sides alike.

env: one AtariEnv against one bare emulator (over_bare).
cpu: the cpu sampler, 2 workers, 16 environments x 64 steps, a policy that costs nothing, against twice one process that
steps 8 of our environments in a plain loop (over_twice_one), and against two such processes at once (over_two_at_once),
which is what the machine's second core gives beside the first.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import statistics
import time

import numpy as np
from floor import BarePong

WINDOW_S = 0.7


class FreeAgent:
    """Random actions, drawn before: no network, no time."""

    n_uniforms = 1

    def __init__(self):
        import torch

        self.draws = [torch.randint(6, (16,)) for _ in range(512)]
        self.n = 0

    def initial_state(self, n_envs):
        return None

    def act(self, obs, state, uniforms, *, env_ids, step, explore):
        from rlcli.core.protocols import Act

        self.n = (self.n + 1) % 512
        return Act(action=self.draws[self.n][: len(env_ids)], record=None, state=None)

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass

    def weights(self):
        return {}

    def to(self, device):
        pass


class PlainLoop:
    """Some AtariEnvs stepped one after another with random actions, nothing around them."""

    def __init__(self, n_envs: int, seed: int) -> None:
        from rlcli.envs.config import AtariConfig

        self.envs = [AtariConfig("pong").build() for _ in range(n_envs)]
        for i, env in enumerate(self.envs):
            env.reset(seed=seed + i)
        self.draws = np.random.default_rng(seed).integers(6, size=4096).tolist()
        self.n = 0

    def rate(self) -> float:
        """Steps per second over one window."""
        n, start = 0, time.perf_counter()
        while n % 64 or time.perf_counter() - start < WINDOW_S:
            env = self.envs[self.n % len(self.envs)]
            _, _, terminated, truncated, _ = env.step(self.draws[self.n % 4096])
            if terminated or truncated:
                env.reset()
            n, self.n = n + 1, self.n + 1
        return n / (time.perf_counter() - start)


def measure_env(n_windows: int) -> dict[str, list[float]]:
    """Ratios of one AtariEnv to one bare emulator."""
    ours, bare = PlainLoop(1, 1), BarePong(1)
    return {"over_bare": [ours.rate() / bare.rate(WINDOW_S) for _ in range(n_windows)]}


def measure_cpu(n_windows: int) -> dict[str, list[float]]:
    """Ratios of the cpu sampler to plain loops."""
    from rlcli.envs.config import AtariConfig
    from rlcli.samplers.config import CpuConfig

    config = CpuConfig(batch_T=64, batch_B=16, n_workers=2)
    one = PlainLoop(8, 1)
    twice, at_once = [], []
    with build(config, AtariConfig("pong")) as sampler, _two_loops() as both:
        rate(sampler)
        for _ in range(n_windows):
            ours = rate(sampler)
            twice.append(ours / (2 * one.rate()))
            at_once.append(ours / both())
    return {"over_twice_one": twice, "over_two_at_once": at_once}


def build(config, env, agent=None):
    """A sampler, closed at the end of the block; its policy costs nothing unless another is given."""
    from rlcli.envs.probe import probe
    from rlcli.samplers.setup import SamplerSetup

    spec = probe(env)
    setup = SamplerSetup(
        env=env,
        eval_env=env,
        spec=spec,
        agent=agent(spec) if agent else FreeAgent(),
        seed=1,
        discount=0.99,
        eval_n_envs=0,
        eval_n_episodes=1,
        eval_max_steps=1,
        say=lambda line: None,
    )
    return contextlib.closing(config.build(setup))


def rate(sampler) -> float:
    """Steps per second over one window."""
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < WINDOW_S:
        steps += sampler.collect(0).n_steps
    return steps / (time.perf_counter() - start)


def _serve_loop(seed: int, connection) -> None:
    loop = PlainLoop(8, seed)
    while connection.recv():
        connection.send(loop.rate())


@contextlib.contextmanager
def _two_loops():
    context = multiprocessing.get_context("spawn")
    pipes, children = [], []
    for seed in (10, 20):
        ours, theirs = context.Pipe()
        children.append(context.Process(target=_serve_loop, args=(seed, theirs), daemon=True))
        children[-1].start()
        pipes.append(ours)

    def both() -> float:
        for pipe in pipes:
            pipe.send(True)
        return sum(pipe.recv() for pipe in pipes)

    both()
    yield both
    for pipe in pipes:
        pipe.send(False)
    for child in children:
        child.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=("env", "cpu"))
    parser.add_argument("--windows", type=int, default=15)
    args = parser.parse_args()
    ratios = {"env": measure_env, "cpu": measure_cpu}[args.name](args.windows)
    print(json.dumps({name: [statistics.median(r), min(r), max(r)] for name, r in ratios.items()}))
