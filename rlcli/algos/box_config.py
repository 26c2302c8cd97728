"""What the configs of DDPG, TD3 and SAC share: fields, which action spaces suit, and what is built for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from rlcli.algos.replay_config import learning_notes
from rlcli.core.options import option

if TYPE_CHECKING:
    from torch import nn

    from rlcli.agents.deterministic import DeterministicAgent
    from rlcli.agents.squashed_gaussian import SquashedGaussianAgent
    from rlcli.algos.actor_critic import OptimizerSettings
    from rlcli.algos.draws import Draws
    from rlcli.algos.replay_learner import ReplayLearner, Rule
    from rlcli.core.context import BuildContext
    from rlcli.core.spec import EnvSpec
    from rlcli.models.action_scale import ActionScale
    from rlcli.models.critics import Critic, StateValue, TwinCritic
    from rlcli.replay.replay import Replay, ReplayBatch


class BoxAgent(Protocol):
    """What is built for an agent that acts in a box hangs on it."""

    @property
    def model(self) -> nn.Module:
        """The actor."""

    @property
    def scale(self) -> ActionScale:
        """The action's units."""


@dataclass
class BoxConfig:
    """Actor and critics with replay for actions in a box; the algorithms add what is their own."""

    on_policy: ClassVar[bool] = False
    name: ClassVar[str]

    batch_size: int = option(256, "Transitions per gradient step.", ge=1)
    replay_ratio: float = option(
        256.0, "Transitions used in gradient steps per environment step: batch 256 at every step is 256.", gt=0
    )
    min_steps_learn: int = option(10_000, "Env steps before the first gradient step (rlpyt).", ge=0)
    random_steps: int = option(
        10_000, "Env steps at the start whose actions are drawn evenly from the box (SpinningUp).", ge=0
    )
    discount: float = option(0.99, "Discount per agent step.", ge=0, le=1)
    n_step_return: int = option(1, "Rewards in a target before the bootstrap.", ge=1)
    learning_rate_schedule: str = option(
        "constant", "constant, or linear from the learning rates to 0 at `n_steps`.", choices=("constant", "linear")
    )
    adam_eps: float = option(1e-8, "Adam's epsilon (PyTorch).", gt=0)
    clip_grad_norm: float | None = option(
        None, "Largest global norm of each gradient; null: no clipping, as in all references.", gt=0
    )

    def spec_problems(self, spec: EnvSpec) -> list[str]:
        """Why an environment does not suit, empty if it does; imports no torch."""
        return action_problems(self.name, spec)

    def notes(self, n_steps: int) -> list[str]:
        """Lines worth telling before the run of ``n_steps``."""
        lines = learning_notes(self.min_steps_learn, n_steps)
        if self.random_steps >= n_steps:
            lines.append(f"all actions will be random: algo.random_steps={self.random_steps:,} >= n_steps={n_steps:,}")
        return lines


def action_problems(algo: str, spec: EnvSpec) -> list[str]:
    """Why an environment's actions do not suit, empty if they do; imports no torch.

    Args:
        algo: Its name, for the message.
        spec: The environment's.
    """
    import numpy as np
    from gymnasium.spaces import Box

    space = spec.action_space
    if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
        return [f"algo: {algo} needs one Box of floats as action, env has {space}"]
    if not space.is_bounded():
        return [f"algo: {algo} needs bounded actions, env has {space}; give its action_space finite bounds"]
    return []


def action_scale(context: BuildContext) -> ActionScale:
    """Between the environment's actions and normalised ones."""
    from gymnasium.spaces import Box

    from rlcli.models.action_scale import ActionScale

    space = context.spec.action_space
    assert isinstance(space, Box), space  # spec_problems refuses others by name
    return ActionScale(space)


def build_replay(context: BuildContext, config: BoxConfig) -> Replay:
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


