"""The step loop: the only one that gathers experience, in whatever process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from rlcli.core.errors import EnvError, InexactError
from rlcli.core.protocols import Agent, VectorEnv
from rlcli.core.rng import Purpose, UniformStreams
from rlcli.core.samples import Collected, Episode, Game, Samples
from rlcli.core.spec import Step
from rlcli.core.tree import Tree, as_numpy, index, map_tree, write
from rlcli.envs.finite import non_finite
from rlcli.samplers.config import BatchOptions
from rlcli.samplers.recurrence import restart
from rlcli.samplers.setup import SamplerSetup
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
    incarnation: int = 0
    """How often the environments were lost with their worker."""


def collector_options(config: BatchOptions, setup: SamplerSetup) -> CollectorOptions:
    """The options of a collector in this process."""
    return CollectorOptions(
        seed=setup.seed,
        n_envs=config.batch_B,
        discount=setup.discount,
        max_decorrelation_steps=config.max_decorrelation_steps,
        reset=config.reset,
        incarnation=setup.incarnation_of(),
    )


@dataclass(frozen=True, slots=True)
class Gathered:
    """Statistics of one batch; the samples themselves lie in the collector's memory."""

    n_steps: int
    """Valid rows."""
    longest_running: int
    episodes: list[Episode] = field(default_factory=list)
    games: list[Game] = field(default_factory=list)


def join(samples: Samples, parts: Sequence[Gathered]) -> Collected:
    """What collectors over parts of a batch gathered, in an order that does not depend on the parts."""
    return Collected(
        samples=samples,
        n_steps=sum(p.n_steps for p in parts),
        episodes=sorted((e for p in parts for e in p.episodes), key=lambda e: (e.row, e.env_id)),
        games=sorted((g for p in parts for g in p.games), key=lambda g: (g.row, g.env_id)),
        longest_running=max((p.longest_running for p in parts), default=0),
    )


