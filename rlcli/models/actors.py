"""Networks that act in a box: observation in, normalised action out."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlcli.core.tree import Tree
from rlcli.models import squashed_gaussian
from rlcli.models.squashed_gaussian import LOG_STD_MAX, LOG_STD_MIN


class DeterministicActor(nn.Module):
    """mu(s): one action for each observation.

    Args:
        trunk: Observation to features; has ``n_features``.
        n_dims: Numbers in an action.
        final_bound: The last layer's weights are drawn from [-bound, bound]; None: torch's own.
    """

    def __init__(self, trunk: nn.Module, n_dims: int, final_bound: float | None = None) -> None:
        super().__init__()
        self.trunk = trunk
        self.mean = nn.Linear(int(trunk.n_features), n_dims)  # type: ignore[arg-type]  # an int on every trunk
        if final_bound is not None:
            init_uniform(self.mean, final_bound)

    def forward(self, obs: Tree) -> Tensor:
        """Actions [N, n_dims] in [-1, 1]."""
        return torch.tanh(self.mean(self.trunk(obs)))


class SquashedGaussianActor(nn.Module):
    """pi(.|s): mean and deviation, before the tanh, for each observation.

    Args:
        trunk: Observation to features; has ``n_features``.
        n_dims: Numbers in an action.
    """

    def __init__(self, trunk: nn.Module, n_dims: int) -> None:
        super().__init__()
        self.trunk = trunk
        n_features = int(trunk.n_features)  # type: ignore[arg-type]  # an int on every trunk
        self.mean = nn.Linear(n_features, n_dims)
        self.log_std = nn.Linear(n_features, n_dims)

    def forward(self, obs: Tree) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the deviation, both [N, n_dims]."""
        features = self.trunk(obs)
        return self.mean(features), self.log_std(features).clamp(LOG_STD_MIN, LOG_STD_MAX)

    def sample(self, obs: Tree, z: Tensor) -> tuple[Tensor, Tensor]:
        """Reparameterised actions [N, n_dims] in [-1, 1] of standard normals ``z``, and their log densities [N]."""
        mean, log_std = self(obs)
        return squashed_gaussian.sample(mean, log_std, z)


def init_uniform(layer: nn.Linear, bound: float) -> None:
    """Draw a layer's weights and biases evenly from [-bound, bound]."""
    nn.init.uniform_(layer.weight, -bound, bound)
    nn.init.uniform_(layer.bias, -bound, bound)
