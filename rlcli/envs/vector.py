"""Several environments stepped together in the calling process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rlcli.core.errors import ConfigError, EnvError, InexactError
from rlcli.core.pulse import Doing, Pulse
from rlcli.core.rng import Purpose, generator, integer_seed
from rlcli.core.spec import EnvSpec, Step
from rlcli.core.stop import Stopped
from rlcli.core.tree import index, leaves, map_tree
from rlcli.envs.finite import non_finite
from rlcli.envs.gym import Outcome, action_converter, checked_reset, checked_step, random_action, write_obs
from rlcli.envs.probe import probe
from rlcli.envs.state import capture, restore

if TYPE_CHECKING:
    from rlcli.envs.config import EnvConfig


class InProcessVectorEnv:
    """A `core.protocols.VectorEnv` whose environments step one after another, here.

    What an environment does hangs on (seed, purpose, its global id) alone, so a slice of the environments gives
    the same rows as all of them together.

    Args:
        config: Anything with ``build() -> gymnasium.Env``.
        env_ids: Global ids, one environment each.
        seed: Run seed.
        purpose: ENV or EVAL_ENV.
        spec: What `probe` found; None probes first.
        pulse: Where to tell what goes on; None: nobody looks.
        incarnation: How often these environments were lost with their worker and made anew; each has streams of
            its own.

    Raises:
        ConfigError: The config's request cannot be met.
        EnvError: Building an environment raised.
    """

    def __init__(
        self,
        config: EnvConfig,
        env_ids: Sequence[int],
        seed: int,
        purpose: Purpose = Purpose.ENV,
        spec: EnvSpec | None = None,
        *,
        pulse: Pulse | None = None,
        incarnation: int = 0,
    ) -> None:
        self.spec = probe(config, seed) if spec is None else spec
        self._config, self.env_ids = config, tuple(env_ids)
        self._seed, self._purpose, self._incarnation = seed, purpose, incarnation
        self._pulse = Pulse() if pulse is None else pulse
        self._beat = None if pulse is None else pulse.beat  # 1.5 % of a step of CartPole, so only if somebody looks
        self._convert = action_converter(self.spec.action_space)

        n_envs = len(self.env_ids)
        self._envs: list[gymnasium.Env[Any, Any]] = []
        self._n_steps = [0] * n_envs
        self._seeded = [False] * n_envs
        self._last_obs: list[Any] = [None] * n_envs
        """The last observation of an episode that has ended, until the environment is reset; None while it runs."""
        self._idle = [False] * n_envs
        self._action: Any = None
        self._autoreset: npt.NDArray[np.bool_] = np.ones(n_envs, bool)
        self._out = Step(
            reward=np.zeros(n_envs, np.float32),
            raw_reward=np.zeros(n_envs, np.float64),
            terminated=np.zeros(n_envs, bool),
            truncated=np.zeros(n_envs, bool),
            ended=np.zeros(n_envs, bool),
            valid=np.zeros(n_envs, bool),
        )
        self._cells = SimpleNamespace(**{f.name: memoryview(getattr(self._out, f.name)) for f in fields(Step)})
        """The memory of ``_out``; writing one item costs half of what it costs through numpy."""
        for i in range(n_envs):
            self._build(config, i)

    def reset(self, obs_out: Any, seed: int | None = None) -> None:
        """Abandon what runs, reset every env and write the observations into ``obs_out`` ([B, ...] numpy leaves).

        Args:
            obs_out: An array or a dict of them.
            seed: Start all random streams anew from this run seed; None lets them go on (the first time they
                start from the constructor's seed).
        """
        if seed is not None:
            self._seed = seed
            self._seeded = [False] * len(self._envs)
        self._action = None
        for i in range(len(self._envs)):
            self._reset(i, obs_out)

    def send(self, action: Any, autoreset: bool | npt.NDArray[np.bool_] = True) -> None:
        """Take the actions of the next step, [B, ...] numpy, or a dict of such for a Dict or Tuple space.

        Args:
            action: What `envs.gym.action_converter` takes; copied.
            autoreset: Whether envs whose episode has ended are reset in this step; the others idle.
        """
        parts = [("", action)] if not isinstance(action, Mapping) else leaves(action)
        for path, leaf in parts:
            if len(leaf) != len(self._envs):
                what = f"{path}: " if path else ""
                raise ValueError(f"{what}expected {len(self._envs)} actions, got {len(leaf)}")
        self._action = map_tree(np.array, action)
        self._autoreset[:] = autoreset

    def recv(self, obs_out: Any) -> Step:
        """Do the step and write the observations into ``obs_out``; the returned arrays are reused next time.

        Raises:
            EnvError: An environment raised or broke its spaces; names the env and its step.
        """
        if self._action is None:
            raise RuntimeError("recv() without send()")
        action, self._action = self._action, None
        take = partial(index, action) if isinstance(action, Mapping) else action.__getitem__
        for i, last_obs in enumerate(self._last_obs):
            if last_obs is None:
                self._step(i, take(i), obs_out)
            else:
                self._fill(i, obs_out)
        return self._out

    def reset_idle(self, obs_out: Any) -> None:
        """Reset the envs that have idled for at least one filler row; writes only their observations."""
        for i, idle in enumerate(self._idle):
            if idle:
                self._reset(i, obs_out)

    def decorrelate(self, obs_out: Any, max_steps: int, seed: int) -> npt.NDArray[np.int64]:
        """Let each env take 1 to ``max_steps`` random steps, so that the envs do not run in step.

        Call it after a reset. Episodes that end on the way are followed by a reset; ``obs_out`` then holds the
        observations to act on. 0 does nothing.

        Args:
            obs_out: As for `reset`.
            max_steps: Most steps, agent decisions.
            seed: Run seed of the random actions and of their number.

        Returns:
            [B] steps taken.
        """
        taken = np.zeros(len(self.env_ids), np.int64)
        for i, env_id in enumerate(self.env_ids if max_steps else ()):
            rng = generator(seed, Purpose.DECORRELATE, env_id, self._incarnation)
            taken[i] = rng.integers(1, max_steps + 1)
            for _ in range(taken[i]):
                got = self._advance(i, random_action(self.spec.action_space, rng), obs_out)
                self._refuse_non_finite(i, obs_out, got.reward)
                if got.terminated or got.truncated:
                    self._reset(i, obs_out)
            self._refuse_non_finite(i, obs_out)
        return taken

    def state(self) -> list[Any]:
        """[B] plain trees: all that each env needs to go on as it would, here or in another process; copies.

        Call it between two steps.

        Raises:
            InexactError: An environment cannot be saved exactly; names the env and what in it.
        """
        if self._action is not None:
            raise RuntimeError("state() between send() and recv()")
        found = []
        for i, env in enumerate(self._envs):
            with self._inexact(i):
                found.append(
                    {
                        "env": capture(env),
                        "last_obs": None if self._last_obs[i] is None else map_tree(np.copy, self._last_obs[i]),
                        "idle": self._idle[i],
                        "n_steps": self._n_steps[i],
                        "seeded": self._seeded[i],
                    }
                )
        return found

    def load_state(self, states: Sequence[Any]) -> None:
        """Let each env go on as that of `state` would have.

        Args:
            states: What `state` gave, [B] in the order of ``env_ids``; the envs have been reset before.

        Raises:
            InexactError: An environment cannot be made the same; names the env and what in it.
        """
        if len(states) != len(self._envs):
            raise ValueError(f"expected {len(self._envs)} states, got {len(states)}")
        self._action = None
        for i, state in enumerate(states):
            with self._inexact(i):
                restore(self._envs[i], state["env"])
            last_obs = state["last_obs"]
            self._last_obs[i] = None if last_obs is None else map_tree(np.copy, last_obs)
            self._idle[i], self._n_steps[i] = state["idle"], state["n_steps"]
            self._seeded[i] = state["seeded"]

    def renew(self) -> None:
        """Make every environment anew, as in a process that has just begun; a reset must follow.

        Raises:
            ConfigError, EnvError: See the constructor; an environment's close() raised.
        """
        self.close()
        for i in range(len(self.env_ids)):
            self._build(self._config, i)
            self._seeded[i], self._last_obs[i], self._idle[i] = False, None, False

    def close(self) -> None:
        """Close every environment; safe to call twice.

        Raises:
            EnvError: An environment's close() raised; the others are closed all the same.
        """
        envs, self._envs = self._envs, []
        failures: list[EnvError] = []
        for env_id, env in zip(self.env_ids, envs, strict=False):
            try:
                env.close()
            except Exception as error:
                failure = EnvError(f"close() raised {type(error).__name__}: {error}", env_id)
                failure.__cause__ = error
                failures.append(failure)
        if failures:
            raise failures[0]

    def _build(self, config: EnvConfig, i: int) -> None:
        self._pulse.doing(Doing.BUILD, self.env_ids[i])
        try:
            self._envs.append(config.build())
        except Stopped:  # a SystemExit too, but ours
            raise
        except (Exception, SystemExit) as error:
            self.close()
            if isinstance(error, ConfigError):
                raise
            raise self._located(error, i, "building it") from error

    def _reset(self, i: int, obs_out: Any) -> None:
        env, seed = self._envs[i], None
        if not self._seeded[i]:
            seed = integer_seed(self._seed, self._purpose, self.env_ids[i], self._incarnation)
        self._pulse.doing(Doing.RESET, self.env_ids[i])
        try:
            write_obs(obs_out, i, checked_reset(env, seed))
            if seed is not None:
                env.action_space.seed(seed)
        except Stopped:  # a SystemExit too, but ours
            raise
        except (Exception, SystemExit) as error:
            raise self._located(error, i, "reset()") from error
        self._pulse.doing(Doing.STEP)
        self._seeded[i] = True
        self._last_obs[i] = None
        self._idle[i] = False

    def _advance(self, i: int, action: Any, obs_out: Any) -> Outcome:
        self._n_steps[i] += 1
        try:
            got = checked_step(self._envs[i], self._convert(action))
            write_obs(obs_out, i, got.obs)
        except Stopped:  # a SystemExit too, but ours
            raise
        except (Exception, SystemExit) as error:
            raise self._located(error, i, "step()") from error
        if self._beat is not None:
            self._beat()
        return got

    def _refuse_non_finite(self, i: int, obs_out: Any, reward: float = 0.0) -> None:
        """What a batch is checked for by whoever gathers it, here for steps that go into none."""
        found = non_finite(map_tree(lambda leaf: leaf[None, i : i + 1], obs_out), np.array([[reward]]))
        if found is not None:
            raise EnvError(f"{found}, must be finite", self.env_ids[i], self._n_steps[i])

    def _step(self, i: int, action: Any, obs_out: Any) -> None:
        _, reward, raw_reward, terminated, truncated, life_lost = self._advance(i, action, obs_out)
        ended = terminated or truncated
        out = self._cells
        out.reward[i] = reward
        out.raw_reward[i] = raw_reward
        out.terminated[i] = terminated or life_lost
        out.truncated[i] = truncated
        out.ended[i] = ended
        out.valid[i] = True
        if ended:
            self._last_obs[i] = _copied(obs_out, i)

    def _fill(self, i: int, obs_out: Any) -> None:
        if self._autoreset[i]:
            self._reset(i, obs_out)
        else:
            write_obs(obs_out, i, self._last_obs[i])
            self._idle[i] = True
        out = self._cells
        out.reward[i] = out.raw_reward[i] = 0
        out.terminated[i] = out.truncated[i] = out.ended[i] = out.valid[i] = False

    @contextmanager
    def _inexact(self, i: int) -> Iterator[None]:
        try:
            yield
        except InexactError as error:
            raise InexactError(f"env {self.env_ids[i]}: {error}") from error

    def _located(self, error: BaseException, i: int, what: str) -> EnvError:
        message = error.message if isinstance(error, EnvError) else f"{what} raised {type(error).__name__}: {error}"
        evaluation = self._purpose == Purpose.EVAL_ENV
        return EnvError(message, self.env_ids[i], self._n_steps[i], evaluation=evaluation)


def _copied(tree: Any, row: int) -> Any:
    """Row ``row`` of each leaf, in memory of its own."""
    if isinstance(tree, dict):
        return {key: _copied(leaf, row) for key, leaf in tree.items()}
    return np.array(tree[row])
