"""Noisy dense layers: exploration by noise in the weights, of which the network learns how much.

The noise is an argument. A layer without it is the plain layer on the mean weights.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class NoisyLinear(nn.Linear):
    """Dense layer whose weights have factorised Gaussian noise, ``w = mu + sigma * f(e_out) f(e_in)^T``.

    With f(e) = sign(e) sqrt(|e|); the bias' noise is f(e_out). Source: Fortunato 2018 (arXiv 1706.10295), eq. 9 - 11
    and section 3.2 for the initial weights: mu as in torch's `Linear`, sigma 0.5 / sqrt(n_in).

    Args:
        n_in: Width of the input.
        n_out: Width of the output.
        sigma_0: Noise at the start, in units of 1 / sqrt(n_in).
    """

    def __init__(self, n_in: int, n_out: int, sigma_0: float = 0.5) -> None:
        super().__init__(n_in, n_out)
        start = sigma_0 / math.sqrt(n_in)
        self.weight_sigma = nn.Parameter(torch.full((n_out, n_in), start))
        self.bias_sigma = nn.Parameter(torch.full((n_out,), start))

    @property
    def n_noise(self) -> int:
        """Normals that one draw of the layer's noise takes."""
        return self.in_features + self.out_features

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """[N, n_out] of [N, n_in].

        Args:
            x: Input.
            noise: Normals [N, n_noise], of each sample its own, or [1, n_noise] for all; None: the mean weights.
        """
        y: Tensor = super().forward(x)
        if noise is None:
            return y
        factors = _signed_root(noise)
        into, out = factors[..., : self.in_features], factors[..., self.in_features :]
        # sigma * (out into^T) times x, without a weight matrix for each sample
        return y + out * nn.functional.linear(x * into, self.weight_sigma, self.bias_sigma)


def count_noise(module: nn.Module) -> int:
    """Normals that one draw of the noise of all noisy layers in a module takes; 0 if there are none."""
    return sum(layer.n_noise for layer in module.modules() if isinstance(layer, NoisyLinear))


class NoiseParts:
    """One draw of a network's noise, dealt out to its layers in the order of their use.

    Args:
        noise: Normals [N or 1, n_noise of the network]; None for none.
    """

    def __init__(self, noise: Tensor | None) -> None:
        self._noise = noise
        self._used = 0

    def through(self, layers: nn.Module, x: Tensor) -> Tensor:
        """``layers(x)`` of one layer or a sequence, each noisy layer with its part."""
        for layer in layers if isinstance(layers, nn.Sequential) else [layers]:
            x = layer(x, self._next(layer.n_noise)) if isinstance(layer, NoisyLinear) else layer(x)
        return x

    def check_all_used(self) -> None:
        """Every number was for some layer.

        Raises:
            ValueError: if not.
        """
        if self._noise is not None and self._used != self._noise.shape[-1]:
            raise ValueError(f"noise: expected {self._used} numbers per sample, got {self._noise.shape[-1]}")

    def _next(self, n: int) -> Tensor | None:
        if self._noise is None:
            return None
        self._used += n
        return self._noise[..., self._used - n : self._used]


def _signed_root(x: Tensor) -> Tensor:
    return x.sign() * x.abs().sqrt()
