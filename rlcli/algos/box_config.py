"""What the configs of DDPG, TD3 and SAC share: which action spaces suit, and what is built for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rlcli.algos.actor_critic import OptimizerSettings
    from rlcli.core.context import BuildContext
    from rlcli.core.spec import EnvSpec
    from rlcli.models.action_scale import ActionScale
    from rlcli.replay.replay import Replay


class Config(Protocol):
    """Fields that all of these algorithms have."""

    discount: float
    n_step_return: int
    learning_rate_schedule: str
    adam_eps: float
    clip_grad_norm: float | None
    min_steps_learn: int
    random_steps: int


def spec_problems(algo: str, spec: EnvSpec) -> list[str]:
    """Why an environment's actions do not suit, empty if they do; imports no torch.

    Args:
        algo: Its name, for the message.
        spec: The environment's.
    """
    import numpy as np
    from gymnasium.spaces import Box

    space = spec.action_space
    if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
        return [f"algo: {algo} needs one Box of floats as action, env has {space}; take an algorithm for such actions"]
    if not space.is_bounded():
        return [f"algo: {algo} needs bounded actions, env has {space}; give its action_space finite bounds"]
    return []


def notes(config: Config, n_steps: int) -> list[str]:
    """Lines worth telling before a run of ``n_steps``."""
    lines = []
    if config.min_steps_learn >= n_steps:
        lines.append(f"nothing will be learned: algo.min_steps_learn={config.min_steps_learn:,} >= n_steps={n_steps:,}")
    if config.random_steps >= n_steps:
        lines.append(f"all actions will be random: algo.random_steps={config.random_steps:,} >= n_steps={n_steps:,}")
    return lines


def action_scale(context: BuildContext) -> ActionScale:
    """Between the environment's actions and normalised ones."""
    from gymnasium.spaces import Box

    from rlcli.models.action_scale import ActionScale

    space = context.spec.action_space
    assert isinstance(space, Box), space  # spec_problems refuses others by name
    return ActionScale(space)


def build_replay(context: BuildContext, config: Config) -> Replay:
    """The replay that the run's config asks for.

    Raises:
        ConfigError: It is a prioritized one, whose weights and priorities these algorithms would leave out in silence.
    """
    from rlcli.core.errors import ConfigError
    from rlcli.replay.config import PrioritizedReplayConfig

    if isinstance(context.replay, PrioritizedReplayConfig):
        raise ConfigError("replay: prioritized is not for this algo, which has no use for priorities; take uniform")
    if getattr(context.replay, "draws", "transitions") != "transitions":
        raise ConfigError("replay: it draws sequences, this algo learns from transitions; take uniform")
    replay: Replay = context.replay.build(
        context.spec, context.n_envs, seed=context.seed, discount=config.discount, n_step=config.n_step_return
    )
    return replay


def optimizer_settings(config: Config, learning_rate: float) -> OptimizerSettings:
    """Settings of one of the optimizers, which differ in their learning rates alone."""
    from rlcli.algos.actor_critic import OptimizerSettings

    return OptimizerSettings(
        learning_rate=learning_rate,
        learning_rate_schedule=config.learning_rate_schedule,
        adam_eps=config.adam_eps,
        clip_grad_norm=config.clip_grad_norm,
    )


def trunk(context: BuildContext) -> Any:
    """A new feature network for the environment's observations."""
    return context.model.build(context.spec.observation_space)
