"""The former name of `rlcli.agents.policy.PolicyAgent`."""

from rlcli.agents.policy import PolicyAgent as CategoricalAgent

__all__ = ["CategoricalAgent"]