class Collector:
    """Steps environments with an agent and writes what happens into given memory.

    `collect` does a whole batch. Who interleaves several collectors calls its parts: `begin`, then `act` and `receive`
    for each row, then `finish`.

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
        self._rows = [_Row.of(out, self._np, t) for t in range(self._n_rows)]
        # Row 0 of the next batch. Apart from the batch, whose last row the learner may be reading while envs reset.
        self._next_obs = map_tree(np.copy, index(self._np["obs"], 0))
        self._tracker = EpisodeTracker(env.env_ids, options.discount)
        self._uniforms = UniformStreams(
            options.seed, Purpose.EXPLORE, env.env_ids, agent.n_uniforms, options.incarnation
        )
        self._initial_state = agent.initial_state(len(env.env_ids))
        self._state: Tree = self._initial_state
        self._autoreset = options.reset == "mid_batch"
        self._n_steps = np.zeros(len(env.env_ids), np.int64)
        self._first_obs: Tree = None
        """Observations of the episodes that begin after a cut in the next row 0; None in the usual case."""
        self._unnoted: tuple[int, Step] | None = None

    def start(self) -> None:
        """Reset the environments and let each run on by a random number of random steps.

        Environments that were lost with their worker begin with an episode's first observation instead, after a cut in
        row 0 that follows the last row still in memory.
        """
        self._env.reset(self._next_obs)
        if self._options.incarnation:
            self._first_obs = map_tree(np.copy, self._next_obs)
            write(self._next_obs, ..., index(self._np["obs"], self._n_rows))
        else:
            most, seed = self._options.max_decorrelation_steps, self._options.seed
            self._n_steps += self._env.decorrelate(self._next_obs, most, seed)

    @property
    def env_ids(self) -> Sequence[int]:
        """Global ids of the environments, in the order of the slice."""
        return self._env.env_ids

    def state(self) -> list[Any]:
        """[B] plain trees with which collectors over any slices go on exactly as this one would; between two batches.

        Raises:
            InexactError: An environment cannot be saved, or was lost just now.
        """
        if self._first_obs is not None:
            raise InexactError("an environment was lost with its worker in the last batch")
        parts = zip(self._env.state(), self._uniforms.state(), self._tracker.state(), strict=True)
        return [
            {
                "env": env,
                "uniforms": uniforms,
                "episode": episode,
                "obs": map_tree(np.array, index(self._next_obs, b)),
                "carry": map_tree(lambda leaf, b=b: leaf[b].cpu().numpy().copy(), self._state),
                "n_steps": int(self._n_steps[b]),
            }
            for b, (env, uniforms, episode) in enumerate(parts)
        ]

    def load_state(self, states: Sequence[Any]) -> None:
        """Go on where `state` was taken; the environments have been reset before."""
        self._env.load_state([state["env"] for state in states])
        self._uniforms.load_state([state["uniforms"] for state in states])
        self._tracker.load_state([state["episode"] for state in states])
        self._state = map_tree(lambda leaf: leaf.clone(), self._initial_state)
        for b, state in enumerate(states):
            write(self._next_obs, b, state["obs"])
            write(self._state, b, map_tree(torch.from_numpy, state["carry"]))
            self._n_steps[b] = state["n_steps"]

    def cut(self, seed: int) -> None:
        """Make all environments anew, for new episodes after a cut that follows the last row in memory.

        Anew, and not only reset: so nothing of what they were, such as a random stream of their own, is left here that
        a process which goes on from a checkpoint could not have.

        Args:
            seed: Run seed of their streams from here on.
        """
        first = map_tree(np.copy, self._next_obs)
        self._env.renew()
        self._env.reset(first, seed)
        self._first_obs = first
        write(self._next_obs, ..., index(self._np["obs"], self._n_rows))
        self._uniforms = UniformStreams(seed, Purpose.EXPLORE, self._env.env_ids, self._agent.n_uniforms)
        self._state = self._initial_state

    def reset_idle(self) -> None:
        """Reset the environments that idle since their episode's end; does nothing in mode mid_batch."""
        if not self._autoreset:
            self._env.reset_idle(self._next_obs)

    def collect(self, step: int) -> Gathered:
        """Fill the memory with the next T rows.

        Args:
            step: Environment steps taken so far by all environments of the run; schedules hang on it.

        Raises:
            EnvError: An environment failed, or gave a reward or observation that is not finite.
        """
        self.begin(step)
        for t in range(self._n_rows):
            self.act(t)
            self.receive(t)
        return self.finish()

    def begin(self, step: int) -> None:
        """Start a batch; see `collect`."""
        write(self._np["obs"], 0, self._next_obs)
        if self._state is not None:
            map_tree(lambda to, value: to.copy_(value), self._out.state, self._state)
        self._step = step
        self._drawn = torch.from_numpy(self._uniforms.block(self._n_rows)).unbind()
        self._episodes: list[Episode] = []
        self._games: list[Game] = []

    def act(self, t: int) -> None:
        """Choose the actions of row t and send them off."""
        row = self._rows[t]
        act = self._agent.act(
            row.obs,
            self._state,
            self._drawn[t],
            env_ids=self._env.env_ids,
            step=self._step + t * self._options.n_envs,
            explore=True,
        )
        map_tree(_put, row.action, act.action)
        if self._first_obs is None:
            self._env.send(row.action_np, autoreset=self._autoreset)
        # while the environments step
        self._state = act.state
        map_tree(_put, row.record, act.record)
        self._note()

    def receive(self, t: int) -> None:
        """Wait for the step of row t and write it down."""
        next_obs = self._rows[t].next_obs
        if self._first_obs is None:
            result = self._env.recv(next_obs)
        else:
            result = _cut(len(self._env.env_ids))
            write(next_obs, ..., self._first_obs)
            self._first_obs = None
        self._unnoted = (t, result)
        if self._state is not None:
            begins = ~result.valid | (result.terminated & ~result.ended)  # also after a lost life
            self._state = restart(self._state, self._initial_state, begins)

    def _note(self) -> None:
        """Write down the last step's numbers, once the next step is under way."""
        if self._unnoted is None:
            return
        (t, result), self._unnoted = self._unnoted, None
        row = self._rows[t]
        row.reward[:] = result.reward
        row.terminated[:] = result.terminated
        row.truncated[:] = result.truncated
        row.valid[:] = result.valid
        episodes, games = self._tracker.step(t, result)
        self._episodes += episodes
        self._games += games

    def finish(self) -> Gathered:
        """End the batch; see `collect`."""
        views = self._np
        self._note()
        self._refuse_non_finite()
        write(self._next_obs, ..., index(views["obs"], self._n_rows))
        taken = views["valid"].sum(axis=0)
        self._n_steps += taken
        return Gathered(int(taken.sum()), self._tracker.longest_running, self._episodes, self._games)

    def _refuse_non_finite(self) -> None:
        found = non_finite(self._np["obs"], self._np["reward"])
        if found is not None:
            b, n_rows = found.position, found.row + (found.path == "reward")  # row t of obs came with step t - 1
            n_steps = int(self._n_steps[b] + self._np["valid"][:n_rows, b].sum())
            raise EnvError(f"{found}, must be finite", self._env.env_ids[b], n_steps)


@dataclass(frozen=True, slots=True)
class _Row:
    """Views of one row of the memory, made once."""

    obs: Tree
    action: Tree
    record: Tree
    action_np: Tree
    next_obs: Tree
    """Numpy, as are ``action_np`` and the flags."""
    reward: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    valid: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, out: Samples, views: dict[str, Tree], t: int) -> _Row:
        """Row t."""
        return cls(
            index(out.obs, t),
            index(out.action, t),
            index(out.record, t),
            index(views["action"], t),
            index(views["obs"], t + 1),
            *(views[name][t] for name in ("reward", "terminated", "truncated", "valid")),
        )


def _put(to: torch.Tensor, value: torch.Tensor) -> None:
    to.copy_(value)


def _cut(n_envs: int) -> Step:
    """The row in which environments are known to have been lost."""
    yes, no = np.ones(n_envs, bool), np.zeros(n_envs, bool)
    nothing = np.zeros(n_envs)
    return Step(nothing.astype(np.float32), nothing, terminated=no, truncated=yes, ended=no, valid=no)
