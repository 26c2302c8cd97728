"""Acting on a policy: whatever the actions, with or without a recurrent state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rlcli.agents.module import ActingModel
from rlcli.core.protocols import Act
from rlcli.core.samples import Samples
from rlcli.core.tree import Tree, flatten_leading, map_tree, to
from rlcli.models.action_distributions import ActionDistribution, space_parts
from rlcli.models.policy import PolicyValueNetwork, RecurrentPolicyNetwork


class PolicyAgent:
    """Draws actions from the distribution that a network gives; in evaluation takes the likeliest.

    What a Gaussian draws outside the bounds of its Box is clipped for the environment alone: the action as it was drawn
    stands in the record, and is the one that is learned from (Huang et al. 2022, details of continuous actions).

    Args:
        model: Observation to parameters and value.
        distribution: Of the parameters; None: the model's.
        action_space: Its bounds; None: there are none.
        notes_log_prob: Whether log-probabilities of the actions go into the record.
        notes_state: Whether the recurrent state before each row goes into the record.
    """

    def __init__(
        self,
        model: PolicyValueNetwork,
        distribution: ActionDistribution | None = None,
        *,
        action_space: Any = None,
        notes_log_prob: bool = False,
        notes_state: bool = False,
    ) -> None:
        self.model = model
        self.distribution = model.distribution if distribution is None else distribution
        self.n_uniforms = self.distribution.n_uniforms
        self._acting = ActingModel(model)
        self._bounds = None if action_space is None else _bounds(action_space)
        self._is_bounded = action_space is not None and _has_bounds(action_space)
        self._notes_log_prob, self._notes_state = notes_log_prob, notes_state

    @property
    def is_recurrent(self) -> bool:
        """Whether there is a state."""
        return isinstance(self.model, RecurrentPolicyNetwork)

    def initial_state(self, n_envs: int) -> Tree:
        """Zeros [n_envs, H] where acting happens; None if there is no recurrent state."""
        if isinstance(self.model, RecurrentPolicyNetwork):
            return self.model.initial_state(n_envs, self._acting.device)
        return None

    @torch.inference_mode()
    def act(self, obs: Tree, state: Tree, uniforms: Tensor, *, env_ids: Sequence[int], step: int, explore: bool) -> Act:
        """Actions drawn by the inverse of the cumulative distribution; records as `taken` and PPO need them."""
        obs = to(obs, self._acting.device)
        if isinstance(self.model, RecurrentPolicyNetwork):
            params, value, after = self.model.unroll(map_tree(lambda leaf: leaf[None], obs), state)
            params, value = params[0], value[0]
        else:
            (params, value), after = self.model(obs), None
        params = params.cpu()
        drawn = self.distribution.sample(params, uniforms) if explore else self.distribution.mode(params)
        record: dict[str, Tree] = {"value": value.cpu()}
        if self._notes_log_prob:
            record["log_prob"] = self.distribution.log_prob(params, drawn)
        if self._notes_state and state is not None:
            record["state"] = map_tree(torch.clone, state)
        if not self._is_bounded:
            return Act(action=drawn, record=record, state=after)
        return Act(action=_clipped(drawn, self._bounds), record={**record, "action": drawn}, state=after)

    def taken(self, samples: Samples) -> Tree:
        """[T, B, ...] the actions as they were drawn, before any clipping."""
        return samples.record["action"] if self._is_bounded else samples.action

    def unroll(self, obs: Tree, state: Tree, begins: Tensor) -> tuple[Tensor, Tensor, Tree]:
        """What the network gives for rows in time order, with gradients.

        Args:
            obs: [T, B, ...] where the weights lie.
            state: [B, H] before row 0; None if there is none.
            begins: [T, B] bool: rows that begin an episode.

        Returns:
            Parameters [T, B, n_params], values [T, B], and the state after the last row.
        """
        if isinstance(self.model, RecurrentPolicyNetwork):
            return self.model.unroll(obs, state, begins)
        params, value = self.model(flatten_leading(obs))
        return params.view(*begins.shape, -1), value.view(begins.shape), None

    def observe(self, obs: Tree, valid: Tensor) -> None:
        """Take observations [T + 1, B, ...] into the statistics that normalise them, if there are any."""
        normalizer = getattr(self.model, "normalizer", None)
        if normalizer is not None:
            normalizer.observe(obs, valid)

    def state_dict(self) -> dict[str, Any]:
        """The model's weights."""
        return self._acting.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over weights; strict."""
        self._acting.load_state_dict(state)

    def weights(self) -> Mapping[str, Tensor]:
        """The model's parameters and buffers."""
        return self._acting.weights()

    def to(self, device: str) -> None:
        """Move the weights to ``device``; acting happens there."""
        self._acting.to(device)


def _has_bounds(space: Any) -> bool:
    """Whether some Box in it has a bound on some side."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return any(_has_bounds(part) for _, part in space_parts(space))
    return isinstance(space, spaces.Box) and bool(space.bounded_below.any() or space.bounded_above.any())


def _bounds(space: Any) -> Tree:
    """A tree as the actions', each leaf (low, high) in float32 inside the space's own, or None."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return {key: _bounds(part) for key, part in space_parts(space)}
    if not isinstance(space, spaces.Box):
        return None
    low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    low = np.where(low < space.low, np.nextafter(low, np.float32(np.inf)), low)
    high = np.where(high > space.high, np.nextafter(high, np.float32(-np.inf)), high)
    return torch.from_numpy(np.asarray(low)), torch.from_numpy(np.asarray(high))


def _clipped(action: Tree, bounds: Tree) -> Tree:
    if isinstance(action, Mapping):
        return {key: _clipped(part, bounds[key]) for key, part in action.items()}
    return action if bounds is None else action.clamp(*bounds)
