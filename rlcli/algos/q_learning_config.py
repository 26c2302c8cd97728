"""What the configs of all Q-learning algorithms share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlcli.algos.replay_config import learning_notes
from rlcli.core.options import option

if TYPE_CHECKING:
    from torch import nn

    from rlcli.agents.q import QAgent
    from rlcli.algos.q_learning import Loss
    from rlcli.algos.replay_learner import ReplayLearner
    from rlcli.core.context import BuildContext
    from rlcli.core.spec import EnvSpec
    from rlcli.replay.replay import ReplayBatch


@dataclass
class QLearningConfig:
    """Q-learning with replay and a target network; the algorithms add what is their own."""

    on_policy: ClassVar[bool] = False
    name: ClassVar[str]

    batch_size: int = option(32, "Transitions per gradient step (Mnih 2015, ext. table 1).", ge=1)
    discount: float = option(0.99, "Discount per agent step (Mnih 2015).", ge=0, le=1)
    learning_rate: float = option(1e-4, "Adam's step size (rlpyt's Atari config).", gt=0)
    learning_rate_schedule: str = option(
        "constant", "constant, or linear from `learning_rate` to 0 at `n_steps`.", choices=("constant", "linear")
    )
    adam_eps: float = option(1.5e-4, "Adam's epsilon (Hessel 2018, table 1).", gt=0)
    clip_grad_norm: float | None = option(10.0, "Largest global norm of the gradient; null: no clipping (rlpyt).", gt=0)
    replay_ratio: float = option(
        8.0, "Transitions used in gradient steps per environment step: batch 32 every 4 steps is 8 (Mnih 2015).", gt=0
    )
    min_steps_learn: int = option(10_000, "Env steps before the first gradient step.", ge=0)
    target_update_interval: int = option(2_000, "Gradient steps between updates of the target network.", ge=1)
    tau: float = option(1.0, "Share of the online network in an update of the target network; 1: a copy.", gt=0, le=1)
    n_step_return: int = option(1, "Rewards in a target before the bootstrap.", ge=1)
    double_dqn: bool = option(False, "Choose the next action with the online network (van Hasselt 2016).")
    dueling: bool = option(
        False,
        "Two streams, each with a dense layer of its own, for value and advantage (Wang 2016).",
        at_resume="locked",
    )
    noisy: bool = option(
        False,
        "Explore by learned noise in the weights of the dense layers behind the features (Fortunato 2018); goes with "
        "epsilon=zero.",
        at_resume="locked",
    )

    def spec_problems(self, spec: EnvSpec) -> list[str]:
        """Why an environment does not suit, empty if it does; imports no torch."""
        return discrete_problems(self.name, spec)

    def notes(self, n_steps: int) -> list[str]:
        """Lines worth telling before the run of ``n_steps``."""
        return learning_notes(self.min_steps_learn, n_steps)


def discrete_problems(algo: str, spec: EnvSpec) -> list[str]:
    """Why an environment's actions do not suit, empty if they do; imports no torch.

    Args:
        algo: Its name, for the message.
        spec: The environment's.
    """
    from gymnasium.spaces import Discrete

    if isinstance(spec.action_space, Discrete):
        return []
    return [f"algo: {algo} needs one Discrete action, env has {spec.action_space}"]


def build_trunk(context: BuildContext, *, hidden_in_head: bool) -> nn.Module:
    """The feature network, which may leave its last dense layer to the head.

    A model from outside need not know how; the head then has single layers on its features.
    """
    from rlcli.models.normalizer import without_normalizer

    model = without_normalizer(context.model)  # of which `q_agent` takes care
    build = getattr(model, "build_for_streams", None) if hidden_in_head else None
    trunk: nn.Module = (build or model.build)(context.spec.observation_space)
    return trunk


def q_agent(context: BuildContext, model: nn.Module) -> QAgent:
    """An epsilon-greedy agent on a network whose outputs are action values."""
    from rlcli.agents.q import QAgent
    from rlcli.models.noisy import count_noise
    from rlcli.models.normalizer import add_normalizer

    add_normalizer(model, context.model, context.spec.observation_space)
    return QAgent(model, context.epsilon, context.n_envs, count_noise(model))


def q_learning(config: QLearningConfig, loss: Loss, context: BuildContext, agent: QAgent) -> ReplayLearner[ReplayBatch]:
    """The learner, with its replay."""
    from rlcli.algos.draws import Draws
    from rlcli.algos.q_learning import QLearning
    from rlcli.algos.replay_learner import ReplayLearner
    from rlcli.algos.replay_loop import ReplayLoop
    from rlcli.core.errors import ConfigError
    from rlcli.models.normalizer import normalizer_of

    if getattr(context.replay, "draws", "transitions") != "transitions":
        raise ConfigError("replay: it draws sequences, this algo learns from transitions; take uniform or prioritized")
    replay = context.replay.build(
        context.spec,
        context.n_envs,
        seed=context.seed,
        discount=config.discount,
        n_step=config.n_step_return,
        n_steps=context.n_steps,
    )
    draws = Draws(context.seed, context.device)
    rule = QLearning(config, loss, agent.model, replay, draws, n_steps=context.n_steps, device=context.device)
    return ReplayLearner(
        rule,
        ReplayLoop(replay, config, metrics=rule.metrics),
        draws=draws,
        statistics=normalizer_of(agent.model),
        numbers={"Epsilon": agent.mean_epsilon},
    )
