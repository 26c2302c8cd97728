"""An environment that goes wrong at a chosen moment. Imports no torch, so that workers that only step start fast."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces

from rlcli.core.rng import Purpose, integer_seed

ID = "tests.fault_probes:Fault-v0"
STREAM_MODULUS = 2**20
"""Seeds below it are whole numbers in float32."""


def stream(env_id, incarnation=0, purpose=Purpose.ENV):
    """What `FaultEnv` shows of its seed, in a run with seed 0."""
    return integer_seed(0, purpose, env_id, incarnation) % STREAM_MODULUS


class FaultEnv(gymnasium.Env):
    """Observes (stream, episode, t, noise); lengths, rewards and ways to end are random.

    Args:
        fault: A key of `FAULTS`; empty: none.
        where: build, reset, step or close.
        at: In the how-manieth call, from 1; 0: in each.
        victims: Seeds of the first reset of the environments that it happens to; empty: all. Cannot choose in build.
        once: Path of a file; only who creates it has the fault. Empty: whoever comes there.
        sleep_s: For the faults ``sleep`` and ``exit but leave a child``.
        mark: Path of a file that gets this process's id when the fault begins.
        in_worker: Only in processes that another one started.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(
        self, fault="", where="step", at=50, victims=(), once="", sleep_s=0.0, mark="", in_worker=False, **_ignored
    ):
        self.fault, self.where, self.at, self.victims = fault, where, at, list(victims)
        self.once, self.sleep_s, self.mark, self.in_worker = once, sleep_s, mark, in_worker
        self.counts = {"build": 0, "reset": 0, "step": 0, "close": 0}
        self.first_seed = 0
        self.episode = -1
        self._maybe("build")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.first_seed, self.episode = seed, -1
        self._maybe("reset")
        self.episode += 1
        self.t = 0
        self.length = int(self.np_random.integers(2, 12))
        self.dies = bool(self.np_random.integers(2))
        return self._obs(), {}

    def step(self, action):
        self.t += 1
        over = self.t >= self.length
        reward = float(self.np_random.integers(-3, 4))
        obs, spoiled = self._obs(), self._maybe("step")
        if spoiled == "reward":
            reward = self.bad_value
        elif spoiled == "obs":
            obs[3] = self.bad_value
        elif spoiled == "space":
            obs = np.append(obs, self.bad_value)
        return obs, reward, over and self.dies, over and not self.dies, {}

    def close(self):
        self._maybe("close")

    def _obs(self):
        noise = self.np_random.integers(100)
        return np.array([self.first_seed % STREAM_MODULUS, self.episode, self.t, noise], np.float32)

    def _maybe(self, where):
        self.counts[where] += 1
        if where != self.where or not self.fault or (self.at and self.counts[where] != self.at):
            return None
        if where != "build" and self.victims and self.first_seed not in self.victims:
            return None
        if self.in_worker and multiprocessing.parent_process() is None:
            return None
        if self.once:
            try:
                Path(self.once).open("x").close()
            except FileExistsError:
                return None
        if self.mark:
            Path(self.mark).write_text(f"{os.getpid()}\n")
        return FAULTS[self.fault](self)


def _raise(env):
    raise ValueError("marker-7")


def _exit_but_leave_a_child(env):
    if os.fork() == 0:
        time.sleep(env.sleep_s)
        os._exit(0)
    os._exit(3)


def _bad(value, what):
    def spoil(env):
        env.bad_value = value
        return what

    return spoil


FAULTS = {
    "raise": _raise,
    "exit": lambda env: os._exit(3),
    "exit but leave a child": _exit_but_leave_a_child,
    "kill": lambda env: os.kill(os.getpid(), signal.SIGKILL),
    "hang": lambda env: time.sleep(3600),
    "hold the interpreter": lambda env: re.match(r"(a+)+$", "a" * 40 + "b"),  # one call, hours long
    "sleep": lambda env: time.sleep(env.sleep_s),
    "nan reward": _bad(float("nan"), "reward"),
    "inf reward": _bad(float("-inf"), "reward"),
    "nan obs": _bad(float("nan"), "obs"),
    "long obs": _bad(0.0, "space"),
}


@dataclass
class FaultConfig:
    """Config of FaultEnv; the fault happens to env 3 of a run with seed 0 unless ``victims`` says otherwise."""

    fault: str = ""
    where: str = "step"
    at: int = 50
    victims: tuple[int, ...] = (integer_seed(0, Purpose.ENV, 3),)
    once: str = ""
    sleep_s: float = 0.0
    mark: str = ""
    in_worker: bool = True

    def build(self):
        return FaultEnv(**asdict(self))


class CarelessEnv(gymnasium.Env):
    """Gives the same array and the same info each time; infos grow, change their types and nest."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, dtype="float32"):
        self.array = np.zeros(2, dtype)
        self.info = {}
        self.episode = -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.t = 0
        return self._obs(), self.info

    def step(self, action):
        self.t += 1
        self.info["x"] = [1.0, "text", {"y": [np.zeros(3), {"z": object()}]}, None][self.t % 4]
        if self.t % 5 == 0:
            self.info.clear()
        return self._obs(), float(self.t), self.t == 7, False, self.info

    def _obs(self):
        self.array[:] = self.episode, self.t
        return self.array


@dataclass
class CarelessConfig:
    dtype: str = "float32"

    def build(self):
        return CarelessEnv(self.dtype)


class OldEnv(gymnasium.Env):
    """The API of gym before 0.26."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, {}


@dataclass
class LambdaConfig:
    """Holds what no other process can be given."""

    shaping: object = None

    def build(self):
        return CarelessEnv()


for _id, _class in (("Fault-v0", FaultEnv), ("Careless-v0", CarelessEnv), ("Old-v0", OldEnv)):
    gymnasium.register(_id, entry_point=_class, disable_env_checker=True, order_enforce=False)
