"""What a run's checkpoints will hold and cost, told before it begins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rlcli.core.spec import EnvSpec

if TYPE_CHECKING:
    from rlcli.cli.config import RunConfig


def problems(config: RunConfig, spec: EnvSpec) -> list[str]:
    """Why the disk cannot hold the checkpoints; empty if it can."""
    needed, free = _replay_bytes(config, spec), _free(config)
    if needed <= free:
        return []
    return [
        f"checkpoint_replay: the replay's checkpoints need up to {needed / 1e9:,.1f} GB of {free / 1e9:,.1f} GB free "
        "disk; give checkpoint_replay=false, a smaller replay.size, or checkpoint_interval_steps=0"
    ]


def notes(config: RunConfig, spec: EnvSpec) -> list[str]:
    """One line: how often, how large; none where there are no checkpoints."""
    if not config.checkpoint_interval_steps:
        return ["no checkpoints (checkpoint_interval_steps=0): this run cannot be resumed, only started from"]
    size = "weights and optimizer"
    if _has_replay(config):
        replay = f"up to {_replay_bytes(config, spec) / 1e9:,.2f} GB of replay ({_free(config) / 1e9:,.1f} GB free)"
        size += f", {replay}" if config.checkpoint_replay else ", without the replay (checkpoint_replay=false)"
    return [f"checkpoints: each {config.checkpoint_interval_steps:,} steps, the last two kept: {size}"]


def envs_are_exact(config: RunConfig, spec: EnvSpec) -> tuple[bool, list[str]]:
    """Whether checkpoints can hold the environments exactly, tried on two of them, and a line for the user."""
    if not config.checkpoint_interval_steps:
        return False, []
    if config.sampler.off_policy_only:
        return False, ["checkpoints: sampler=async, a resumed run goes on statistically, in new episodes"]
    from rlcli.envs.state_trial import trial

    reason = trial(config.task, spec, config.seed)
    if reason:
        return False, [f"checkpoints: all environments begin new episodes at each, since {reason}"]
    return True, ["checkpoints hold the environments exactly (tried)"]


def _has_replay(config: RunConfig) -> bool:
    return config.replay is not None


def _replay_bytes(config: RunConfig, spec: EnvSpec) -> int:
    if not (_has_replay(config) and config.checkpoint_replay and config.checkpoint_interval_steps):
        return 0
    log_bytes = getattr(config.replay, "log_bytes", None)  # a replay from outside need not say
    return 0 if log_bytes is None else int(log_bytes(spec, config.sampler.batch_B))


def _free(config: RunConfig) -> int:
    from rlcli.core import machine

    folder = Path(config.run_dir or ".").expanduser().absolute()
    while not folder.is_dir():
        folder = folder.parent
    return machine.free_space(folder)
