"""Config of A2C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlcli.algos.policy_config import PolicyConfig, build_policy_agent
from rlcli.core.options import option

if TYPE_CHECKING:
    from rlcli.agents.policy import PolicyAgent
    from rlcli.algos.a2c import A2C
    from rlcli.core.context import BuildContext


@dataclass
class A2CConfig(PolicyConfig):
    """Advantage actor-critic: one gradient step on each batch (Mnih 2016, synchronous)."""

    name: ClassVar[str] = "a2c"

    discount: float = option(0.99, "Discount per agent step (Mnih 2016).", ge=0, le=1)
    gae_lambda: float = option(1.0, "Lambda of the advantages; 1: returns to the end of the batch.", ge=0, le=1)
    learning_rate: float = option(7e-4, "Adam's step size.", gt=0)
    adam_eps: float = option(1e-5, "Adam's epsilon.", gt=0)
    clip_grad_norm: float | None = option(0.5, "Largest global norm of the gradient; null: no clipping.", gt=0)
    value_loss_coeff: float = option(0.5, "Weight of the value loss.", ge=0)
    entropy_loss_coeff: float = option(0.01, "Weight of the entropy bonus (Mnih 2016).", ge=0)
    normalize_advantage: bool = option(False, "Advantages of each batch to mean 0 and standard deviation 1.")

    def build_agent(self, context: BuildContext) -> PolicyAgent:
        """A policy agent with new weights."""
        return build_policy_agent(context, self, notes_log_prob=False)

    def build(self, context: BuildContext, agent: PolicyAgent) -> A2C:
        """The learner."""
        from rlcli.algos.a2c import A2C

        return A2C(self, agent, n_steps=context.n_steps, device=context.device)
