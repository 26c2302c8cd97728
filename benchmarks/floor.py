"""The floors: bare emulator calls and bare torch, with nothing of any library around them.

As a script it prints one line of JSON: ``{"steps_per_second": ...}``.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np


class BarePong:
    """One emulator: a step is four acts, two screens, max, resize to 84x84; random actions."""

    def __init__(self, seed: int) -> None:
        import ale_py
        import cv2
        from ale_py import roms

        cv2.setNumThreads(1)
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale = ale_py.ALEInterface()
        self.ale.setInt("random_seed", seed)
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.loadROM(roms.get_rom_path("pong"))
        self.actions = self.ale.getMinimalActionSet()
        self.draws = np.random.default_rng(seed).integers(len(self.actions), size=4096)
        self.n = 0

    def rate(self, seconds: float) -> float:
        """Steps per second over one window."""
        import cv2

        ale, actions, draws = self.ale, self.actions, self.draws
        before, last = np.zeros((210, 160), np.uint8), np.zeros((210, 160), np.uint8)
        n, start = 0, time.perf_counter()
        while n % 64 or time.perf_counter() - start < seconds:
            action = actions[draws[(self.n + n) % 4096]]
            ale.act(action), ale.act(action), ale.act(action)
            ale.getScreenGrayscale(before)
            ale.act(action)
            ale.getScreenGrayscale(last)
            cv2.resize(np.maximum(before, last, out=last), (84, 84), interpolation=cv2.INTER_AREA)
            if ale.game_over():
                ale.reset_game()
            n += 1
        self.n += n
        return n / (time.perf_counter() - start)


def dqn(seconds: float, seed: int) -> float:
    """Steps per second of one env step, one forward of batch 1 and a quarter of an update of batch 32, one by one.

    The update: two forwards, backward, clipping, fused Adam, fp32, in the faster of the two memory layouts.
    """
    env_s = 1 / BarePong(seed).rate(seconds / 4)
    parts = [_dqn_parts(seconds / 4, layout) for layout in ("contiguous_format", "channels_last")]
    return 1 / (env_s + min(forward + update / 4 for forward, update in parts))


def _dqn_parts(seconds: float, layout: str) -> tuple[float, float]:
    import torch
    from torch import nn
    from torch.nn import functional as F

    memory_format = getattr(torch, layout)

    def network() -> nn.Sequential:
        convs = [nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1)]
        dense = [nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 6)]
        return nn.Sequential(*convs, *dense).to(memory_format=memory_format)

    def pixels(image: torch.Tensor) -> torch.Tensor:
        return image.to(torch.float32, memory_format=memory_format).mul_(1 / 255)

    model, target = network(), network()
    adam = torch.optim.Adam(model.parameters(), 1e-4, fused=True)
    obs, next_obs = (torch.randint(0, 255, (32, 4, 84, 84), dtype=torch.uint8) for _ in range(2))
    action, reward, one = torch.randint(0, 6, (32, 1)), torch.randn(32), obs[:1].clone()

    def update() -> None:
        with torch.no_grad():
            y = reward + 0.99 * target(pixels(next_obs)).amax(1)
        loss = F.smooth_l1_loss(model(pixels(obs)).gather(1, action)[:, 0], y)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        adam.step()

    def forward() -> None:
        with torch.inference_mode():
            model(pixels(one))

    return _seconds_each(forward, seconds / 2), _seconds_each(update, seconds / 2)


def _seconds_each(f, seconds: float) -> float:
    for _ in range(3):
        f()
    n, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        f()
        n += 1
    return (time.perf_counter() - start) / n


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=("dqn",))
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(json.dumps({"steps_per_second": dqn(args.seconds, args.seed)}))
