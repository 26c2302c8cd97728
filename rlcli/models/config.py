"""Configs of the feature network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rlcli.core.options import option

if TYPE_CHECKING:
    import gymnasium
    from gymnasium import spaces

    from rlcli.models.images import ImageEncoder, Shape
    from rlcli.models.trunk import Trunk

_SMALLEST_FOR_NATURE = 36
"""Pixels along the shorter side that the convolutions of Mnih 2015 need."""


@dataclass
class ModelConfig(ABC):
    """A network chosen by the observation space; which convolutions there are is left to each kind.

    Images (3-dimensional Box) go through convolutions and a dense layer, everything else through an MLP; of a Dict
    each image has its own convolutions and the rest goes through one MLP together.
    """

    mlp_hidden: list[int] = option([64, 64], "Widths of the layers of the MLP for what is no image.", ge=1)
    activation: str = option("relu", "After each layer.", choices=("relu", "tanh"))
    image_channels: str = option(
        "auto",
        "Which dimension of an image holds its channels; auto: the last if it is 1, 3 or 4 and the first is not, else "
        "the first.",
        choices=("auto", "first", "last"),
    )
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
        "weights, and stand still in evaluation.",
    )
    init: str = option(
        "torch",
        "First weights. torch: its own. orthogonal: gain sqrt(2), biases 0 (Huang et al. 2022).",
        choices=("torch", "orthogonal"),
    )

    def problems(self) -> list[str]:
        """Checks across fields."""
        if self.recurrent != "none" and not self.shared_trunk:
            return [f"shared_trunk: false is not allowed with recurrent={self.recurrent}, must be true"]
        return []

    @property
    def adds_previous(self) -> bool:
        """Whether observations are to carry the previous action and reward."""
        return self.recurrent != "none" if self.observe_previous is None else self.observe_previous

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

    @abstractmethod
    def image_encoder(self, space: spaces.Box, *, hidden: bool = True) -> ImageEncoder:
        """The network for images of a space.

        Args:
            space: A Box of three dimensions.
            hidden: Whether it has its last dense layer.

        Raises:
            ConfigError: The images are too small.
        """

    def _refuse(self, names: tuple[str, ...]) -> None:
        """Raise for options that the algorithm would leave out in silence."""
        from rlcli.core.errors import ConfigError

        defaults = {field.name: field.default for field in fields(self)}
        asked = [name for name in names if getattr(self, name) != defaults[name]]
        if asked:
            raise ConfigError([f"model.{name}: {getattr(self, name)!r} is not for this algo" for name in asked])


@dataclass
class AutoModelConfig(ModelConfig):
    """Convolutions one after another for images, an MLP for the rest, by the observation space.

    The default convolutions are those of Mnih 2015 or, for images with a side under 36 pixels, which they do not fit,
    the one of Young and Tian 2019 (MinAtar): 16 channels, 3x3, stride 1.
    """

    conv_channels: list[int] = option(
        [32, 64, 64],
        "Channels of the convolutions (Mnih 2015, methods). Where this and the next three are left as they are, images "
        "with a side under 36 pixels get one convolution of 16 channels, 3x3, stride 1 (Young and Tian 2019).",
        ge=1,
    )
    conv_kernels: list[int] = option([8, 4, 3], "Kernel sizes, pixels.", ge=1)
    conv_strides: list[int] = option([4, 2, 1], "Strides, pixels.", ge=1)
    conv_paddings: list[int] | None = option(
        None, "Zeros put around the input of each convolution, pixels; null: none.", ge=0
    )
    conv_hidden: int | None = option(
        None,
        "Width of the dense layer after the convolutions; null: 512 (Mnih 2015), or 128 behind the one convolution for "
        "small images (Young and Tian 2019).",
        ge=1,
    )

    def problems(self) -> list[str]:
        """Checks across fields."""
        lengths = {name: len(getattr(self, name)) for name in _LISTS if getattr(self, name) is not None}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} has {n}" for name, n in lengths.items())
            return [f"conv_channels: {', '.join(_LISTS)} must be equally long: {told}"]
        return super().problems()

    @property
    def paddings(self) -> list[int]:
        """One for each convolution."""
        return [0] * len(self.conv_channels) if self.conv_paddings is None else self.conv_paddings

    def image_encoder(self, space: spaces.Box, *, hidden: bool = True) -> ImageEncoder:
        """The network for images of a space; see `ModelConfig`."""
        from rlcli.models.images import ImageEncoder, image_shape, plain_convolutions

        sizes = self._fitting(image_shape(space, self.image_channels))
        width = 512 if sizes is self else 128
        convolutions = partial(
            plain_convolutions,
            channels=sizes.conv_channels,
            kernels=sizes.conv_kernels,
            strides=sizes.conv_strides,
            paddings=sizes.paddings,
            activation=self.activation,
        )
        return ImageEncoder(
            space,
            convolutions,
            width if self.conv_hidden is None else self.conv_hidden,
            hidden=hidden,
            activation=self.activation,
            channels=self.image_channels,
            channels_last=self.channels_last,
        )

    def _fitting(self, shape: Shape) -> AutoModelConfig:
        """This one, or the one for small images."""
        defaults = AutoModelConfig()
        untouched = all(getattr(self, name) == getattr(defaults, name) for name in _LISTS)
        if untouched and min(shape.height, shape.width) < _SMALLEST_FOR_NATURE:
            return replace(self, conv_channels=[16], conv_kernels=[3], conv_strides=[1])
        return self


_LISTS = ("conv_channels", "conv_kernels", "conv_strides", "conv_paddings")


@dataclass
class ImpalaConfig(ModelConfig):
    """The large network of IMPALA for images (Espeholt 2018, figure 3), an MLP for the rest, by the observation space.

    Its LSTM is ``recurrent=lstm``.
    """

    conv_channels: list[int] = option(
        [16, 32, 32],
        "Channels of the sections, each a convolution 3x3, a max-pooling 3x3 with stride 2, and residual blocks "
        "(Espeholt 2018).",
        ge=1,
    )
    conv_blocks: int = option(2, "Residual blocks in a section, two convolutions 3x3 each (Espeholt 2018).", ge=0)
    conv_hidden: int = option(256, "Width of the dense layer after the sections (Espeholt 2018).", ge=1)

    def image_encoder(self, space: spaces.Box, *, hidden: bool = True) -> ImageEncoder:
        """The network for images of a space; see `ModelConfig`."""
        from rlcli.models.images import ImageEncoder, residual_sections

        return ImageEncoder(
            space,
            partial(
                residual_sections, channels=self.conv_channels, n_blocks=self.conv_blocks, activation=self.activation
            ),
            self.conv_hidden,
            hidden=hidden,
            activation=self.activation,
            channels=self.image_channels,
            channels_last=self.channels_last,
        )
