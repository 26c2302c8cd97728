"""The step loop: the only one that gathers experience, in whatever process."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from rlcli.core.protocols import Agent, VectorEnv
from rlcli.core.rng import Purpose, UniformStreams
from rlcli.core.samples import Episode, Game, Samples
from rlcli.core.spec import Step
from rlcli.core.tree import Tree, as_numpy, index, map_tree, write
from rlcli.samplers.recurrence import restart
from rlcli.samplers.tracker import EpisodeTracker


@dataclass(frozen=True)
class CollectorOptions:
    """What a collector needs to know beside its environments, agent and memory."""

    seed: int
    """Run seed."""
    n_envs: int
    """B of the whole batch, of which this collector may hold a slice."""
    discount: float
    """For the discounted return in the statistics."""
    max_decorrelation_steps: int
    reset: str
    """mid_batch or between_batches."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """Statistics of one batch; the samples themselves lie in the collector's memory."""

    n_steps: int
    """Valid rows."""
    longest_running: int
    episodes: list[Episode] = field(default_factory=list)
    games: list[Game] = field(default_factory=list)


class Collector:
    """Steps environments with an agent and writes what happens into given memory.

    Args:
        env: The environments; its ids are global.
        agent: Chooses the actions.
        out: Memory for T rows of these environments; may be a slice of a larger batch.
        options: See `CollectorOptions`.
    """

    def __init__(self, env: VectorEnv, agent: Agent, out: Samples, options: CollectorOptions) -> None:
        self._env, self._agent, self._out, self._options = env, agent, out, options
        self._n_rows = out.reward.shape[0]
        self._np = {name: as_numpy(getattr(out, name)) for name in ("obs", "action", "reward", "terminated")}
        self._np |= {name: as_numpy(getattr(out, name)) for name in ("truncated", "valid")}
        # Row 0 of the next batch. Apart from the batch, whose last row the learner may be reading while envs reset.
        self._next_obs = map_tree(np.copy, index(self._np["obs"], 0))
        self._tracker = EpisodeTracker(env.env_ids, options.discount)
        self._uniforms = UniformStreams(options.seed, Purpose.EXPLORE, env.env_ids, agent.n_uniforms)
        self._initial_state = agent.initial_state(len(env.env_ids))
        self._state: Tree = self._initial_state
        self._autoreset = options.reset == "mid_batch"

    def start(self) -> None:
        """Reset the environments and let each run on by a random number of random steps."""
        self._env.reset(self._next_obs)
        self._env.decorrelate(self._next_obs, self._options.max_decorrelation_steps, self._options.seed)

    def reset_idle(self) -> None:
        """Reset the environments that idle since their episode's end; does nothing in mode mid_batch."""
        if not self._autoreset:
            self._env.reset_idle(self._next_obs)

    def collect(self, step: int) -> Gathered:
        """Fill the memory with the next T rows.

        Args:
            step: Environment steps taken so far by all environments of the run; schedules hang on it.
        """
        out, views = self._out, self._np
        write(views["obs"], 0, self._next_obs)
        if self._state is not None:
            map_tree(lambda to, value: to.copy_(value), out.state, self._state)
        uniforms = torch.from_numpy(self._uniforms.block(self._n_rows))
        episodes: list[Episode] = []
        games: list[Game] = []
        for t in range(self._n_rows):
            act = self._agent.act(
                index(out.obs, t),
                self._state,
                uniforms[t],
                env_ids=self._env.env_ids,
                step=step + t * self._options.n_envs,
                explore=True,
            )
            write(out.action, t, act.action)
            write(out.record, t, act.record)
            self._env.send(index(views["action"], t), autoreset=self._autoreset)
            result = self._env.recv(index(views["obs"], t + 1))
            self._write(t, result)
            begins = ~result.valid | (result.terminated & ~result.ended)  # also after a lost life
            self._state = restart(act.state, self._initial_state, begins)
            ended = self._tracker.step(t, result)
            episodes += ended[0]
            games += ended[1]
        write(self._next_obs, ..., index(views["obs"], self._n_rows))
        return Gathered(int(views["valid"].sum()), self._tracker.longest_running, episodes, games)

    def _write(self, t: int, result: Step) -> None:
        for name in ("reward", "terminated", "truncated", "valid"):
            self._np[name][t] = getattr(result, name)
