"""The exceptions of rlcli.

RlcliError
├── ConfigError     the user's request cannot be met: one line per problem, exit code 2
├── SnapshotError   a snapshot cannot be read or written
├── EnvError        an environment raised or broke its own rules
├── InexactError    an environment's state cannot be saved so that it goes on exactly
└── WorkerError     a worker process raised, died or was killed
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class RlcliError(Exception):
    """Root of every exception that rlcli raises on purpose."""


class ConfigError(RlcliError):
    """The request cannot be met; carries all problems found, one line each.

    Args:
        problems: Each as ``key: what is wrong, what is allowed``.
    """

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[list[str]]]:
        return type(self), (self.problems,)


class SnapshotError(RlcliError):
    """A snapshot cannot be read or written; the message names the file."""


class EnvError(RlcliError):
    """An environment raised or broke its own declared spaces.

    Args:
        message: What happened.
        env_id: Global id of the environment, or None where it is not known.
        env_step: Number of the step in which it happened, this environment's own and from 1, or None. What happens
            between two steps, in a reset, carries the number of the step before.
        evaluation: Whether it is an evaluation environment, which have ids of their own.
    """

    def __init__(
        self, message: str, env_id: int | None = None, env_step: int | None = None, evaluation: bool = False
    ) -> None:
        self.message, self.env_id, self.env_step, self.evaluation = message, env_id, env_step, evaluation
        name = f"evaluation env {env_id}" if evaluation else f"env {env_id}"
        where = "" if env_id is None else f"{name}: " if env_step is None else f"{name}, step {env_step}: "
        super().__init__(f"{where}{message}")

    def __reduce__(self) -> tuple[type[EnvError], tuple[str, int | None, int | None, bool]]:
        return type(self), (self.message, self.env_id, self.env_step, self.evaluation)


class InexactError(RlcliError):
    """Something cannot be saved so that it would go on exactly; the message says what and why."""


class WorkerError(RlcliError):
    """A worker process failed.

    Args:
        rank: The worker's number, from 0.
        env_ids: Global ids of the environments it held.
        reason: What happened, in one line.
        remote_traceback: The worker's own traceback, empty if it died without one.
        name: What the process is called.
    """

    def __init__(
        self, rank: int, env_ids: Sequence[int], reason: str, remote_traceback: str = "", name: str = "worker"
    ) -> None:
        self.rank, self.env_ids, self.reason = rank, tuple(env_ids), reason
        self.remote_traceback, self.name = remote_traceback, name
        super().__init__(f"{name} {rank} (envs {id_range(env_ids)}): {reason}")

    def __reduce__(self) -> tuple[type[WorkerError], tuple[int, tuple[int, ...], str, str, str]]:
        return type(self), (self.rank, self.env_ids, self.reason, self.remote_traceback, self.name)


def is_own_finding(error: BaseException) -> bool:
    """Whether rlcli itself found the fault: a request that cannot be met, a rule of the environment's that it breaks.

    It would be found again at a second try. What code of the user's raised is no such finding, though an RlcliError
    may carry it as its cause.
    """
    if isinstance(error, ConfigError):
        return True
    # an EnvError may locate another that knew not where it was
    return isinstance(error, RlcliError) and (error.__cause__ is None or isinstance(error.__cause__, RlcliError))


def id_range(ids: Sequence[int]) -> str:
    """Sorted numbers in few words: ``0-3, 8-11``."""
    runs: list[list[int]] = []
    for i in sorted(ids):
        if runs and i == runs[-1][1] + 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def near(word: str, options: Iterable[str], n: int = 3) -> list[str]:
    """Options that look like ``word``, best first."""
    return difflib.get_close_matches(str(word), [str(o) for o in options], n, 0.6)


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """``; did you mean 'x'?`` or an empty string."""
    words = near(word, options)
    return f"; did you mean {' or '.join(repr(w) for w in words)}?" if words else ""
