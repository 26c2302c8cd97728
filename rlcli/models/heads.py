"""Networks with outputs: a trunk and what an agent reads off its features."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rlcli.core.tree import Tree
from rlcli.models.noisy import NoiseParts, NoisyLinear, count_noise
from rlcli.models.trunk import mlp


class DuelingHead(nn.Module):
    """Value and advantage as two streams on the same features, ``q = v + (a - mean(a))`` (Wang 2016, eq. 9).

    The gradient that flows from the streams into what is before them is scaled by 1/sqrt(2) (Wang 2016, section 4.2).
    As in rlpyt the advantages have one bias that all actions share; q does not depend on it. With several outputs per
    action the sum is taken, and the bias shared, for each output (Hessel 2018, "the integrated agent").

    Args:
        n_features: Width of the features.
        hidden: Widths of the dense layers that each stream has of its own.
        n_actions: Number of discrete actions.
        activation: After each of the dense layers, by name.
        n_outputs: Numbers per action, as a dimension of their own; None: one, without.
        noisy: Whether all of its layers are noisy; each advantage then has a bias of its own, whose noise matters.
    """

    def __init__(
        self,
        n_features: int,
        hidden: Sequence[int],
        n_actions: int,
        activation: str,
        n_outputs: int | None = None,
        noisy: bool = False,
    ) -> None:
        super().__init__()
        self._outputs = () if n_outputs is None else (n_outputs,)
        self._n_actions = n_actions
        sizes = [n_features, *hidden]
        linear = NoisyLinear if noisy else nn.Linear
        n_out, n = n_actions * (n_outputs or 1), n_outputs or 1
        self.advantage = mlp(sizes, activation, linear)
        self.advantage.append(NoisyLinear(sizes[-1], n_out) if noisy else nn.Linear(sizes[-1], n_out, bias=False))
        self.advantage_bias = nn.Parameter(torch.zeros(n))
        self.value = mlp(sizes, activation, linear).append(linear(sizes[-1], n))

    def forward(self, features: Tensor, noise: Tensor | None = None) -> Tensor:
        """Action values [N, n_actions] or [N, n_actions, n_outputs] of features [N, n_features].

        Args:
            features: Of N observations.
            noise: See `QNetwork`.
        """
        parts = NoiseParts(noise)
        features = _scaled_on_the_way_back(features, math.sqrt(0.5))
        advantage = parts.through(self.advantage, features).view(-1, self._n_actions, *self._outputs)
        advantage = advantage + self.advantage_bias
        value = parts.through(self.value, features)
        parts.check_all_used()
        if self._outputs:
            value = value[:, None]
        return value + (advantage - advantage.mean(dim=1, keepdim=True))


def _scaled_on_the_way_back(x: Tensor, factor: float) -> Tensor:
    """``x`` itself, its gradient times ``factor``."""
    if x.requires_grad:
        x = x.view_as(x)  # the hook must not touch the gradient that reaches x by other ways
        x.register_hook(lambda gradient: gradient * factor)  # type: ignore[no-untyped-call]  # torch's stub
    return x


def plain_head(
    n_features: int, hidden: Sequence[int], n_actions: int, activation: str, n_outputs: int | None, noisy: bool
) -> nn.Module:
    """Dense layers of the head's own, and the output layer; a bare output layer if there are none.

    Arguments as those of `DuelingHead`; gives [N, n_actions * n_outputs].
    """
    sizes = [n_features, *hidden]
    linear = NoisyLinear if noisy else nn.Linear
    before = mlp(sizes, activation, linear)
    last = linear(sizes[-1], n_actions * (n_outputs or 1))
    return before.append(last) if hidden else last


def action_heads(
    trunk: nn.Module, n_actions: int, dueling: bool, noisy: bool, n_outputs: int | None = None
) -> tuple[nn.Module | None, DuelingHead | None]:
    """What a network of action values has behind its trunk: one stack of layers, or two streams; the other is None.

    Args:
        trunk: Has ``n_features``, and ``head_hidden`` and ``activation`` if it leaves its last dense layer to the head.
        n_actions: Number of discrete actions.
        dueling: Whether to split into value and advantage, see `DuelingHead`.
        noisy: Whether the layers of the head are noisy, see `NoisyLinear`.
        n_outputs: Numbers per action; None: one.
    """
    n_features = int(trunk.n_features)  # type: ignore[arg-type]  # an int on every trunk
    hidden: Sequence[int] = getattr(trunk, "head_hidden", ())
    activation = str(getattr(trunk, "activation", "relu"))
    if dueling:
        return None, DuelingHead(n_features, hidden, n_actions, activation, n_outputs, noisy)
    return plain_head(n_features, hidden, n_actions, activation, n_outputs, noisy), None


def through_heads(
    advantage: nn.Module | None, streams: DuelingHead | None, features: Tensor, noise: Tensor | None
) -> Tensor:
    """Outputs of the one of `action_heads` that is there."""
    if streams is not None:
        outputs: Tensor = streams(features, noise)
        return outputs
    assert advantage is not None
    parts = NoiseParts(noise)
    outputs = parts.through(advantage, features)
    parts.check_all_used()
    return outputs


class QNetwork(nn.Module):
    """Action values of an observation.

    Args:
        trunk: Observation to features; has ``n_features``, and ``head_hidden`` and ``activation`` if it leaves its
            last dense layer to the head.
        n_actions: Number of discrete actions.
        dueling: Whether to split into value and advantage, see `DuelingHead`.
        noisy: Whether the layers behind the trunk are noisy, see `NoisyLinear`.

    Attributes:
        n_noise: Normals that a draw of its noise takes; 0 if it is not noisy.
    """

    def __init__(self, trunk: nn.Module, n_actions: int, dueling: bool, noisy: bool = False) -> None:
        super().__init__()
        self.trunk = trunk
        # A plain network's names and order of drawing its weights are those of every file written so far.
        self.advantage, self.streams = action_heads(trunk, n_actions, dueling, noisy)
        self.n_noise = count_noise(self)

    def forward(self, obs: Tree, noise: Tensor | None = None) -> Tensor:
        """Action values [N, n_actions].

        Args:
            obs: Leaves [N, ...].
            noise: Normals [N, n_noise], of each sample its own, or [1, n_noise] for all; None: the mean weights.
        """
        return through_heads(self.advantage, self.streams, self.trunk(obs), noise)


class CategoricalQNetwork(nn.Module):
    """A distribution of the return for each action, on fixed atoms (Bellemare 2017, section 4.1).

    Args:
        trunk: As that of `QNetwork`.
        n_actions: Number of discrete actions.
        atoms: [n_atoms] the returns that have a probability, evenly spaced, rising.
        dueling: As that of `QNetwork`; the streams are summed atom by atom, before the softmax (Hessel 2018).
        noisy: As that of `QNetwork`.

    Attributes:
        atoms: The returns, on the network's device; no part of what is saved, for the configuration says them.
        n_noise: Normals that a draw of its noise takes; 0 if it is not noisy.
    """

    atoms: Tensor

    def __init__(
        self, trunk: nn.Module, n_actions: int, atoms: Tensor, dueling: bool = False, noisy: bool = False
    ) -> None:
        super().__init__()
        self.trunk = trunk
        self.register_buffer("atoms", atoms, persistent=False)
        self._shape = (n_actions, len(atoms))
        self.advantage, self.streams = action_heads(trunk, n_actions, dueling, noisy, len(atoms))
        self.n_noise = count_noise(self)

    def logits(self, obs: Tree, noise: Tensor | None = None) -> Tensor:
        """Unnormalised log-probabilities [N, n_actions, n_atoms]; arguments as those of `QNetwork`."""
        return through_heads(self.advantage, self.streams, self.trunk(obs), noise).view(-1, *self._shape)

    def forward(self, obs: Tree, noise: Tensor | None = None) -> Tensor:
        """Action values [N, n_actions]: the means of the distributions."""
        values: Tensor = self.logits(obs, noise).softmax(dim=-1) @ self.atoms
        return values
