"""A config's environments as one VectorEnv: its own if it has one, else one environment after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlcli.core.pulse import Pulse
from rlcli.core.rng import Purpose
from rlcli.core.spec import EnvSpec
from rlcli.envs.vector import InProcessVectorEnv

if TYPE_CHECKING:
    from rlcli.core.protocols import VectorEnv
    from rlcli.envs.config import EnvConfig


def build_vector_env(
    config: EnvConfig,
    env_ids: Sequence[int],
    seed: int,
    *,
    purpose: Purpose = Purpose.ENV,
    spec: EnvSpec | None = None,
    n_threads: int = 1,
    pulse: Pulse | None = None,
    incarnation: int = 0,
) -> VectorEnv:
    """The environments of one process.

    A config may offer a vector env of its own with a method ``build_vector``, which takes these arguments but the
    first and gives a VectorEnv, or None for a config as it is.

    Args:
        config: Anything with ``build() -> gymnasium.Env``.
        env_ids: Global ids, one environment each.
        seed: Run seed.
        purpose: ENV or EVAL_ENV.
        spec: What `rlcli.envs.probe.probe` found; None probes first.
        n_threads: Threads for a vector env that has its own.
        pulse: Told at each sign of life.
        incarnation: How often the environments were lost with their worker and made anew.

    Raises:
        ConfigError: The config's request cannot be met.
        EnvError: Building an environment raised.
    """
    build = getattr(config, "build_vector", None)
    if build is not None:
        native: VectorEnv | None = build(
            env_ids, seed, purpose=purpose, spec=spec, n_threads=n_threads, pulse=pulse, incarnation=incarnation
        )
        if native is not None:
            return native
    return InProcessVectorEnv(config, env_ids, seed, purpose, spec, pulse=pulse, incarnation=incarnation)


def has_native_vector(config: EnvConfig) -> bool:
    """Whether one process steps many environments in threads of its own, so that it needs no worker processes.

    True where the config has an attribute ``native_vector`` that is true.
    """
    return bool(getattr(config, "native_vector", False))
