import itertools
import time
from dataclasses import dataclass, field, replace

import gymnasium
import numpy as np
import pytest

from rlcli.core.spec import EnvSpec
from rlcli.envs.config import AtariConfig, GymConfig
from rlcli.envs.probe import probe
from rlcli.envs.state_trial import trial
from tests.envs.state_probes import HiddenConfig, HiddenEnv, MazeConfig
from tests.probes import DictConfig, TupleConfig

GYM = [GymConfig(name) for name in ("CartPole-v1", "Acrobot-v1", "Pendulum-v1", "Ant-v5", "Taxi-v4")]


def tried(config):
    return trial(config, probe(config), seed=3)


@pytest.mark.parametrize("config", [*GYM, MazeConfig(), DictConfig(), TupleConfig(), AtariConfig(sticky=0.25)])
def test_envs_that_can_be_saved_pass(config):
    assert tried(config) == ""


def test_what_cannot_be_saved_is_told():
    assert tried(HiddenConfig("generator")) == "HiddenEnv.parts['deep'][1] is a generator, which cannot be saved"


@pytest.mark.filterwarnings("ignore")
def test_a_stream_that_no_attribute_shows_is_found_out():
    reason = tried(HiddenConfig("unseen global stream"))

    assert reason == "1 steps after its state was put back, the env gave another obs than without"


def test_the_state_of_cpp_threads_cannot_be_read():
    config = AtariConfig(backend="ale")

    assert "C++" in trial(config, probe(replace(config, backend="python")), seed=0)


BUILT = []


class CountedEnv(HiddenEnv):
    def __init__(self, step_s):
        super().__init__("")
        self.step_s, self.n_steps, self.n_closed = step_s, 0, 0
        BUILT.append(self)

    def step(self, action):
        time.sleep(self.step_s)
        self.n_steps += 1
        return super().step(action)

    def close(self):
        self.n_closed += 1


@dataclass
class CountedConfig:
    step_s: float = 0.0
    built: list[int] = field(default_factory=list)
    most: int = 9

    def build(self) -> gymnasium.Env:
        if len(self.built) == self.most:
            raise OSError("the port is taken")
        self.built.append(0)
        return CountedEnv(self.step_s)


def test_slow_envs_are_tried_for_a_few_steps_only_and_closed():
    config = CountedConfig(step_s=0.1)
    spec = probe(config)
    BUILT.clear()
    started = time.perf_counter()

    assert trial(config, spec, seed=0, time_s=0.4) == ""

    assert time.perf_counter() - started < 2.5
    assert [env.n_closed for env in BUILT] == [1, 1]
    assert all(3 <= env.n_steps <= 8 for env in BUILT)


def test_other_envs_are_tried_for_a_while():
    config = CountedConfig()
    spec = probe(config)
    BUILT.clear()

    assert trial(config, spec, seed=0, time_s=60) == ""

    assert [60, 60] == [env.n_steps for env in BUILT]


def test_an_env_that_cannot_be_built_twice_is_told_and_the_first_closed():
    config = CountedConfig(most=2)
    spec = probe(config)
    BUILT.clear()

    assert trial(config, spec, seed=0) == "trying it failed: building it raised OSError: the port is taken"
    assert [env.n_closed for env in BUILT] == [1]


def test_an_env_that_raises_is_told():
    config = HiddenConfig("")
    spec = probe(config)
    spec = EnvSpec(spec.observation_space, gymnasium.spaces.Discrete(2), np.zeros(2, np.float32), spec.example_action)

    assert trial(config, spec, seed=0).startswith("trying it failed: obs: expected float32 (2,), got")


@pytest.mark.parametrize("n_steps", [3, 14, 15, 22, 29])
def test_env_whose_trial_time_cuts_short_is_exact_all_the_same(monkeypatch, n_steps):
    clock = itertools.count()
    monkeypatch.setattr("rlcli.envs.state_trial.time.perf_counter", lambda: float(next(clock)))  # each step lasts 1 s
    config = GymConfig(id="CartPole-v1")

    assert trial(config, probe(config), 0, time_s=4 * (n_steps - 0.5)) == ""
