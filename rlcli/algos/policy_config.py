"""What the configs of A2C and PPO share: which action spaces suit, and how their agent is built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcli.agents.policy import PolicyAgent
    from rlcli.core.context import BuildContext


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


def build_policy_agent(
    context: BuildContext, *, state_dependent_std: bool, init_log_std: float, notes_log_prob: bool
) -> PolicyAgent:
    """A policy agent with new weights.

    Args:
        context: Of the run.
        state_dependent_std: See `rlcli.models.action_distributions.DiagonalGaussian`.
        init_log_std: See `rlcli.models.policy.PolicyValueNetwork`.
        notes_log_prob: See `PolicyAgent`.
    """
    from rlcli.agents.policy import PolicyAgent
    from rlcli.models.action_distributions import distribution_for
    from rlcli.models.policy import policy_network

    space = context.spec.action_space
    distribution = distribution_for(space, state_dependent_std=state_dependent_std)
    model = policy_network(context.model, context.spec.observation_space, distribution, log_std=init_log_std)
    return PolicyAgent(model, action_space=space, notes_log_prob=notes_log_prob)
