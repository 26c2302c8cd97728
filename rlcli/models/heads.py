"""Networks with outputs: a trunk and what an agent reads off its features."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rlcli.core.tree import Tree
from rlcli.models.trunk import mlp


class DuelingHead(nn.Module):
    """Value and advantage as two streams on the same features, ``q = v + (a - mean(a))`` (Wang 2016, eq. 9).

    The gradient that flows from the streams into what is before them is scaled by 1/sqrt(2) (Wang 2016, section 4.2).
    As in rlpyt the advantages have one bias that all actions share; q does not depend on it.

    Args:
        n_features: Width of the features.
        hidden: Widths of the dense layers that each stream has of its own.
        n_actions: Number of discrete actions.
        activation: After each of the dense layers, by name.
    """

    def __init__(self, n_features: int, hidden: Sequence[int], n_actions: int, activation: str) -> None:
        super().__init__()
        sizes = [n_features, *hidden]
        self.advantage = mlp(sizes, activation).append(nn.Linear(sizes[-1], n_actions, bias=False))
        self.advantage_bias = nn.Parameter(torch.zeros(1))
        self.value = mlp(sizes, activation).append(nn.Linear(sizes[-1], 1))

    def forward(self, features: Tensor) -> Tensor:
        """Action values [N, n_actions] of features [N, n_features]."""
        features = _scaled_on_the_way_back(features, math.sqrt(0.5))
        advantage: Tensor = self.advantage(features) + self.advantage_bias
        value: Tensor = self.value(features)
        return value + (advantage - advantage.mean(dim=-1, keepdim=True))


def _scaled_on_the_way_back(x: Tensor, factor: float) -> Tensor:
    """``x`` itself, its gradient times ``factor``."""
    if x.requires_grad:
        x = x.view_as(x)  # the hook must not touch the gradient that reaches x by other ways
        x.register_hook(lambda gradient: gradient * factor)  # type: ignore[no-untyped-call]  # torch's stub
    return x


class QNetwork(nn.Module):
    """Action values of an observation.

    Args:
        trunk: Observation to features; has ``n_features``, and ``head_hidden`` and ``activation`` if it leaves its
            last dense layer to the two streams of a dueling network.
        n_actions: Number of discrete actions.
        dueling: Whether to split into value and advantage, see `DuelingHead`.
    """

    def __init__(self, trunk: nn.Module, n_actions: int, dueling: bool) -> None:
        super().__init__()
        self.trunk = trunk
        n_features = int(trunk.n_features)  # type: ignore[arg-type]  # an int on every trunk
        # A plain network's names and order of drawing its weights are those of every file written so far.
        self.advantage = None if dueling else nn.Linear(n_features, n_actions)
        hidden: Sequence[int] = getattr(trunk, "head_hidden", ())
        activation = str(getattr(trunk, "activation", "relu"))
        self.streams = DuelingHead(n_features, hidden, n_actions, activation) if dueling else None

    def forward(self, obs: Tree) -> Tensor:
        """Action values [N, n_actions]."""
        head = self.streams if self.advantage is None else self.advantage
        assert head is not None
        q: Tensor = head(self.trunk(obs))
        return q


class PolicyValueNetwork(nn.Module):
    """Logits of a categorical policy and the state's value, on shared features.

    Args:
        trunk: Observation to features; has ``n_features``.
        n_actions: Number of discrete actions.
    """

    def __init__(self, trunk: nn.Module, n_actions: int) -> None:
        super().__init__()
        self.trunk = trunk
        n_features = int(trunk.n_features)  # type: ignore[arg-type]  # an int on every trunk
        self.policy = nn.Linear(n_features, n_actions)
        self.value = nn.Linear(n_features, 1)
        # Small last layers: a near-uniform first policy (Andrychowicz 2021, "What matters", section 3.2).
        nn.init.orthogonal_(self.policy.weight, 0.01)
        nn.init.zeros_(self.policy.bias)

    def forward(self, obs: Tree) -> tuple[Tensor, Tensor]:
        """Logits [N, n_actions] and values [N]."""
        features = self.trunk(obs)
        value: Tensor = self.value(features)
        return self.policy(features), value.squeeze(-1)
