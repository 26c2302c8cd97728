"""Atari games in the C++ threads of ale_py: observations, rewards and ends of `AtariEnv` from many games at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rlcli.core.errors import EnvError, InexactError
from rlcli.core.pulse import Doing, Pulse
from rlcli.core.rng import Purpose, generator, integer_seed
from rlcli.core.spec import EnvSpec, Step
from rlcli.envs.atari_names import load_ale
from rlcli.envs.config import refuse
from rlcli.envs.gym import random_action
from rlcli.envs.probe import probe

if TYPE_CHECKING:
    from rlcli.envs.config import AtariConfig

Mask = npt.NDArray[np.bool_]
_HIDDEN = "env.backend=ale steps many games in C++, whose state cannot be read; env.backend=python can save it"


class AleVectorEnv:
    """A `core.protocols.VectorEnv` over ale_py's AtariVectorEnv: `send` returns at once, C++ threads do the step.

    Every row equals that of `InProcessVectorEnv` over `AtariEnv` for the same (seed, purpose, global env id), with one
    exception. The C++ env knows no idling: behind the filler rows of an idle env it plays on, unseen, with no-ops. So
    what it plays after `reset_idle` is as repeatable, and as independent of the other envs, as everything else, but
    sticky actions and the number of start no-ops are other ones than InProcessVectorEnv's.

    Build it in the process that uses it: threads do not survive a fork.

    Args:
        config: Every setting; ``backend`` is not looked at.
        env_ids: Global ids, one game each.
        seed: Run seed.
        purpose: ENV or EVAL_ENV.
        spec: What `probe` found; None probes first.
        n_threads: Threads that step the games; no more than the machine has are made.
        pulse: Told at each call to C++.
        incarnation: How often these envs were lost with their worker and made anew.

    Raises:
        ConfigError: No such game, or something that the C++ env cannot do.
    """

    def __init__(
        self,
        config: AtariConfig,
        env_ids: Sequence[int],
        seed: int,
        *,
        purpose: Purpose = Purpose.ENV,
        spec: EnvSpec | None = None,
        n_threads: int = 1,
        pulse: Pulse | None = None,
        incarnation: int = 0,
    ) -> None:
        refuse(config.problems())
        self.spec = probe(config, seed) if spec is None else spec
        self.env_ids = tuple(env_ids)
        self._config, self._seed, self._purpose, self._incarnation = config, seed, purpose, incarnation
        self._pulse = Pulse() if pulse is None else pulse

        n_envs = len(self.env_ids)
        self._n_actions = self.spec.n_actions
        self._n_calls = 0
        self._n_extra = np.zeros(n_envs, np.int64)
        """Steps that each env has taken beyond the calls of `recv`: of decorrelation, less its filler rows."""
        self._plain = False
        """Whether in ``_out`` all flags are down and all rows valid."""
        self._seeded = False
        self._untouched = False
        """Whether nothing has happened since all envs were seeded."""
        self._sent = False
        self._autoreset = np.ones(n_envs, bool)
        self._over = np.zeros(n_envs, bool)
        """The game is over and the env was not reset yet."""
        self._idle = np.zeros(n_envs, bool)
        """Over for at least one filler row: the C++ env is in another game already."""
        self._last_obs: dict[int, npt.NDArray[np.uint8]] = {}
        """By position: the last observation of a game that is over."""
        self._lives = np.zeros(n_envs, np.int32)
        self._out = Step(
            reward=np.zeros(n_envs, np.float32),
            raw_reward=np.zeros(n_envs, np.float64),
            terminated=np.zeros(n_envs, bool),
            truncated=np.zeros(n_envs, bool),
            ended=np.zeros(n_envs, bool),
            valid=np.zeros(n_envs, bool),
        )
        self._pulse.doing(Doing.BUILD)
        self._games = _build(config, n_envs, n_threads)

    def reset(self, obs_out: npt.NDArray[np.uint8], seed: int | None = None) -> None:
        """Abandon what runs, start a game in every env and write the observations into ``obs_out``.

        Args:
            obs_out: [B, stack, H, W], in colour [B, stack * 3, H, W].
            seed: Start all random streams anew from this run seed; None lets them go on (the first time they
                start from the constructor's seed).
        """
        if seed is not None:
            self._seed = seed
        if self._sent:
            self._sent = False
            self._games.recv()
        self._untouched = seed is not None or not self._seeded
        self._pulse.doing(Doing.RESET)
        obs, info = self._games.reset(seed=self._seeds() if self._untouched else None)
        self._pulse.beat()
        self._seeded = True
        self._over[:] = self._idle[:] = False
        self._lives = info["lives"]
        self._write(obs_out, obs)

    def send(self, action: Any, autoreset: bool | Mask = True) -> None:
        """Start the step; the threads work while the caller does something else.

        Args:
            action: [B] integers, indices from 0; copied.
            autoreset: Whether envs whose game is over start a new one in this step; the others idle.

        Raises:
            EnvError: An action that the game does not have. It has not reached the C++ env, which would hang.
        """
        if self._sent:
            raise RuntimeError("send() twice without recv()")
        action = self._checked(action)
        action[self._over] = 0  # ignored; but an idle env plays on unseen, always in the same way
        self._autoreset[:] = autoreset
        self._games.send(action)
        self._sent = True
        self._untouched = False

    def recv(self, obs_out: npt.NDArray[np.uint8]) -> Step:
        """Wait for the step and write the observations into ``obs_out``; the returned arrays are reused next time."""
        if not self._sent:
            raise RuntimeError("recv() without send()")
        self._sent = False  # before the call: waiting for it a second time, after an interrupt, would be for ever
        self._pulse.doing(Doing.STEP)
        obs, raw_reward, over, truncated, info = self._games.recv()
        self._n_calls += 1
        self._pulse.beat()
        self._write(obs_out, obs)

        out, lives = self._out, info["lives"]
        out.raw_reward[:] = raw_reward
        if self._config.clip_reward:
            np.sign(raw_reward, out=out.reward, casting="unsafe")
        else:
            out.reward[:] = raw_reward
        # Most steps end nothing, and each call here is time in which the threads idle.
        if self._plain and not over.any() and not truncated.any() and np.array_equal(lives, self._lives):
            return out
        self._plain = self._note_ends(over, truncated, lives, obs_out)
        return out

    def renew(self) -> None:
        """Nothing: a seeded reset leaves nothing of what was before."""

    def reset_idle(self, obs_out: npt.NDArray[np.uint8]) -> None:
        """Start a game in the envs that have idled for at least one filler row; writes only their observations."""
        if self._idle.any():
            self._restart(self._idle.copy(), obs_out)

    def decorrelate(self, obs_out: npt.NDArray[np.uint8], max_steps: int, seed: int) -> npt.NDArray[np.int64]:
        """Let each env take 1 to ``max_steps`` random steps, so that the envs do not run in step.

        They all end together, since the C++ env cannot step some of them alone: an env with fewer steps than others
        is put back to its seeded start when its own begin.

        Args:
            obs_out: As for `reset`; holds the observations to act on afterwards.
            max_steps: Most steps, agent decisions; 0 does nothing.
            seed: Run seed of the random actions and of their number.

        Returns:
            [B] steps taken.

        Raises:
            RuntimeError: The envs do not stand at a seeded start: call it after the first `reset` or one with a seed.
        """
        if not max_steps:
            return np.zeros(len(self.env_ids), np.int64)
        if not self._untouched:
            raise RuntimeError("decorrelate() must follow a reset() that seeds")
        action, begins = self._random_steps(max_steps, seed)
        for t in range(len(action)):
            if t:
                self._put_back(begins == t)
            self._pulse.doing(Doing.STEP)
            obs, _, over, truncated, info = self._games.step(action[t])
            self._pulse.beat()
            ended = over | truncated
            if ended.any():
                obs, info = self._reset_some(ended)
        taken = len(action) - begins
        self._n_extra += taken
        self._untouched = False
        self._lives = info["lives"]
        self._write(obs_out, obs)
        return taken

    def state(self) -> list[Any]:
        """Nothing: ale_py gives no way to the games' state.

        Raises:
            InexactError: Always.
        """
        raise InexactError(_HIDDEN)

    def load_state(self, states: Sequence[Any]) -> None:
        """Nothing, as `state`.

        Raises:
            InexactError: Always.
        """
        raise InexactError(_HIDDEN)

    def close(self) -> None:
        """End the threads; safe to call twice."""
        self._games = None

    def _seeds(self) -> npt.NDArray[np.int64]:
        return np.array([integer_seed(self._seed, self._purpose, i, self._incarnation) for i in self.env_ids])

    def _checked(self, action: Any) -> npt.NDArray[np.int64]:
        given = np.asarray(action)
        if given.shape != self._over.shape or given.dtype.kind not in "iu":
            expected = f"integers {self._over.shape}, one for each of the envs {list(self.env_ids)}"
            raise EnvError(f"actions must be {expected}; got {given.dtype} {given.shape}")
        given = given.astype(np.int64)
        if given.view(np.uint64).max() >= self._n_actions:  # one look: a negative number is a large one here
            i = int(((given < 0) | (given >= self._n_actions)).argmax())
            allowed = f"allowed are 0 to {self._n_actions - 1}"
            raise EnvError(
                f"action is {given[i]}, {allowed}", self.env_ids[i], self._n_calls + int(self._n_extra[i]) + 1
            )
        return given

    def _note_ends(self, over: Mask, truncated: Mask, lives: npt.NDArray[np.int32], obs_out: Any) -> bool:
        """Flags, fillers and ends of a step that may have some; gives whether all flags are down and all rows valid."""
        out = self._out
        out.truncated[:] = truncated
        np.logical_or(over, truncated, out=out.ended)
        out.terminated[:] = over
        if self._config.episodic_life:
            # some games show 0 lives for a while before they are over: that end is told once, as game over
            out.terminated[:] |= (lives < self._lives) & (lives > 0)
        np.logical_not(self._over, out=out.valid)
        self._lives = lives
        if self._over.any():
            self._fill(obs_out)
        self._n_extra -= ~out.valid
        if out.ended.any():
            self._over |= out.ended
            for i in np.flatnonzero(out.ended).tolist():
                self._last_obs[i] = obs_out[i].copy()
        return bool(out.valid.all() and not self._over.any() and not out.terminated.any())

    def _fill(self, obs_out: npt.NDArray[np.uint8]) -> None:
        """Make filler rows of the envs that were over before this step."""
        filler, out = self._over.copy(), self._out
        for values in (out.reward, out.raw_reward, out.terminated, out.truncated, out.ended):
            values[filler] = 0
        held = filler & ~self._autoreset
        restarts = filler & self._autoreset & self._idle
        if restarts.any():
            self._restart(restarts, obs_out)
        self._idle[:] = self._over[:] = held
        for i in np.flatnonzero(held).tolist():
            obs_out[i] = self._last_obs[i]

    def _restart(self, which: Mask, obs_out: npt.NDArray[np.uint8]) -> None:
        """Start a game in some envs, of which the C++ env has not told anything yet."""
        obs, info = self._reset_some(which)
        self._lives = info["lives"]
        self._over &= ~which
        self._idle &= ~which
        self._write(obs_out, obs, np.flatnonzero(which))

    def _put_back(self, which: Mask) -> None:
        """Put envs back to their seeded start."""
        if which.any():
            self._reset_some(which, self._seeds()[which])

    def _reset_some(self, which: Mask, seeds: npt.NDArray[np.int64] | None = None) -> tuple[Any, dict[str, Any]]:
        self._pulse.doing(Doing.RESET)
        obs, info = self._games.reset(seed=seeds, options={"reset_mask": which})
        self._pulse.beat()
        return obs, info

    def _random_steps(self, max_steps: int, seed: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Actions [n_steps, B], those of each env at the end of its column, and the row [B] where they begin."""
        plans: list[list[Any]] = []
        for env_id in self.env_ids:
            rng = generator(seed, Purpose.DECORRELATE, env_id, self._incarnation)
            n_steps = int(rng.integers(1, max_steps + 1))
            plans.append([random_action(self.spec.action_space, rng) for _ in range(n_steps)])
        longest = max(map(len, plans))
        action = np.zeros((longest, len(plans)), np.int64)
        for i, plan in enumerate(plans):
            action[longest - len(plan) :, i] = plan
        return action, np.array([longest - len(plan) for plan in plans])

    def _write(self, obs_out: npt.NDArray[np.uint8], obs: Any, rows: Any = slice(None)) -> None:
        if self._config.grayscale:
            obs_out[rows] = obs[rows]
            return
        for k in range(self._config.frame_stack):  # the C++ env has colours last
            obs_out[rows, 3 * k : 3 * k + 3] = obs[rows, k].transpose(0, 3, 1, 2)


def _build(config: AtariConfig, n_envs: int, n_threads: int) -> Any:
    """The C++ env; whatever rlcli does otherwise, such as lives and clipping, is off in it."""
    load_ale()
    from ale_py.vector_env import AtariVectorEnv

    return AtariVectorEnv(
        config.rom,
        n_envs,
        num_threads=n_threads,
        max_num_frames_per_episode=config.max_frames,
        repeat_action_probability=config.sticky,
        full_action_space=config.full_action_space,
        img_height=config.image_size,
        img_width=config.width,
        grayscale=config.grayscale,
        stack_num=config.frame_stack,
        frameskip=config.frame_skip,
        noop_max=config.noop_max + 1,  # it draws from 0 to one less
        use_fire_reset=config.fire_reset,
        episodic_life=False,
        life_loss_info=False,
        reward_clipping=False,
    )
