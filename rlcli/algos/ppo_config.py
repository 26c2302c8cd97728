"""Config of PPO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlcli.algos.policy_config import PolicyConfig, build_policy_agent
from rlcli.core.options import option

if TYPE_CHECKING:
    from rlcli.agents.policy import PolicyAgent
    from rlcli.algos.ppo import PPO
    from rlcli.core.context import BuildContext


@dataclass
class PPOConfig(PolicyConfig):
    """Proximal policy optimization: epochs of minibatches with a clipped ratio on each batch (Schulman 2017)."""

    name: ClassVar[str] = "ppo"

    discount: float = option(0.99, "Discount per agent step (Schulman 2017).", ge=0, le=1)
    gae_lambda: float = option(0.95, "Lambda of the advantages (Schulman 2017).", ge=0, le=1)
    epochs: int = option(4, "How often each row of a batch is learned from (Huang 2022; rlpyt).", ge=1)
    minibatches: int = option(
        4,
        "Gradient steps of an epoch: all rows in random order, or with a recurrent model all environments, are shared "
        "out among so many, at most one for each row or environment (Huang 2022; rlpyt).",
        ge=1,
    )
    ratio_clip: float = option(0.2, "Epsilon of the clipped ratio (Schulman 2017).", gt=0)
    ratio_clip_schedule: str = option(
        "constant", "constant, or linear from `ratio_clip` to 0 at `n_steps`.", choices=("constant", "linear")
    )
    learning_rate: float = option(2.5e-4, "Adam's step size (Schulman 2017, Atari).", gt=0)
    adam_eps: float = option(1e-5, "Adam's epsilon (Huang 2022, detail 3).", gt=0)
    clip_grad_norm: float | None = option(
        0.5, "Largest global norm of the gradient (Huang 2022, detail 11); null: no clipping.", gt=0
    )
    value_loss_coeff: float = option(0.5, "Weight of the value loss (Huang 2022).", ge=0)
    clip_value_loss: bool = option(
        False, "Clip the value's change to `ratio_clip` as OpenAI's ppo2 does; Andrychowicz 2021 found that it hurts."
    )
    entropy_loss_coeff: float = option(0.01, "Weight of the entropy bonus (Schulman 2017, Atari).", ge=0)
    normalize_advantage: bool = option(
        True, "Advantages of each minibatch to mean 0 and standard deviation 1 (Huang 2022, detail 7)."
    )
    target_kl: float | None = option(
        None, "No further epoch once the mean `approxKL` of one exceeds it; null: all epochs.", gt=0
    )

    def build_agent(self, context: BuildContext) -> PolicyAgent:
        """A policy agent with new weights, which notes the log-probabilities of its actions."""
        return build_policy_agent(context, self, notes_log_prob=True)

    def build(self, context: BuildContext, agent: PolicyAgent) -> PPO:
        """The learner."""
        from rlcli.algos.ppo import PPO

        return PPO(self, agent, n_steps=context.n_steps, seed=context.seed, device=context.device)
