"""Networks that judge: values of states, and of actions in a box."""

from __future__ import annotations

from typing import Any

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlcli.core.tree import Tree
from rlcli.models.actors import init_uniform
from rlcli.models.config import ModelConfig
from rlcli.models.trunk import has_images, mlp

_HIDDEN = [256, 256]
"""Layers behind the features of a model from outside that does not say which widths it would have."""


class Critic(nn.Module):
    """Q(s, a) of normalised actions.

    Vectors go through the model's MLP together with the action, from its first layer on. Where the observation holds
    images, and with a model from outside, the action joins the features, and an MLP of the same widths
    (``mlp_hidden``) follows: a linear layer alone could not let the best action depend on the image.

    Args:
        model: Config of the model; ``build(observation_space)`` gives a module with ``n_features``.
        observation_space: The environment's.
        n_dims: D, numbers in an action.
        final_bound: The last layer's weights are drawn from [-bound, bound]; None: torch's own.
    """

    def __init__(
        self, model: Any, observation_space: gymnasium.Space[Any], n_dims: int, final_bound: float | None = None
    ) -> None:
        super().__init__()
        self._joint = isinstance(model, ModelConfig) and not has_images(observation_space)
        if self._joint:
            # pairs, because from a dict the keys would be sorted: the action comes last, as in rlpyt
            parts = [("observation", observation_space), ("action", spaces.Box(-1.0, 1.0, (n_dims,)))]
            self.trunk = model.build(spaces.Dict(parts))
            last, layers = int(self.trunk.n_features), nn.Sequential()
        else:
            self.trunk = model.build(observation_space)
            sizes = [int(self.trunk.n_features) + n_dims, *getattr(model, "mlp_hidden", _HIDDEN)]
            last, layers = sizes[-1], mlp(sizes, getattr(model, "activation", "relu"))
        out = nn.Linear(last, 1)
        if final_bound is not None:
            init_uniform(out, final_bound)
        self.head = layers.append(out)

    def forward(self, obs: Tree, action: Tensor) -> Tensor:
        """Values [N] of observations and normalised actions [N, D]."""
        if self._joint:
            features = self.trunk({"observation": obs, "action": action})
        else:
            features = torch.cat([self.trunk(obs), action], dim=-1)
        q: Tensor = self.head(features)
        return q.squeeze(-1)


class TwinCritic(nn.Module):
    """Two critics that share nothing; arguments as `Critic`."""

    def __init__(
        self, model: Any, observation_space: gymnasium.Space[Any], n_dims: int, final_bound: float | None = None
    ) -> None:
        super().__init__()
        self.q1 = Critic(model, observation_space, n_dims, final_bound)
        self.q2 = Critic(model, observation_space, n_dims, final_bound)

    def forward(self, obs: Tree, action: Tensor) -> tuple[Tensor, Tensor]:
        """Values [N] of each."""
        return self.q1(obs, action), self.q2(obs, action)


class StateValue(nn.Module):
    """V(s).

    Args:
        trunk: Observation to features; has ``n_features``.
    """

    def __init__(self, trunk: nn.Module) -> None:
        super().__init__()
        self.trunk = trunk
        self.value = nn.Linear(int(trunk.n_features), 1)  # type: ignore[arg-type]  # an int on every trunk

    def forward(self, obs: Tree) -> Tensor:
        """Values [N]."""
        value: Tensor = self.value(self.trunk(obs))
        return value.squeeze(-1)
