"""Evaluation: whole games on environments of their own, the same number from each, so that short ones count no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from rlcli.core.errors import EnvError
from rlcli.core.protocols import Agent, VectorEnv
from rlcli.core.rng import Purpose, UniformStreams
from rlcli.core.samples import Episode, Evaluation, Game
from rlcli.core.tree import as_numpy, as_torch, leaves, map_tree
from rlcli.envs.build import build_vector_env
from rlcli.samplers.quota import fair_n_envs
from rlcli.samplers.recurrence import restart
from rlcli.samplers.setup import SamplerSetup
from rlcli.samplers.tracker import EpisodeTracker


class Evaluator:
    """Plays a fixed number of games on each of some environments.

    Every evaluation starts the environments' streams anew, so it is a function of the weights and the run seed.

    Args:
        env: Evaluation environments; ids are global among the evaluation environments.
        agent: Chooses the actions, without training's exploration.
        seed: Run seed.
        quota: Games for each environment.
        max_steps: Cap on agent steps of each environment; games that it cuts are reported apart.
        discount: For the discounted return.
    """

    def __init__(
        self, env: VectorEnv, agent: Agent, *, seed: int, quota: Sequence[int], max_steps: int, discount: float
    ) -> None:
        self._env, self._agent, self._seed, self._max_steps = env, agent, seed, max_steps
        self._quota = np.asarray(quota, np.int64)
        self._tracker = EpisodeTracker(env.env_ids, discount)
        n_envs = len(env.env_ids)
        self._obs = map_tree(lambda leaf: np.zeros((n_envs, *leaf.shape), leaf.dtype), env.spec.example_obs)
        self._floats = [(path, leaf) for path, leaf in leaves(self._obs, "obs") if leaf.dtype.kind == "f"]
        """Parts of the observation that may be NaN or infinite."""
        self._n_steps = np.zeros(n_envs, np.int64)
        """Each environment's own, over all evaluations."""

    def evaluate(self, step: int) -> Evaluation:
        """Play; ``step`` is the training's, for what hangs on it.

        Raises:
            EnvError: An environment failed, or gave a reward or observation that is not finite.
        """
        env, obs, remaining = self._env, self._obs, self._quota.copy()
        env.reset(obs, seed=self._seed)
        self._refuse_non_finite(self._floats)
        self._tracker.reset()
        streams = UniformStreams(self._seed, Purpose.EVAL_EXPLORE, env.env_ids, self._agent.n_uniforms)
        state = initial = self._agent.initial_state(len(env.env_ids))
        tensors = as_torch(obs)
        episodes: list[Episode] = []
        games: list[Game] = []
        n_steps = row = 0
        while (remaining > 0).any() and row < self._max_steps:
            playing = remaining > 0
            uniforms = torch.from_numpy(streams.block(1)[0])
            act = self._agent.act(tensors, state, uniforms, env_ids=env.env_ids, step=step, explore=False)
            env.send(as_numpy(act.action), autoreset=playing)
            result = env.recv(obs)
            self._n_steps += result.valid
            self._refuse_non_finite([("reward", result.reward), *self._floats])
            state = restart(act.state, initial, ~result.valid)
            # an env that has played its games idles; but one that was lost with its worker begins another
            done = set(np.asarray(env.env_ids)[~playing].tolist())
            ended = self._tracker.step(row, result)
            episodes += [episode for episode in ended[0] if episode.env_id not in done]
            games += [game for game in ended[1] if game.env_id not in done]
            remaining -= result.ended & result.valid & playing
            n_steps += int((result.valid & playing).sum())
            row += 1
        scores = self._tracker.running_scores
        cut = [score for score, left in zip(scores, remaining, strict=True) if left > 0]
        return Evaluation(games=games, episodes=episodes, n_steps=n_steps, cut_scores=cut)

    def close(self) -> None:
        """Close the environments."""
        self._env.close()

    def _refuse_non_finite(self, parts: Sequence[tuple[str, npt.NDArray[np.floating[Any]]]]) -> None:
        """Look at (path, [B, ...]) arrays of one row."""
        for path, leaf in parts:
            finite = np.isfinite(leaf)
            if not finite.all():
                b, *place = np.argwhere(~finite)[0].tolist()
                message = f"{path}{place or ''} is {leaf[(b, *place)]}, must be finite"
                raise EnvError(message, self._env.env_ids[b], int(self._n_steps[b]), evaluation=True)


def n_evaluation_envs(setup: SamplerSetup) -> int:
    """Evaluation environments that play; 0: there is no evaluation."""
    return fair_n_envs(setup.eval_n_envs, setup.eval_n_episodes) if setup.eval_n_envs else 0


def quotas(n_episodes: int, n_envs: int) -> list[int]:
    """Games for each environment: as even as can be, their sum exactly ``n_episodes``."""
    size, extra = divmod(n_episodes, n_envs)
    return [size + (i < extra) for i in range(n_envs)]


def build_evaluator(setup: SamplerSetup, env: VectorEnv) -> Evaluator:
    """An evaluator that plays its part of the run's evaluation games on ``env``."""
    n_envs = n_evaluation_envs(setup)
    quota = quotas(setup.eval_n_episodes, n_envs)
    return Evaluator(
        env,
        setup.agent,
        seed=setup.seed,
        quota=[quota[i] for i in env.env_ids],
        max_steps=max(1, setup.eval_max_steps // n_envs),
        discount=setup.discount,
    )


def evaluation_env(setup: SamplerSetup, env_ids: Sequence[int], n_threads: int = 1) -> VectorEnv:
    """Some of the run's evaluation environments, in this process."""
    return build_vector_env(
        setup.eval_env,
        env_ids,
        setup.seed,
        purpose=Purpose.EVAL_ENV,
        spec=setup.spec,
        n_threads=n_threads,
        pulse=setup.pulse,
    )


def merge(parts: Sequence[Evaluation]) -> Evaluation:
    """Evaluations of slices as one, in an order that does not depend on the slicing."""
    return Evaluation(
        games=sorted((g for p in parts for g in p.games), key=lambda g: (g.row, g.env_id)),
        episodes=sorted((e for p in parts for e in p.episodes), key=lambda e: (e.row, e.env_id)),
        n_steps=sum(p.n_steps for p in parts),
        cut_scores=[score for p in parts for score in p.cut_scores],
    )
