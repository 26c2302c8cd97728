"""Snapshots in rlpyt's own format: which of its agents made one, and its content under rlcli's names.

Source: rlpyt 0.1.2, `runners/minibatch_rl.py`, and the ``state_dict`` of each of its agents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from rlcli.core.errors import SnapshotError
from rlcli.record.rlpyt_images import translate_images
from rlcli.record.rlpyt_parts import RlpytFile
from rlcli.record.rlpyt_policies import translate_policies
from rlcli.record.rlpyt_vectors import translate_vectors

_KEYS = {"itr", "cum_steps", "agent_state_dict", "optimizer_state_dict"}
_Q_LEARNERS = {frozenset({"model", "target"}), frozenset({"model"})}
_ACTOR_CRITICS = {
    frozenset({"model", "q_model", "target_model", "target_q_model"}): "DDPG",
    frozenset({"model", "q_model", "q2_model", "target_model", "target_q_model", "target_q2_model"}): "TD3",
    frozenset({"model", "q1_model", "q2_model", "target_q1_model", "target_q2_model"}): "SAC",
    frozenset({"model", "q1_model", "q2_model", "v_model", "target_v_model"}): "SAC (with V)",
}
_READERS = {
    translate_images: ("DQN", "CatDQN", "R2D1", "A2C/PPO", "recurrent A2C/PPO"),
    translate_vectors: ("DDPG", "TD3", "SAC", "SAC (with V)"),
    translate_policies: ("MuJoCo A2C/PPO", "recurrent MuJoCo A2C/PPO"),
}


def is_rlpyt(content: Any) -> bool:
    """Whether the content of a file is a snapshot that rlpyt wrote."""
    return isinstance(content, dict) and set(content) >= _KEYS and "format" not in content


def agent_name(content: Mapping[str, Any]) -> str | None:
    """Which of rlpyt's agents made a snapshot, None if no known one did."""
    agent = content["agent_state_dict"]
    if not isinstance(agent, Mapping):
        return None
    if all(isinstance(value, Tensor) for value in agent.values()):  # policy gradient: the bare model
        return _policy_name(agent)
    if frozenset(agent) not in _Q_LEARNERS:
        return _ACTOR_CRITICS.get(frozenset(agent))
    model = agent["model"]
    if not isinstance(model, Mapping) or not all(isinstance(value, Tensor) for value in model.values()):
        return None
    if any(name.startswith("lstm.") for name in model):
        return "R2D1"
    bias = model.get("head.advantage_bias")  # one number for all, or one for each atom
    if any(name.startswith("head.mlp.") for name in model) or (bias is not None and bias.numel() != 1):
        return "CatDQN"
    return "DQN" if any(name.startswith("head.") for name in model) else None


def _policy_name(model: Mapping[str, Tensor]) -> str | None:
    if not any(name.startswith(("pi.", "mu.", "v.", "value.", "head.")) for name in model):
        return None
    kind = "A2C/PPO" if any(name.startswith("conv.") for name in model) else "MuJoCo A2C/PPO"
    return f"recurrent {kind}" if any(name.startswith("lstm.") for name in model) else kind


def translate(content: Mapping[str, Any]) -> RlpytFile:
    """A snapshot of rlpyt under rlcli's names.

    Args:
        content: For which `is_rlpyt` holds.

    Raises:
        SnapshotError: It is of an agent, or of a network, that has no counterpart here; without the file's name.
    """
    name = agent_name(content)
    for reader, agents in _READERS.items():
        if name in agents:
            return reader(name, content)
    known = ", ".join(agent for agents in _READERS.values() for agent in agents)
    raise SnapshotError(f"an rlpyt snapshot of an agent that rlcli does not know; it maps {known}")
