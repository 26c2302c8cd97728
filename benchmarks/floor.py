"""The floors: bare emulator calls and bare torch, with nothing of any library around them.

Each prints one line of JSON: ``{"steps_per_second": ...}``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time

import numpy as np


def raw_env(seconds: float, seed: int) -> float:
    """Agent steps per second of one bare Pong: four acts, two screens, max, resize to 84x84, random actions."""
    import ale_py
    import cv2
    from ale_py import roms

    cv2.setNumThreads(1)
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(roms.get_rom_path("pong"))
    actions = ale.getMinimalActionSet()
    draws = np.random.default_rng(seed).integers(len(actions), size=4096)
    before, last = np.zeros((210, 160), np.uint8), np.zeros((210, 160), np.uint8)
    n, start = 0, time.perf_counter()
    while n % 64 or time.perf_counter() - start < seconds:
        action = actions[draws[n % 4096]]
        ale.act(action), ale.act(action), ale.act(action)
        ale.getScreenGrayscale(before)
        ale.act(action)
        ale.getScreenGrayscale(last)
        cv2.resize(np.maximum(before, last, out=last), (84, 84), interpolation=cv2.INTER_AREA)
        if ale.game_over():
            ale.reset_game()
        n += 1
    return n / (time.perf_counter() - start)


def dqn(seconds: float, seed: int) -> float:
    """Steps per second of one env step, one forward of batch 1 and a quarter of an update of batch 32, one by one.

    The update: two forwards, backward, clipping, fused Adam, fp32, in the faster of the two memory layouts.
    """
    env_s = 1 / raw_env(seconds / 4, seed)
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


def _child(seconds: float, seed: int, barrier, queue) -> None:
    barrier.wait()
    queue.put(raw_env(seconds, seed))


def raw_env_twice(seconds: float, seed: int) -> float:
    """The sum of two bare Pongs in two processes at once: what the machine's two cores give."""
    context = multiprocessing.get_context("spawn")
    barrier, queue = context.Barrier(2), context.Queue()
    children = [context.Process(target=_child, args=(seconds, seed + i, barrier, queue)) for i in range(2)]
    for child in children:
        child.start()
    total = sum(queue.get() for _ in children)
    for child in children:
        child.join()
    return total


FLOORS = {"raw_env": raw_env, "raw_env_twice": raw_env_twice, "dqn": dqn}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=FLOORS)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(json.dumps({"steps_per_second": FLOORS[args.name](args.seconds, args.seed)}))
