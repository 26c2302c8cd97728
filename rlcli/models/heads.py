"""Networks with outputs: a trunk and what an agent reads off its features."""

from __future__ import annotations

from torch import Tensor, nn

from rlcli.core.tree import Tree


class QNetwork(nn.Module):
    """Action values of an observation.

    Args:
        trunk: Observation to features; has ``n_features``.
        n_actions: Number of discrete actions.
        dueling: Whether to split into value and advantage, ``q = v + a - mean(a)`` (Wang 2016, eq. 9).
    """

    def __init__(self, trunk: nn.Module, n_actions: int, dueling: bool) -> None:
        super().__init__()
        self.trunk = trunk
        n_features = int(trunk.n_features)  # type: ignore[arg-type]  # an int on every trunk
        self.advantage = nn.Linear(n_features, n_actions)
        self.value = nn.Linear(n_features, 1) if dueling else None

    def forward(self, obs: Tree) -> Tensor:
        """Action values [N, n_actions]."""
        features = self.trunk(obs)
        advantage: Tensor = self.advantage(features)
        if self.value is None:
            return advantage
        value: Tensor = self.value(features)
        return value + advantage - advantage.mean(dim=-1, keepdim=True)


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
