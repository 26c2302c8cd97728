"""Saved agents: from a run or a snapshot file back to a configuration, and to an agent that acts."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcli.cli import build, config, user_code
from rlcli.cli.config import RunConfig
from rlcli.cli.runs import find_run, is_run, starting_folders
from rlcli.core.errors import ConfigError, SnapshotError
from rlcli.core.rng import Purpose, UniformStreams
from rlcli.core.spec import EnvSpec
from rlcli.core.tree import as_numpy, as_torch, index, map_tree
from rlcli.envs.gym import action_converter, write_obs
from rlcli.envs.probe import probe

if TYPE_CHECKING:
    from rlcli.core.protocols import Agent

LAST_FILE, BEST_FILE = "params.pkl", "best.pkl"

_KEPT = re.compile(r"itr_(\d+)\.pkl")
_OF_THE_OLD_MACHINE = {"resume": None, "run_dir": None, "device": "auto"}
"""What a stored configuration says about the place where it ran, and what is taken instead."""


@dataclass(frozen=True)
class Saved:
    """A snapshot and what it was made by."""

    path: Path
    """The file, absolute."""
    snapshot: dict[str, Any]
    config: RunConfig

    @property
    def run(self) -> Path | None:
        """The run folder that the file lies in, None if it lies elsewhere."""
        return self.path.parent if is_run(self.path.parent) else None


def load_saved(target: str | os.PathLike[str], itr: int | None = None, best: bool = False) -> Saved:
    """Read a snapshot and check its configuration; what it takes is in the file itself, so it may lie anywhere.

    Args:
        target: A snapshot file, or a run (`rlcli.cli.runs.find_run`), of which params.pkl is taken, or without one the
            itr_<N>.pkl of the highest N.
        itr: Take the run's itr_<itr>.pkl.
        best: Take the run's best.pkl.

    Raises:
        ConfigError: There is no such run or file, it is no snapshot that can be read safely, or its configuration asks
            for something that is not installed here.
    """
    return read_saved(snapshot_file(target, itr, best))


def read_saved(path: Path) -> Saved:
    """As `load_saved`, of a file."""
    from rlcli.record.snapshot import read_snapshot

    try:
        snapshot = read_snapshot(path)
    except SnapshotError as error:
        raise ConfigError(str(error)) from error
    if not isinstance(snapshot["config"], Mapping):
        raise ConfigError(f"{path}: not a whole snapshot: its config is no mapping")
    user_code.add_to_path(starting_folders(path.parent))
    try:
        return Saved(path, snapshot, checked_config(stored_tree(snapshot)))
    except ConfigError as error:
        raise ConfigError([f"{path}: what it was made with is not to be had here:", *error.problems]) from error


def stored_tree(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration in a snapshot as plain containers of one's own, without what is bound to the old machine."""
    return {**copy.deepcopy(dict(snapshot["config"])), **_OF_THE_OLD_MACHINE}


def checked_config(tree: Mapping[str, Any], raw: Mapping[str, str] | None = None) -> RunConfig:
    """The typed configuration of a stored tree; imports the user's modules that it names.

    Args:
        tree: As `stored_tree` gives it, or changed.
        raw: See `rlcli.cli.config.check`.

    Raises:
        ConfigError: It asks for something that is not there, or a change is wrong.
    """
    user_code.add_to_path([])
    own = {key: value for key, value in tree.items() if key != "choices"}
    return config.check(own, tree.get("choices", {}), raw)


def snapshot_file(target: str | os.PathLike[str], itr: int | None = None, best: bool = False) -> Path:
    """The file that a user means; see `load_saved`.

    Raises:
        ConfigError: There is none.
    """
    path = Path(target).expanduser()
    asked = "--best" if best else "--itr"
    if best and itr is not None:
        raise ConfigError("--best: goes not with --itr")
    if path.is_file():
        if best or itr is not None:
            raise ConfigError(f"{asked}: goes with a run, {path} is one file")
        return path.absolute()
    if path.suffix == ".pkl" and not path.is_dir():
        raise ConfigError(f"{path}: there is no such file")
    run = find_run(target)
    kept = kept_files(run)
    if best:
        return _existing(run / BEST_FILE, f"{asked}: {run} has no {BEST_FILE}")
    if itr is not None:
        there = f"there are: {', '.join(map(str, kept))}" if kept else "it kept none (snapshot_mode=all or gap does)"
        return _existing(run / f"itr_{itr}.pkl", f"{asked}: {run} has no itr_{itr}.pkl; {there}")
    if (run / LAST_FILE).is_file():
        return run / LAST_FILE
    if not kept:
        raise ConfigError(f"run: {run} has no snapshot, neither {LAST_FILE} nor itr_<N>.pkl")
    return list(kept.values())[-1]


