"""What configs of replays build, of the parts that they share. Imports no torch and no numpy before a call needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from rlcli.core.errors import ConfigError

if TYPE_CHECKING:
    from rlcli.core.schedules import Schedule
    from rlcli.core.spec import EnvSpec
    from rlcli.replay.config import StorageOptions
    from rlcli.replay.prioritized import Prioritized
    from rlcli.replay.replay import Replay
    from rlcli.replay.selectors import Selector
    from rlcli.replay.states import NoStates, States
    from rlcli.replay.storage import InMemory, OnDisk
    from rlcli.replay.store import Store


class BuildsReplay(Protocol):
    """What every replay's config does."""

    def build(
        self, spec: EnvSpec, n_envs: int, *, seed: int, discount: float, n_step: int, n_steps: int | None = None
    ) -> Replay[Any]:
        """An empty replay.

        Args:
            spec: The environment's, for shapes and dtypes.
            n_envs: B of the samples to come.
            seed: Run seed.
            discount: Per step, in [0, 1]; of sequences nothing hangs on it, for their targets are the learner's.
            n_step: Longest window of a transition, or rows behind the trained ones of a sequence; at least 1.
            n_steps: Budget of the run, env steps; needed by prioritized replay whose `beta_steps` is null.

        Raises:
            ConfigError: It does not fit, is too small to hold one window or sequence, or does not know how far beta
                moves.
        """


class PriorityOptions(Protocol):
    """Fields of a config whose replay draws by priority."""

    size: int
    alpha: float
    beta: float
    beta_final: float
    beta_steps: int | None
    priority_eps: float


def transitions(
    options: StorageOptions, spec: EnvSpec, n_envs: int, selector: Selector, discount: float, n_step: int
) -> Replay:
    """An empty replay of transitions."""
    from rlcli.replay.replay import Replay
    from rlcli.replay.states import NoStates
    from rlcli.replay.views import NStep

    store = store_for(options, spec, n_envs, storage_for(options), NoStates(), {})
    return Replay(store, selector, NStep(n_step, discount))


def storage_for(options: StorageOptions) -> InMemory | OnDisk:
    """Where the transitions lie."""
    from rlcli.replay.storage import InMemory, OnDisk

    return InMemory() if options.memory_map_dir is None else OnDisk(options.memory_map_dir)


def store_for(
    options: StorageOptions,
    spec: EnvSpec,
    n_envs: int,
    storage: InMemory | OnDisk,
    states: States | NoStates,
    more: dict[str, Any],
) -> Store:
    """An empty store whose rows hold what the spec says, and more."""
    from rlcli.replay.frames import Frames, Whole
    from rlcli.replay.layout import example_row, frames_apart, rows_for, stacked_key
    from rlcli.replay.ring import Ring
    from rlcli.replay.store import Store

    k = frames_apart(spec)
    ring = Ring(example_row(spec) | more, rows_for(options.size, spec, n_envs), n_envs, storage)
    return Store(ring, Whole() if k == 1 else Frames(k, n_envs, stacked_key(spec)), states, storage)


def refuse_unfit(
    options: StorageOptions, spec: EnvSpec, n_envs: int, n_ahead: int, what: str, more_row_bytes: int = 0
) -> None:
    """Raise ConfigError if the replay does not fit, or cannot always hold a row with ``n_ahead`` more behind it."""
    problems = options.memory_problems(spec, n_envs, more_row_bytes)
    if not problems and -(-options.size // n_envs) <= n_ahead:
        least = n_ahead * n_envs + 1
        problems = [f"size: {options.size:_} holds no {what} of {n_envs} environments, must be >= {least:_}"]
    if problems:
        raise ConfigError([f"replay.{line}" for line in problems])


def prioritized(
    options: PriorityOptions, spec: EnvSpec, n_envs: int, seed: int, n_steps: int | None, **more: Any
) -> Prioritized:
    """A selector by priority; ``more`` are arguments of `Prioritized` that only some replays have."""
    from rlcli.core.rng import Purpose, generator
    from rlcli.replay.layout import rows_for
    from rlcli.replay.prioritized import Prioritized

    return Prioritized(
        generator(seed, Purpose.REPLAY),
        rows_for(options.size, spec, n_envs),
        n_envs,
        alpha=options.alpha,
        beta=_beta_schedule(options, n_steps),
        eps=options.priority_eps,
        **more,
    )


def _beta_schedule(options: PriorityOptions, n_steps: int | None) -> Schedule:
    from rlcli.core.schedules import Linear

    end = n_steps if options.beta_steps is None else options.beta_steps
    if end is None:
        raise ConfigError(["replay.beta_steps: null means the run's n_steps, which the algorithm did not give"])
    return Linear(options.beta, options.beta_final, start_steps=0, end_steps=end)
