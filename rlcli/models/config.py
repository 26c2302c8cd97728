"""Config of the feature network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlcli.core.options import option

if TYPE_CHECKING:
    import gymnasium

    from rlcli.models.trunk import Trunk


@dataclass
class AutoModelConfig:
    """A network chosen by the observation space.

    Images (3-dimensional Box) go through convolutions and a dense layer, everything else through an MLP; of a Dict
    each image has its own convolutions and the rest goes through one MLP together.
    """

    conv_channels: list[int] = option([32, 64, 64], "Channels of the convolutions (Mnih 2015, methods).", ge=1)
    conv_kernels: list[int] = option([8, 4, 3], "Kernel sizes, pixels.", ge=1)
    conv_strides: list[int] = option([4, 2, 1], "Strides, pixels.", ge=1)
    conv_paddings: list[int] | None = option(
        None, "Zeros put around the input of each convolution, pixels; null: none.", ge=0
    )
    conv_hidden: int = option(512, "Width of the dense layer after the convolutions.", ge=1)
    mlp_hidden: list[int] = option([64, 64], "Widths of the layers of the MLP for what is no image.", ge=1)
    activation: str = option("relu", "After each layer.", choices=("relu", "tanh"))
    channels_last: bool = option(True, "Memory layout of the convolutions; faster on CPU and on tensor cores.")

    def problems(self) -> list[str]:
        """Checks across fields."""
        lists = ("conv_channels", "conv_kernels", "conv_strides", "conv_paddings")
        lengths = {name: len(getattr(self, name)) for name in lists if getattr(self, name) is not None}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} has {n}" for name, n in lengths.items())
            return [f"conv_channels: {', '.join(lists)} must be equally long: {told}"]
        return []

    @property
    def paddings(self) -> list[int]:
        """One for each convolution."""
        return [0] * len(self.conv_channels) if self.conv_paddings is None else self.conv_paddings

    def build(self, observation_space: gymnasium.Space[Any]) -> Trunk:
        """The network; its ``n_features`` is the width of what it gives."""
        from rlcli.models.trunk import Trunk

        return Trunk(self, observation_space)

    def build_for_streams(self, observation_space: gymnasium.Space[Any]) -> Trunk:
        """The network without its last dense layer, of which each stream of a dueling head gets one of its own.

        Its ``head_hidden`` says how wide that layer is.
        """
        from rlcli.models.trunk import Trunk

        return Trunk(self, observation_space, last_hidden=False)
