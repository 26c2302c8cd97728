"""An environment that does something at a chosen moment of its life: signal the process, sleep, raise."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces

ID = "tests.stopping_probes:Moment-v0"
MARK = "RLCLI_TEST_MARK"
"""Environment variable with the file that `sleep` makes before it begins."""


class MomentEnv(gymnasium.Env):
    """Never ends; each action of ``what`` (comma-separated) is done when the moment has come.

    Args:
        what: int, term: signal this process; swallow: the same, and swallow the exception; convert: the same, and make
            an ImportError of it; raise: ValueError("marker-7"); sleep: mark, then sleep for an hour; doze: 20 ms.
        instance: Which environment of the process does it, from 0.
        at: At which of its steps, from 1; 0: in the constructor; -1: at every step.
        in_worker: In worker processes (not in the run's own).
    """

    observation_space = spaces.Box(0, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)
    n_instances = 0

    def __init__(self, what: str = "", instance: int = 0, at: int = 0, in_worker: bool = False) -> None:
        number = MomentEnv.n_instances
        MomentEnv.n_instances += 1
        here = (multiprocessing.parent_process() is not None) == in_worker
        self.what = what.split(",") if what and here and number == instance else []
        self.at, self.t = at, 0
        self._look(0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.array([self.t], np.float32), {}

    def step(self, action):
        self.t += 1
        self._look(self.t)
        return np.array([self.t], np.float32), 1.0, False, False, {}

    def _look(self, t: int) -> None:
        if t == self.at or (self.at < 0 and t):
            for action in self.what:
                _ACTIONS[action]()


def _swallow() -> None:
    with contextlib.suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def _convert() -> None:
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt as error:
        raise ImportError("half imported") from error


def _sleep() -> None:
    Path(os.environ[MARK]).touch()
    time.sleep(3600)


def _raise() -> None:
    raise ValueError("marker-7")


_ACTIONS = {
    "int": lambda: signal.raise_signal(signal.SIGINT),
    "term": lambda: signal.raise_signal(signal.SIGTERM),
    "swallow": _swallow,
    "convert": _convert,
    "raise": _raise,
    "sleep": _sleep,
    "doze": lambda: time.sleep(0.02),
}

gymnasium.register("Moment-v0", entry_point=MomentEnv, disable_env_checker=True, order_enforce=False)
