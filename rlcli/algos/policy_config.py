"""What the configs of A2C and PPO share: fields, which action spaces suit, and how their agent is built."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rlcli.core.options import option

if TYPE_CHECKING:
    from rlcli.agents.policy import PolicyAgent
    from rlcli.core.context import BuildContext
    from rlcli.core.spec import EnvSpec


@dataclass
class PolicyConfig:
    """Policy gradient on each batch as it comes; the algorithms add what is their own."""

    on_policy: ClassVar[bool] = True
    name: ClassVar[str]

    learning_rate_schedule: str = option(
        "constant", "constant, or linear from `learning_rate` to 0 at `n_steps`.", choices=("constant", "linear")
    )
    normalize_reward: bool = option(
        False, "Divide rewards by the running deviation of the discounted return, clip at 10 (Huang 2022)."
    )
    state_dependent_std: bool = option(
        False,
        "Standard deviations of Box actions as outputs of the network; else one for all states (rlpyt, Huang 2022).",
        at_resume="locked",
    )
    tanh_mean: bool = option(
        False,
        "Means of Box actions through a tanh: between -1 and 1, whatever the bounds (rlpyt's MujocoFfAgent).",
        at_resume="locked",
    )
    init_log_std: float = option(0.0, "Their logarithm at the start, where they are the same for all states (rlpyt).")

    def spec_problems(self, spec: EnvSpec) -> list[str]:
        """Why an environment does not suit, empty if it does; imports no torch."""
        return action_problems(self.name, spec.action_space)

    def notes(self, n_steps: int) -> list[str]:
        """Lines worth telling before the run of ``n_steps``."""
        return []


def action_problems(algo: str, space: Any) -> list[str]:
    """Why a policy has no distribution over the actions of a space, empty if it has; imports no torch.

    Args:
        algo: Name of the algorithm, for the message.
        space: The environment's.
    """
    bad = list(_unsuitable(space))
    if not bad:
        return []
    told = f"{space}" if bad == [space] else f"{bad[0]} in {space}"
    return [
        f"algo: {algo} needs actions that are Discrete, MultiDiscrete, MultiBinary, a Box of floats, or a Dict or "
        f"Tuple of these, env has {told}"
    ]


def _unsuitable(space: Any) -> Iterator[Any]:
    from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

    if isinstance(space, Dict | Tuple):
        for part in space.spaces.values() if isinstance(space, Dict) else space.spaces:
            yield from _unsuitable(part)
    elif isinstance(space, Box):
        if space.dtype.kind != "f":
            yield space
    elif not isinstance(space, Discrete | MultiDiscrete | MultiBinary):
        yield space


def build_policy_agent(context: BuildContext, config: PolicyConfig, *, notes_log_prob: bool) -> PolicyAgent:
    """A policy agent with new weights.

    Args:
        context: Of the run.
        config: Of the algorithm.
        notes_log_prob: See `PolicyAgent`.
    """
    from rlcli.agents.policy import PolicyAgent
    from rlcli.models.action_distributions import distribution_for
    from rlcli.models.policy import policy_network

    space = context.spec.action_space
    distribution = distribution_for(space, state_dependent_std=config.state_dependent_std, tanh_mean=config.tanh_mean)
    model = policy_network(context.model, context.spec.observation_space, distribution, log_std=config.init_log_std)
    return PolicyAgent(model, action_space=space, notes_log_prob=notes_log_prob)
