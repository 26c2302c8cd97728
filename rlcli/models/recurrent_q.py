"""Action values that hang on a recurrent state."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from rlcli.core.tree import Tree
from rlcli.models.heads import DuelingHead, plain_head
from rlcli.models.recurrent import RecurrentTrunk


class RecurrentQNetwork(nn.Module):
    """A trunk with a recurrent state, then action values in one stack of layers or two streams.

    Args:
        trunk: See `RecurrentTrunk`.
        n_actions: Number of discrete actions.
        head_hidden: Widths of the dense layers behind the recurrent one, of each stream its own.
        activation: After each of them, by name.
        dueling: Whether to split into value and advantage, see `DuelingHead`.
    """

    def __init__(
        self, trunk: RecurrentTrunk, n_actions: int, head_hidden: Sequence[int], activation: str, dueling: bool
    ) -> None:
        super().__init__()
        self.trunk = trunk
        self.head: nn.Module
        if dueling:
            self.head = DuelingHead(trunk.n_features, head_hidden, n_actions, activation)
        else:
            self.head = plain_head(trunk.n_features, head_hidden, n_actions, activation, None, noisy=False)

    def initial_state(self, n: int, device: str = "cpu") -> dict[str, Tensor]:
        """The state [n, H] at an episode's start."""
        return self.trunk.initial_state(n, device)

    def unroll(self, obs: Tree, state: Tree, begins: Tensor | None = None) -> tuple[Tensor, Tree]:
        """Action values [T, B, A] and the state [B, H] after the last row.

        Args:
            obs: [T, B, ...].
            state: [B, H] before row 0.
            begins: [T, B] bool: before these rows the state becomes the initial one; None: nowhere.
        """
        features, state = self.trunk(obs, state, begins)
        values: Tensor = self.head(features.flatten(0, 1))
        return values.view(*features.shape[:2], -1), state

    def state_after(self, obs: Tree, state: Tree, begins: Tensor | None = None) -> Tree:
        """The state that `unroll` gives, without the values."""
        return self.trunk(obs, state, begins)[1]
