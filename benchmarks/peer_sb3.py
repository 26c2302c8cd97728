"""stable-baselines3 on the same workloads; each prints one line of JSON: ``{"steps_per_second": ...}``.

Epsilon is 0.05 throughout: SB3 skips the network on a random action and rlcli does not, so more would flatter it.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings

import ale_py
import gymnasium as gym

gym.register_envs(ale_py)  # at module level: SB3's worker processes import this module again


class WindowOver(Exception):
    """The measuring window is over."""


def make_callback(warm_steps: int, seconds: float):
    """Measures from the first rollout after the warm-up to the first one after ``seconds``."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Window(BaseCallback):
        start: tuple[float, int] | None = None
        steps_per_second = 0.0

        def _on_rollout_start(self) -> None:
            now, steps = time.perf_counter(), self.model.num_timesteps
            if self.start is None and steps >= warm_steps:
                self.start = now, steps
            elif self.start is not None and now - self.start[0] >= seconds:
                self.steps_per_second = (steps - self.start[1]) / (now - self.start[0])
                raise WindowOver

        def _on_step(self) -> bool:
            return True

    return Window()


def measure(algo: str, seconds: float, seed: int) -> float:
    """Agent steps per second of SB3's loop."""
    from stable_baselines3 import A2C, DQN
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    n_envs, vec = (1, DummyVecEnv) if algo == "dqn" else (16, SubprocVecEnv)
    env = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=n_envs, seed=seed, vec_env_cls=vec), 4)
    if algo == "dqn":
        model = DQN(
            "CnnPolicy",
            env,
            learning_rate=1e-4,
            buffer_size=50_000,
            learning_starts=1000,
            batch_size=32,
            train_freq=4,
            gradient_steps=1,
            target_update_interval=8000,
            exploration_initial_eps=0.05,
            exploration_final_eps=0.05,
            device="cpu",
            seed=seed,
        )
        warm = 1_200
    else:
        model = A2C("CnnPolicy", env, n_steps=5, ent_coef=0.01, vf_coef=0.25, device="cpu", seed=seed)
        warm = 1_600
    window = make_callback(warm, seconds)
    try:
        model.learn(10**9, callback=window)
    except WindowOver:
        env.close()
    return window.steps_per_second


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=("dqn", "a2c"))
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(json.dumps({"steps_per_second": measure(args.name, args.seconds, args.seed)}))
