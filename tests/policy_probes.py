"""Environments and a shortest way to train policies on them; importable in worker processes."""

import contextlib
from dataclasses import dataclass, field

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from rlcli.core.context import BuildContext
from rlcli.envs.previous import with_previous
from rlcli.envs.probe import probe
from rlcli.models.config import AutoModelConfig
from rlcli.samplers.config import SerialConfig
from tests.sampler_probes import make_setup

SMALL = AutoModelConfig(mlp_hidden=[16], recurrent_hidden=16)


class CueEnv(gymnasium.Env):
    """Shows a cue at t = 0, blanks, and asks for it at t = 5: reward 1 for the right answer, -1 for the wrong one."""

    observation_space = spaces.Box(0, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.cue = 0, int(self.np_random.integers(2))
        return np.eye(3, dtype=np.float32)[self.cue], {}

    def step(self, action):
        self.t += 1
        over = self.t == 6
        obs = np.array([0, 0, self.t == 5], np.float32)
        return obs, (1.0 if action == self.cue else -1.0) if over else 0.0, over, False, {}


@dataclass
class CueConfig:
    def build(self):
        return CueEnv()

    def for_evaluation(self):
        return self


COMPOSITE = spaces.Dict(
    {
        "turn": spaces.Box(-2, 2, (1,), np.float32),
        "pair": spaces.Tuple([spaces.MultiDiscrete([3, 2]), spaces.Discrete(3, start=4)]),
        "lights": spaces.MultiBinary(2),
    }
)


class BanditEnv(gymnasium.Env):
    """One step; an action of many parts, 1 for each that is right: turn near 1, pair (2, 0), 5, lights (1, 0)."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = COMPOSITE

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        several, one = action["pair"]
        right = [several[0] == 2, several[1] == 0, one == 5, action["lights"][0] == 1, action["lights"][1] == 0]
        reward = float(sum(right)) - float((action["turn"][0] - 1) ** 2)
        return np.ones(1, np.float32), reward, True, False, {}


@dataclass
class BanditConfig:
    def build(self):
        return BanditEnv()

    def for_evaluation(self):
        return self


class FarBoxEnv(gymnasium.Env):
    """The best action lies outside the bounds of its Box: reward is the action, which must be within them."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Box(-0.1, 0.1, (2,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.ones(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.t += 1
        return np.ones(1, np.float32), float(action.sum()), False, self.t == 7, {}


@dataclass
class FarBoxConfig:
    def build(self):
        return FarBoxEnv()

    def for_evaluation(self):
        return self


@dataclass
class Session:
    """An agent, its learner and the batches in between."""

    env: object
    config: object
    model: object = field(default_factory=lambda: SMALL)
    batch_T: int = 10
    n_envs: int = 4
    reset: str = "mid_batch"
    seed: int = 0

    def __post_init__(self):
        self.env = with_previous(self.env, self.model)
        torch.manual_seed(self.seed)
        context = BuildContext(
            spec=probe(self.env), seed=self.seed, n_steps=10_000, n_envs=self.n_envs, device="cpu", model=self.model
        )
        self.agent = self.config.build_agent(context)
        self.algo = self.config.build(context, self.agent)
        self.step = 0

    def collected(self, n):
        """n batches; learn from each before the next is taken."""
        config = SerialConfig(self.batch_T, self.n_envs, reset=self.reset)
        with contextlib.closing(config.build(make_setup(self.env, self.agent, seed=self.seed))) as sampler:
            for _ in range(n):
                got = sampler.collect(self.step)
                self.step += got.n_steps
                yield got

    def train(self, n):
        """The metrics of n updates."""
        return [dict(self.algo.update(got.samples, step=self.step)) for got in self.collected(n)]

    def evaluate(self):
        """Mean score of greedy games."""
        setup = make_setup(self.env, self.agent, seed=self.seed, eval_n_envs=4, eval_n_episodes=40)
        with contextlib.closing(SerialConfig(1, 1).build(setup)) as sampler:
            return float(np.mean([game.score for game in sampler.evaluate(0).games]))
