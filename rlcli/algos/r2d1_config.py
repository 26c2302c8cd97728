"""Config of R2D1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlcli.algos.q_learning_config import discrete_problems
from rlcli.algos.replay_config import learning_notes
from rlcli.core.options import option

if TYPE_CHECKING:
    from rlcli.agents.recurrent_q import RecurrentQAgent
    from rlcli.algos.replay_learner import ReplayLearner
    from rlcli.core.context import BuildContext
    from rlcli.core.spec import EnvSpec
    from rlcli.replay.sequences import SequenceBatch


@dataclass
class R2D1Config:
    """Recurrent Q-learning from replayed sequences (Kapturowski 2019), on one machine.

    What the sequences are made of, burn-in and trained rows, and their priorities are the replay's options.
    """

    on_policy: ClassVar[bool] = False

    batch_size: int = option(64, "Sequences per gradient step (Kapturowski 2019, table 2).", ge=1)
    discount: float = option(0.997, "Discount per agent step (Kapturowski 2019, table 2).", ge=0, le=1)
    learning_rate: float = option(1e-4, "Adam's step size (Kapturowski 2019, table 2).", gt=0)
    learning_rate_schedule: str = option(
        "constant", "constant, or linear from `learning_rate` to 0 at `n_steps`.", choices=("constant", "linear")
    )
    adam_eps: float = option(1e-3, "Adam's epsilon (Kapturowski 2019, table 2).", gt=0)
    clip_grad_norm: float | None = option(80.0, "Largest global norm of the gradient; null: no clipping (rlpyt).", gt=0)
    replay_ratio: float = option(
        1.0,
        "Trained rows in gradient steps per environment step; burn-in and bootstrap rows do not count. rlpyt's counts "
        "the burn-in: its 1 with 40 + 80 rows is 2/3 here.",
        gt=0,
    )
    min_steps_learn: int = option(10_000, "Env steps before the first gradient step.", ge=0)
    target_update_interval: int = option(
        2_500, "Gradient steps between updates of the target network (Kapturowski 2019, table 2).", ge=1
    )
    tau: float = option(1.0, "Share of the online network in an update of the target network; 1: a copy.", gt=0, le=1)
    n_step_return: int = option(5, "Rewards in a target before the bootstrap (Kapturowski 2019).", ge=1)
    double_dqn: bool = option(True, "Choose the next action with the online network (van Hasselt 2016).")
    dueling: bool = option(
        True,
        "Two streams, each with dense layers of its own, for value and advantage (Wang 2016).",
        at_resume="locked",
    )
    head_hidden: list[int] = option(
        [512], "Widths of the dense layers behind the recurrent one (Kapturowski 2019).", ge=1, at_resume="locked"
    )
    delta_clip: float | None = option(
        None, "Huber's delta on the TD error; null: squared error (Kapturowski 2019).", gt=0
    )
    value_rescale_eps: float | None = option(
        1e-3,
        "Epsilon of the squashed scale of values, sign(x) (sqrt(|x| + 1) - 1) + eps x; null: values on the rewards' "
        "scale (Kapturowski 2019, table 2).",
        ge=0,
    )
    input_priorities: bool = option(
        True, "Whether new sequences begin with the TD errors of the values that acted; else with the highest (rlpyt)."
    )

    def spec_problems(self, spec: EnvSpec) -> list[str]:
        """Why an environment does not suit, empty if it does; imports no torch."""
        return discrete_problems("r2d1", spec)

    def notes(self, n_steps: int) -> list[str]:
        """Lines worth telling before the run of ``n_steps``."""
        return learning_notes(self.min_steps_learn, n_steps)

    def build_agent(self, context: BuildContext) -> RecurrentQAgent:
        """A recurrent epsilon-greedy agent with new weights.

        Raises:
            ConfigError: The model is not recurrent, or asks for what this algorithm would leave out in silence.
        """
        from rlcli.agents.recurrent_q import RecurrentQAgent
        from rlcli.models.normalizer import add_normalizer
        from rlcli.models.recurrent import RecurrentTrunk
        from rlcli.models.recurrent_q import RecurrentQNetwork

        _refuse_model(context)
        config, space = context.model, context.spec.observation_space
        trunk = RecurrentTrunk(getattr(config, "trunk", config.build), space, config.recurrent, config.recurrent_hidden)
        activation = str(getattr(config, "activation", "relu"))
        model = RecurrentQNetwork(trunk, context.spec.n_actions, self.head_hidden, activation, self.dueling)
        add_normalizer(model, config, space)
        return RecurrentQAgent(model, context.epsilon, context.n_envs)

    def build(self, context: BuildContext, agent: RecurrentQAgent) -> ReplayLearner[SequenceBatch]:
        """The learner, with its replay.

        Raises:
            ConfigError: The replay draws no sequences, or does not fit.
        """
        from rlcli.algos.r2d1 import R2D1, Parts
        from rlcli.algos.replay_learner import ReplayLearner
        from rlcli.algos.replay_loop import ReplayLoop
        from rlcli.core.errors import ConfigError
        from rlcli.models.normalizer import normalizer_of

        config = context.replay
        if getattr(config, "draws", "transitions") != "sequences":
            raise ConfigError("replay: it draws transitions, algo r2d1 learns from sequences; take sequence")
        replay = config.build(
            context.spec,
            context.n_envs,
            seed=context.seed,
            discount=self.discount,
            n_step=self.n_step_return,
            n_steps=context.n_steps,
            state=agent.model.initial_state(1),
        )
        parts = Parts(config.burn_in_T, config.train_T, self.n_step_return)
        eta = config.eta if config.prioritized else None
        rule = R2D1(self, agent.model, replay, parts, eta=eta, n_steps=context.n_steps, device=context.device)
        return ReplayLearner(
            rule,
            ReplayLoop(replay, self, metrics=rule.metrics, n_trained=parts.train_T),
            statistics=normalizer_of(agent.model),
            priority=rule.input_priority if eta is not None and self.input_priorities else None,
            numbers={"Epsilon": agent.mean_epsilon},
        )


def _refuse_model(context: BuildContext) -> None:
    from rlcli.core.errors import ConfigError

    known = {"shared_trunk": True, "init": "torch"}
    problems = [
        f"model.{name}: {getattr(context.model, name)!r} is not for this algo"
        for name, only in known.items()
        if getattr(context.model, name, only) != only
    ]
    if getattr(context.model, "recurrent", "none") == "none":
        problems.append("model.recurrent: algo r2d1 needs a recurrent model, lstm or gru; take model=lstm")
    if problems:
        raise ConfigError(problems)
