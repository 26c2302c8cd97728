"""Environments and agents that sampler tests share; importable in worker processes."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, replace

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from rlcli.core.protocols import Act
from rlcli.envs.probe import probe
from rlcli.samplers.setup import SamplerSetup


class WanderEnv(gymnasium.Env):
    """Observes (episode, t, last action, a random number); lengths, rewards and ways to end are random.

    ``on_step(env, total_steps)`` is called at each step, for faults.
    """

    def __init__(self, on_step=None):
        self.observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.on_step = on_step
        self.episode = -1
        self.total = 0
        self.first_seed = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.first_seed = seed
            self.episode = -1
        self.episode += 1
        self.t = 0
        self.length = int(self.np_random.integers(1, 12))
        self.dies = bool(self.np_random.integers(2))
        return self._obs(-1), {}

    def step(self, action):
        self.t += 1
        self.total += 1
        if self.on_step is not None:
            self.on_step(self)
        over = self.t >= self.length
        reward = float(self.np_random.integers(-3, 4))
        return self._obs(action), reward, over and self.dies, over and not self.dies, {"text": "x", "n": self.t}

    def _obs(self, action):
        return np.array([self.episode, self.t, action, self.np_random.integers(100)], np.float32)


@dataclass
class WanderConfig:
    """Config of WanderEnv; ``fault`` happens at step ``at`` of the env whose first reset seed is ``victim``."""

    fault: str = ""
    at: int = 50
    victim: int = -1
    kind: str = "wander"
    label: str = "wander"

    def build(self):
        return WanderEnv(self._on_step if self.fault else None)

    def for_evaluation(self):
        return self

    def problems(self):
        return []

    def _on_step(self, env):
        if env.total != self.at or (self.victim >= 0 and env.first_seed != self.victim):
            return
        if self.fault == "raise":
            raise ValueError("marker-7")
        if self.fault == "exit":
            os._exit(3)
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "hang":
            time.sleep(3600)


class TableAgent:
    """Integer arithmetic only, so that no batch size changes a bit; recurrent: counts the steps of its episode."""

    n_uniforms = 2

    def __init__(self, use_step=True):
        self.use_step = use_step

    def initial_state(self, n_envs):
        return {"count": torch.zeros(n_envs, dtype=torch.int64)}

    def act(self, obs, state, uniforms, *, env_ids, step, explore):
        mixed = (
            obs.long().sum(-1) * 7
            + (uniforms * 1000).long().sum(-1)
            + torch.tensor(list(env_ids)) * 3
            + step * self.use_step
        )
        count = state["count"]
        record = {"obs0": obs[:, 0].clone(), "count": count.clone()}
        return Act(action=(mixed + count) % 3, record=record, state={"count": count + 1})

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass

    def weights(self):
        return {}

    def to(self, device):
        pass


def make_setup(env=None, agent=None, **changes):
    """A sampler's setup on WanderEnv with a table agent."""
    env = env or WanderConfig()
    setup = SamplerSetup(
        env=env,
        eval_env=env,
        spec=probe(replace(env, fault="") if isinstance(env, WanderConfig) else env),
        agent=agent or TableAgent(),
        seed=0,
        discount=0.9,
        eval_n_envs=3,
        eval_n_episodes=7,
        eval_max_steps=3000,
        say=lambda line: None,
    )
    return replace(setup, **changes)


class ImageTableAgent(TableAgent):
    """The same arithmetic on image observations."""

    def act(self, obs, state, uniforms, *, env_ids, step, explore):
        return super().act(obs.flatten(1), state, uniforms, env_ids=env_ids, step=step, explore=explore)


class SpaceAgent(TableAgent):
    """Actions of any action space, drawn from the uniforms; recurrent as TableAgent is."""

    n_uniforms = 4

    def __init__(self, space, example):
        super().__init__()
        self.space, self.example = space, example

    def act(self, obs, state, uniforms, *, env_ids, step, explore):
        shape = np.shape(self.example)
        drawn = uniforms[:, : int(np.prod(shape, dtype=np.int64))].reshape(-1, *shape)
        low, high = self._bounds()
        count = state["count"]
        if isinstance(self.space, spaces.Box) and np.issubdtype(self.space.dtype, np.floating):
            action = low + drawn * (high - low)
        else:
            action = low + (drawn * (high - low + 1)).floor()
        action = action.to(torch.as_tensor(self.example).dtype)
        return Act(action=action, record={"count": count.clone()}, state={"count": count + 1})

    def _bounds(self):
        space = self.space
        if isinstance(space, spaces.Discrete):
            return 0, int(space.n) - 1
        if isinstance(space, spaces.MultiDiscrete):
            return 0, torch.as_tensor(space.nvec - 1, dtype=torch.float64)
        if isinstance(space, spaces.MultiBinary):
            return 0, 1
        bounds = (np.clip(np.asarray(b, np.float64), -9, 9) for b in (space.low, space.high))
        return tuple(torch.as_tensor(b) for b in bounds)


class TableNetwork(torch.nn.Module):
    """Action values of WanderEnv's observations as small whole numbers, which no batch size rounds differently."""

    def forward(self, obs):
        factors = torch.tensor([[7, 1, 2], [3, 5, 1], [1, 2, 6], [5, 3, 4]])
        return (obs.long() @ factors % 11).float()


class WeightAgent(TableAgent):
    """One weight, a whole number: it is the action (modulo 3) and what is recorded."""

    def __init__(self):
        super().__init__()
        self.weight = torch.ones(1)

    def initial_state(self, n_envs):
        return None

    def act(self, obs, state, uniforms, *, env_ids, step, explore):
        weight = self.weight.to(torch.int64).expand(len(env_ids)).clone()
        return Act(action=weight % 3, record={"weight": weight}, state=None)

    def state_dict(self):
        return {"weight": self.weight}

    def load_state_dict(self, state):
        self.weight.copy_(state["weight"])

    def weights(self):
        return {"weight": self.weight}
