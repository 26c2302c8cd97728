"""Config of the feature network."""

from __future__ import annotations

from dataclasses import dataclass, fields
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
    recurrent: str = option(
        "none", "A recurrent layer behind all others, for algorithms that know one.", choices=("none", "lstm", "gru")
    )
    recurrent_hidden: int = option(256, "Width of the recurrent state.", ge=1)
    observe_previous: bool | None = option(
        None, "Add the previous action and reward to each observation; null: where the model is recurrent (rlpyt)."
    )
    shared_trunk: bool = option(True, "Policy and value read the same features; false: a network each (MuJoCo).")
    normalize_obs: bool = option(
        False,
        "Vectors of floats to mean 0 and deviation 1 by running statistics, clipped to +-10; they are saved with the "
        "weights, and stand still in evaluation. For algo a2c and ppo.",
    )
    init: str = option(
        "torch",
        "First weights. torch: its own. orthogonal: gain sqrt(2), biases 0 (Huang et al. 2022).",
        choices=("torch", "orthogonal"),
    )

    def problems(self) -> list[str]:
        """Checks across fields."""
        lists = ("conv_channels", "conv_kernels", "conv_strides", "conv_paddings")
        lengths = {name: len(getattr(self, name)) for name in lists if getattr(self, name) is not None}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} has {n}" for name, n in lengths.items())
            return [f"conv_channels: {', '.join(lists)} must be equally long: {told}"]
        if self.recurrent != "none" and not self.shared_trunk:
            return [f"shared_trunk: false is not allowed with recurrent={self.recurrent}, must be true"]
        return []

    @property
    def adds_previous(self) -> bool:
        """Whether observations are to carry the previous action and reward."""
        return self.recurrent != "none" if self.observe_previous is None else self.observe_previous

    @property
    def paddings(self) -> list[int]:
        """One for each convolution."""
        return [0] * len(self.conv_channels) if self.conv_paddings is None else self.conv_paddings

    def build(self, observation_space: gymnasium.Space[Any]) -> Trunk:
        """The network; its ``n_features`` is the width of what it gives.

        Raises:
            ConfigError: It asks for what only some algorithms know, which build it in another way.
        """
        self._refuse(("recurrent", "shared_trunk", "normalize_obs", "init"))
        return self.trunk(observation_space)

    def trunk(self, observation_space: gymnasium.Space[Any]) -> Trunk:
        """The part before any recurrent layer, whatever else is asked for."""
        from rlcli.models.trunk import Trunk

        return Trunk(self, observation_space)

    def build_for_streams(self, observation_space: gymnasium.Space[Any]) -> Trunk:
        """The network without its last dense layer, of which each stream of a dueling head gets one of its own.

        Its ``head_hidden`` says how wide that layer is.
        """
        self._refuse(("recurrent", "shared_trunk", "normalize_obs", "init"))
        from rlcli.models.trunk import Trunk

        return Trunk(self, observation_space, last_hidden=False)

    def _refuse(self, names: tuple[str, ...]) -> None:
        """Raise for options that the algorithm would leave out in silence."""
        from rlcli.core.errors import ConfigError

        defaults = {field.name: field.default for field in fields(self)}
        asked = [name for name in names if getattr(self, name) != defaults[name]]
        if asked:
            raise ConfigError([f"model.{name}: {getattr(self, name)!r} is not for this algo" for name in asked])