def kept_files(run: Path) -> dict[int, Path]:
    """N -> itr_<N>.pkl of a run, N rising."""
    found = {int(match[1]): file for file in run.iterdir() if (match := _KEPT.fullmatch(file.name))}
    return dict(sorted(found.items()))


def build_agent(saved: Saved, spec: EnvSpec, device: str) -> Agent:
    """The agent with the snapshot's weights, on ``device``; leaves torch's random stream as it was.

    Raises:
        ConfigError: The weights do not fit the environment and the model that the configuration gives.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        context = build.run_context(replace(saved.config, device=device), spec)
        agent: Agent = saved.config.algo.build_agent(context)
    load_weights(agent, saved)
    agent.to(device)
    return agent


def load_weights(agent: Agent, saved: Saved) -> None:
    """Put the snapshot's weights into an agent.

    Raises:
        ConfigError: They do not fit.
    """
    from rlcli.record.snapshot import state_mismatches

    state = saved.snapshot["agent_state_dict"]
    if mismatches := state_mismatches(agent.state_dict(), state, "agent"):
        raise ConfigError([f"{saved.path} does not fit its environment and model:", *(f"  {m}" for m in mismatches)])
    agent.load_state_dict(state)


class LoadedAgent:
    """A saved agent that acts on one observation at a time, in a loop of your own.

    Holds the recurrent state, if there is any, and a random stream of its own: that of evaluation environment 0, of
    which actions take from only with an evaluation epsilon above 0, or with ``explore``.

    Args:
        agent: With its weights.
        saved: Where they came from.
        spec: The environment's spaces.
        seed: Of the random stream; None: the run's.
    """

    def __init__(self, agent: Agent, saved: Saved, spec: EnvSpec, seed: int | None = None) -> None:
        self.agent = agent
        self.config = saved.config
        """The run's configuration; ``config.task.build()`` makes one of its environments."""
        self.spec = spec
        self.path = saved.path
        self.itr = int(saved.snapshot["itr"])
        self.cum_steps = int(saved.snapshot["cum_steps"])
        self.learner_state: dict[str, Any] = saved.snapshot["algo_state_dict"]
        """What the learner saved beside the agent's weights: critics, targets, counters."""
        self._to_env = action_converter(spec.action_space)
        self._obs = map_tree(lambda leaf: np.zeros((1, *leaf.shape), leaf.dtype), spec.example_obs)
        self.reset(saved.config.seed if seed is None else seed)

    def reset(self, seed: int | None = None) -> None:
        """Begin an episode: the recurrent state starts anew; with ``seed`` the random stream too."""
        self._state = self.agent.initial_state(1)
        if seed is not None:
            self._streams = UniformStreams(seed, Purpose.EVAL_EXPLORE, [0], self.agent.n_uniforms)

    @property
    def state(self) -> Any:
        """The recurrent state before the next `act`, [1, H] tensors; None if there is none."""
        return self._state

    def act(self, obs: Any, explore: bool = False) -> Any:
        """An action for the environment's ``step``.

        Args:
            obs: One observation as the environment gives it, without a batch dimension; a Dict or Tuple one too.
            explore: As in training at the time of the snapshot, instead of as in evaluation.

        Returns:
            An int for a Discrete action space, else a numpy array.

        Raises:
            EnvError: Another shape or dtype than the agent was trained on.
        """
        import torch

        uniforms = torch.from_numpy(self._streams.block(1)[0])
        act = self.agent.act(self.batch(obs), self._state, uniforms, env_ids=[0], step=self.cum_steps, explore=explore)
        self._state = act.state
        return self._to_env(index(as_numpy(act.action), 0))

    def batch(self, obs: Any) -> Any:
        """One observation as the network takes it: tensors [1, ...] on the CPU, in memory that is reused."""
        write_obs(self._obs, 0, obs)
        return as_torch(self._obs)


def load(
    target: str | os.PathLike[str],
    *,
    itr: int | None = None,
    best: bool = False,
    seed: int | None = None,
    device: str = "auto",
) -> LoadedAgent:
    """See rlcli.load."""
    saved = load_saved(target, itr, best)
    problems = replace(saved.config, device=device).problems()
    if problems:
        raise ConfigError(problems)
    spec = probe(saved.config.task, saved.config.seed)
    return LoadedAgent(build_agent(saved, spec, build.device_for(device)), saved, spec, seed)


def _existing(file: Path, problem: str) -> Path:
    if not file.is_file():
        raise ConfigError(problem)
    return file
