"""Config of A2C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlcli.algos.policy_config import action_problems, build_policy_agent
from rlcli.core.options import option

if TYPE_CHECKING:
    from rlcli.agents.policy import PolicyAgent
    from rlcli.algos.a2c import A2C
    from rlcli.core.context import BuildContext
    from rlcli.core.spec import EnvSpec


@dataclass
class A2CConfig:
    """Advantage actor-critic: one gradient step on each batch (Mnih 2016, synchronous)."""

    on_policy: ClassVar[bool] = True

    discount: float = option(0.99, "Discount per agent step (Mnih 2016).", ge=0, le=1)
    gae_lambda: float = option(1.0, "Lambda of the advantages; 1: returns to the end of the batch.", ge=0, le=1)
    learning_rate: float = option(7e-4, "Adam's step size.", gt=0)
    learning_rate_schedule: str = option(
        "constant", "constant, or linear from `learning_rate` to 0 at `n_steps`.", choices=("constant", "linear")
    )
    adam_eps: float = option(1e-5, "Adam's epsilon.", gt=0)
    clip_grad_norm: float | None = option(0.5, "Largest global norm of the gradient; null: no clipping.", gt=0)
    value_loss_coeff: float = option(0.5, "Weight of the value loss.", ge=0)
    entropy_loss_coeff: float = option(0.01, "Weight of the entropy bonus (Mnih 2016).", ge=0)
    normalize_advantage: bool = option(False, "Advantages of each batch to mean 0 and standard deviation 1.")

    normalize_reward: bool = option(
        False, "Divide rewards by the running deviation of the discounted return, clip at 10 (Huang 2022)."
    )
    state_dependent_std: bool = option(
        False,
        "Standard deviations of Box actions as outputs of the network; else one for all states (rlpyt).",
        at_resume="locked",
    )
    init_log_std: float = option(0.0, "Their logarithm at the start, where they are the same for all states (rlpyt).")

    def spec_problems(self, spec: EnvSpec) -> list[str]:
        """Why an environment does not suit, empty if it does; imports no torch."""
        return action_problems("a2c", spec.action_space)

    def notes(self, n_steps: int) -> list[str]:
        """Lines worth telling before the run of ``n_steps``."""
        return []

    def build_agent(self, context: BuildContext) -> PolicyAgent:
        """A policy agent with new weights."""
        return build_policy_agent(
            context,
            state_dependent_std=self.state_dependent_std,
            init_log_std=self.init_log_std,
            notes_log_prob=False,
        )

    def build(self, context: BuildContext, agent: PolicyAgent) -> A2C:
        """The learner."""
        from rlcli.algos.a2c import A2C

        return A2C(self, agent, n_steps=context.n_steps, device=context.device)
