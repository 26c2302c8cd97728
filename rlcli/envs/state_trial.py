"""Whether the state of a config's environments can be saved and put back exactly: tried, not assumed."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcli.core.errors import EnvError, InexactError, RlcliError
from rlcli.core.rng import Purpose, generator
from rlcli.core.spec import EnvSpec
from rlcli.core.stop import Stopped
from rlcli.core.tree import leaves, map_tree
from rlcli.envs.build import build_vector_env, has_native_vector
from rlcli.envs.gym import random_action

if TYPE_CHECKING:
    from rlcli.core.protocols import VectorEnv
    from rlcli.envs.config import EnvConfig

N_STEPS = 30
"""Steps before the state is taken, and after it."""
FEWEST_STEPS = 3
"""So many are taken however long they take."""

Row = dict[str, bytes]


def trial(config: EnvConfig, spec: EnvSpec, seed: int, time_s: float = 2.0) -> str:
    """Take the state of one environment, put it into another and see whether both do the same, bit for bit.

    Each phase has about 30 random steps with a reset in the middle, fewer where the env is slow; that some state has
    no effect within them is possible.

    Args:
        config: Anything with ``build() -> gymnasium.Env``.
        spec: What `rlcli.envs.probe.probe` found.
        seed: Run seed.
        time_s: About how long the steps may take; building and resetting come on top.

    Returns:
        Why it is not exact, in one line; empty if it is.
    """
    if has_native_vector(config):
        return "the env steps many games in C++, whose state cannot be read"
    try:
        with ExitStack() as envs:
            first, second = (_built(config, spec, seed, i, envs) for i in range(2))
            return _difference(first, second, spec, seed, time_s)
    except Stopped:  # a SystemExit too, but ours
        raise
    except InexactError as error:
        return re.sub(r"^env \d+: ", "", _line(error))
    except (Exception, SystemExit) as error:
        if isinstance(error, EnvError):
            error = RlcliError(error.message)  # the ids of the trial's envs say nothing
        what = _line(error) if isinstance(error, RlcliError) else f"{type(error).__name__}: {_line(error)}"
        return f"trying it failed: {what}"


def _built(config: EnvConfig, spec: EnvSpec, seed: int, env_id: int, envs: ExitStack) -> VectorEnv:
    env = build_vector_env(config, [env_id], seed, purpose=Purpose.PROBE, spec=spec)
    envs.callback(_closed, env)
    return env


def _closed(env: VectorEnv) -> None:
    with suppress(RlcliError):  # what close() raises says nothing about the state
        env.close()


def _difference(first: VectorEnv, second: VectorEnv, spec: EnvSpec, seed: int, time_s: float) -> str:
    rng = generator(seed, Purpose.PROBE)
    warm_up, compared, other = ([random_action(spec.action_space, rng) for _ in range(N_STEPS)] for _ in range(3))
    _rows(first, spec, warm_up, time_s / 4)
    state = first.state()
    wanted = _rows(first, spec, compared, time_s / 4, fresh=False)  # also changes what the state shares by mistake

    _rows(second, spec, other, time_s / 4)
    second.load_state(state)
    got = _rows(second, spec, compared[: len(wanted)], None, fresh=False)
    for t, (a, b) in enumerate(zip(wanted, got, strict=True)):
        for name, value in a.items():
            if b[name] != value:
                return f"{t + 1} steps after its state was put back, the env gave another {name} than without"
    return ""


def _rows(env: VectorEnv, spec: EnvSpec, actions: list[Any], time_s: float | None, *, fresh: bool = True) -> list[Row]:
    """What an env gives for ``actions``; it is reset before the first if ``fresh``, and before the middle one.

    Args:
        env: One of one environment.
        spec: Its shapes.
        actions: One for each step.
        time_s: After how long to stop, a few steps taken; None: never.
        fresh: Whether to begin with a reset.
    """
    obs = map_tree(lambda leaf: np.zeros((1, *leaf.shape), leaf.dtype), spec.example_obs)
    if fresh:
        env.reset(obs)
    rows: list[Row] = []
    spent_s = 0.0
    for t, action in enumerate(actions):
        if t == N_STEPS // 2:
            env.reset(obs)
        started = time.perf_counter()
        env.send(map_tree(lambda leaf: np.asarray(leaf)[None], action))
        step = env.recv(obs)
        spent_s += time.perf_counter() - started
        rows.append({**{path: leaf.tobytes() for path, leaf in leaves(obs, "obs")}, **_flags(step)})
        if time_s is not None and spent_s > time_s and len(rows) >= FEWEST_STEPS:
            break
    return rows


def _flags(step: Any) -> Row:
    names = ("reward", "raw_reward", "terminated", "truncated", "ended", "valid")
    return {name: getattr(step, name).tobytes() for name in names}


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
