"""Networks of policies: observation in, a distribution's parameters and the state's value out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gymnasium
import torch
from torch import Tensor, nn

from rlcli.core.tree import Tree
from rlcli.models.action_distributions import ActionDistribution, Categorical
from rlcli.models.normalizer import ObsNormalizer
from rlcli.models.recurrent import RecurrentTrunk


class PolicyValueNetwork(nn.Module):
    """Parameters of a policy and the state's value.

    Args:
        trunk: Observation to features; has ``n_features``.
        distribution: Over the actions; a number stands for that many discrete ones.
        value_trunk: A trunk of its own for the value; None: both heads read the same features.
        normalizer: What observations go through first; None: nothing.
        log_std: Logarithm of the standard deviations at the start, where they are the same for all observations.
    """

    def __init__(
        self,
        trunk: nn.Module,
        distribution: ActionDistribution | int,
        *,
        value_trunk: nn.Module | None = None,
        normalizer: ObsNormalizer | None = None,
        log_std: float = 0.0,
    ) -> None:
        super().__init__()
        if isinstance(distribution, int):
            distribution = Categorical(distribution)
        self.distribution = distribution
        self.normalizer = normalizer
        # These names, and the order of drawing the weights, are those of every file written so far.
        self.trunk = trunk
        self.value_trunk = value_trunk
        n_features = int(trunk.n_features)  # type: ignore[arg-type]  # an int on every trunk
        self.policy = nn.Linear(n_features, distribution.n_outputs)
        self.value = nn.Linear(n_features, 1)
        self.log_std = None
        if distribution.n_constants:
            self.log_std = nn.Parameter(torch.full((distribution.n_constants,), log_std))
        # Small last layers: a near-uniform first policy (Andrychowicz 2021, "What matters", section 3.2).
        nn.init.orthogonal_(self.policy.weight, 0.01)
        nn.init.zeros_(self.policy.bias)

    def forward(self, obs: Tree) -> tuple[Tensor, Tensor]:
        """Parameters [N, n_params] and values [N] of observations [N, ...]."""
        if self.normalizer is not None:
            obs = self.normalizer(obs)
        features = self.trunk(obs)
        return self._heads(features, features if self.value_trunk is None else self.value_trunk(obs))

    def _heads(self, features: Tensor, value_features: Tensor) -> tuple[Tensor, Tensor]:
        value: Tensor = self.value(value_features)
        params: Tensor = self.policy(features)
        if self.log_std is not None:
            params = torch.cat([params, self.log_std.expand(*params.shape[:-1], -1)], dim=-1)
        return params, value.squeeze(-1)


class RecurrentPolicyNetwork(PolicyValueNetwork):
    """The same on a trunk with a recurrent state, over time.

    Args:
        trunk: See `RecurrentTrunk`.
        distribution: Over the actions; a number stands for that many discrete ones.
        normalizer: What observations go through first; None: nothing.
        log_std: See `PolicyValueNetwork`.
    """

    def __init__(
        self,
        trunk: RecurrentTrunk,
        distribution: ActionDistribution | int,
        *,
        normalizer: ObsNormalizer | None = None,
        log_std: float = 0.0,
    ) -> None:
        super().__init__(trunk, distribution, normalizer=normalizer, log_std=log_std)

    def initial_state(self, n: int, device: str = "cpu") -> dict[str, Tensor]:
        """The state [n, H] at an episode's start."""
        assert isinstance(self.trunk, RecurrentTrunk)
        return self.trunk.initial_state(n, device)

    def unroll(self, obs: Tree, state: Tree, begins: Tensor | None = None) -> tuple[Tensor, Tensor, Tree]:
        """Parameters [T, B, n_params], values [T, B] and the state [B, H] after the last row.

        Args:
            obs: [T, B, ...].
            state: [B, H] before row 0.
            begins: [T, B] bool: before these rows the state becomes the initial one; None: nowhere.
        """
        if self.normalizer is not None:
            obs = self.normalizer(obs)
        features, state = self.trunk(obs, state, begins)
        return (*self._heads(features, features), state)


def policy_network(
    config: Any, space: gymnasium.Space[Any], distribution: ActionDistribution, *, log_std: float = 0.0
) -> PolicyValueNetwork:
    """The network that a model's config asks for.

    Args:
        config: `rlcli.models.config.AutoModelConfig`, or anything with ``build(observation_space)``; the options that
            only policies know (recurrent, shared_trunk, normalize_obs, init) may be missing.
        space: Of the observations.
        distribution: Over the actions.
        log_std: See `PolicyValueNetwork`.
    """
    trunk: Callable[[Any], nn.Module] = getattr(config, "trunk", config.build)
    kind = getattr(config, "recurrent", "none")
    normalizer = ObsNormalizer(space) if getattr(config, "normalize_obs", False) else None
    network: PolicyValueNetwork
    if kind != "none":
        recurrent = RecurrentTrunk(trunk, space, kind, config.recurrent_hidden)
        network = RecurrentPolicyNetwork(recurrent, distribution, normalizer=normalizer, log_std=log_std)
    else:
        own = None if getattr(config, "shared_trunk", True) else trunk(space)
        network = PolicyValueNetwork(
            trunk(space), distribution, value_trunk=own, normalizer=normalizer, log_std=log_std
        )
    if getattr(config, "init", "torch") == "orthogonal":
        orthogonal_(network)
    return network


@torch.no_grad()
def orthogonal_(network: PolicyValueNetwork) -> None:
    """Orthogonal weights and zero biases: gain sqrt(2) in trunks, 1 in recurrent layers and for the value, 0.01 for
    the policy (Huang et al. 2022, details 2 and the first of LSTM).
    """
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            gain = {id(network.policy): 0.01, id(network.value): 1.0}.get(id(module), math.sqrt(2))
            _orthogonal_weight_(module.weight, gain)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.RNNBase):
            for name, weight in module.named_parameters():
                if "weight" in name:
                    _orthogonal_weight_(weight, 1.0)
                else:
                    nn.init.zeros_(weight)


def _orthogonal_weight_(weight: Tensor, gain: float) -> None:
    """As torch's, for weights of any memory layout."""
    weight.copy_(nn.init.orthogonal_(torch.empty(weight.shape), gain))