def optimizer_settings(config: BoxConfig, learning_rate: float) -> OptimizerSettings:
    """Settings of one of the optimizers, which differ in their learning rates alone."""
    from rlcli.algos.actor_critic import OptimizerSettings

    return OptimizerSettings(
        learning_rate=learning_rate,
        learning_rate_schedule=config.learning_rate_schedule,
        adam_eps=config.adam_eps,
        clip_grad_norm=config.clip_grad_norm,
    )


def deterministic_agent(
    context: BuildContext, config: BoxConfig, noise_std: float, final_bound: float | None = None
) -> DeterministicAgent:
    """An agent with new weights, whose actions are one for each observation, and noise.

    Args:
        context: Of the run.
        config: Of the algorithm.
        noise_std: See `DeterministicAgent`.
        final_bound: See `DeterministicActor`.
    """
    from rlcli.agents.deterministic import DeterministicAgent
    from rlcli.models.actors import DeterministicActor
    from rlcli.models.normalizer import add_normalizer

    scale = action_scale(context)
    actor = DeterministicActor(_trunk(context), scale.n_dims, final_bound)
    add_normalizer(actor, context.model, context.spec.observation_space)
    return DeterministicAgent(actor, scale, noise_std, config.random_steps)


def gaussian_agent(context: BuildContext, config: BoxConfig) -> SquashedGaussianAgent:
    """An agent with new weights, whose actions are drawn from a squashed Gaussian."""
    from rlcli.agents.squashed_gaussian import SquashedGaussianAgent
    from rlcli.models.actors import SquashedGaussianActor
    from rlcli.models.normalizer import add_normalizer

    scale = action_scale(context)
    actor = SquashedGaussianActor(_trunk(context), scale.n_dims)
    add_normalizer(actor, context.model, context.spec.observation_space)
    return SquashedGaussianAgent(actor, scale, config.random_steps)


def critic(context: BuildContext, agent: BoxAgent, final_bound: float | None = None) -> Critic:
    """A new critic where learning runs, which sees observations as the agent's actor does."""
    from rlcli.models.critics import Critic
    from rlcli.models.normalizer import share_normalizer, without_normalizer

    model, space = without_normalizer(context.model), context.spec.observation_space
    network = Critic(model, space, agent.scale.n_dims, final_bound).to(context.device)
    share_normalizer(agent.model, network)
    return network


def twin_critic(context: BuildContext, agent: BoxAgent) -> TwinCritic:
    """Two, as `critic`."""
    from rlcli.models.critics import TwinCritic
    from rlcli.models.normalizer import share_normalizer, without_normalizer

    model, space = without_normalizer(context.model), context.spec.observation_space
    network = TwinCritic(model, space, agent.scale.n_dims).to(context.device)
    share_normalizer(agent.model, network, network.q1, network.q2)
    return network


def state_value(context: BuildContext, agent: BoxAgent) -> StateValue:
    """A new network of state values where learning runs, which sees observations as the agent's actor does."""
    from rlcli.models.critics import StateValue
    from rlcli.models.normalizer import share_normalizer

    network = StateValue(_trunk(context)).to(context.device)
    share_normalizer(agent.model, network)
    return network


def learner(
    context: BuildContext, config: BoxConfig, agent: BoxAgent, rule: Rule, draws: Draws | None = None
) -> ReplayLearner[ReplayBatch]:
    """The learner of a rule, with its replay.

    Raises:
        ConfigError: See `build_replay`.
    """
    from rlcli.algos.actor_critic import InUnits
    from rlcli.algos.replay_learner import ReplayLearner
    from rlcli.algos.replay_loop import ReplayLoop
    from rlcli.models.normalizer import normalizer_of

    return ReplayLearner(
        rule,
        ReplayLoop(build_replay(context, config), config, metrics=rule.metrics),
        draws=draws,
        statistics=normalizer_of(agent.model),
        prepare=InUnits(agent.scale, context.device),
    )


def _trunk(context: BuildContext) -> Any:
    """A new feature network for the environment's observations, normalised or not."""
    from rlcli.models.normalizer import without_normalizer

    return without_normalizer(context.model).build(context.spec.observation_space)
