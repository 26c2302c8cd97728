"""Tiny trained runs, environments registered with gymnasium for them, and files that must not be unpickled."""

import io
import pickle
import signal
import zipfile

import gymnasium
import numpy as np
from gymnasium import spaces

import rlcli
from rlcli.cli.argv import quoted
from tests.sampler_probes_parity import ParityEnv


class EndlessEnv(gymnasium.Env):
    """Never ends; a point for each step."""

    observation_space = spaces.Box(0, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, False, {}


class ShadesEnv(gymnasium.Env):
    """Pictures of one shade, which is the step; actions are 3, 4 and 5, and have names."""

    observation_space = spaces.Dict({"place": spaces.Box(-1, 1, (3,), np.float64), "kind": spaces.Discrete(4)})
    action_space = spaces.Discrete(3, start=3)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}

    def __init__(self, n_steps=12, n_kinds=4, interrupt_at=None, render_mode=None):
        self.render_mode, self.n_steps, self.interrupt_at = render_mode, n_steps, interrupt_at
        if n_kinds != 4:
            self.observation_space = spaces.Dict({**self.observation_space.spaces, "kind": spaces.Discrete(n_kinds)})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._obs(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.t += 1
        if self.t == self.interrupt_at:
            signal.raise_signal(signal.SIGINT)
        return self._obs(), float(action), self.t == self.n_steps, False, {}

    def render(self):
        return np.full((40, 30, 3), self.t, np.uint8) if self.render_mode == "rgb_array" else None

    def get_action_meanings(self):
        return ["STAY", "GO LEFT", "GO RIGHT"]

    def _obs(self):
        return {"place": self.np_random.uniform(-1, 1, 3), "kind": self.t % 4}


class PairsEnv(EndlessEnv):
    """Observes a tuple in a tuple; a point for each of 6 steps."""

    observation_space = spaces.Tuple([spaces.Box(-1, 1, (2,), np.float32), spaces.Tuple([spaces.Discrete(5, start=2)])])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.t += 1
        return self.observation_space.sample(), 1.0, self.t == 6, False, {}


gymnasium.register("Endless-v0", EndlessEnv)
gymnasium.register("Parity-v0", ParityEnv)
gymnasium.register("Shades-v0", ShadesEnv)
gymnasium.register("Pairs-v0", PairsEnv)

CARTPOLE = ("env=cartpole",)
DQN = ("algo=dqn", "algo.min_steps_learn=40", "replay.size=1_000")


def of(name):
    """The override that chooses one of the environments above."""
    return "env=gym", f"env.id={__name__}:{name}-v0"


def train(folder, *overrides):
    """A run of 200 steps in ``folder``, on the CPU."""
    small = ("sampler.batch_B=2", "sampler.max_decorrelation_steps=0", "n_steps=200", "log_interval_steps=100")
    keys = {text.partition("=")[0] for text in overrides}
    rest = [text for text in (*small, "device=cpu", "logger.ui=quiet") if text.partition("=")[0] not in keys]
    return rlcli.train([*rest, *overrides, f"run_dir={quoted(str(folder))}"])


class Canary:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return exec, (f"open({str(self.path)!r}, 'w').close()",)


def trap(path, canary):
    """A snapshot, as torch would write it, that makes the file ``canary`` when it is unpickled unsafely."""
    data = io.BytesIO()
    pickle.dump({"format": 1, "config": Canary(canary)}, data)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", data.getvalue())
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")
    return path


def bare_trap(path, canary):
    """The same as an ordinary pickle."""
    path.write_bytes(pickle.dumps({"format": 1, "config": Canary(canary)}))
    return path
