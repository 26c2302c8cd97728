"""Distributions of actions: what the numbers of a policy network mean.

One interface for every action space. The numbers of a policy come as one row [N, n_params]: first ``n_outputs`` that
depend on the observation, then ``n_constants`` that do not (a standard deviation shared by all states). `sample` is the
inverse of the cumulative distribution, so that uniforms are all its randomness.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from gymnasium import spaces
from torch import Tensor

from rlcli.core.errors import ConfigError
from rlcli.core.tree import Tree

_SMALLEST, _LARGEST = 2.0**-54, 1.0 - 2.0**-53
"""Uniforms nearest to 0 and 1 of which the normal quantile is finite in float64."""


class ActionDistribution(Protocol):
    """A distribution over one action, whose parameters come in rows."""

    n_outputs: int
    """Numbers that depend on the observation."""
    n_constants: int
    """Numbers that do not, behind the others."""
    n_uniforms: int
    """Uniforms that one sample takes."""

    def sample(self, params: Tensor, uniforms: Tensor) -> Tree:
        """Actions [N, ...] of params [N, n_params] and uniforms [N, n_uniforms], float64 in [0, 1)."""

    def mode(self, params: Tensor) -> Tree:
        """The likeliest actions [N, ...], the first of equal ones."""

    def log_prob(self, params: Tensor, action: Tree) -> Tensor:
        """Logarithm of the probability, or density, of actions: [N]."""

    def entropy(self, params: Tensor) -> Tensor:
        """Entropy (differential for continuous actions), nats: [N]."""

    def kl(self, params: Tensor, other: Tensor) -> Tensor:
        """Kullback-Leibler divergence of the distribution of ``params`` from that of ``other``, nats: [N]."""


class Categorical:
    """One of n actions, int64; the params are unnormalised log-probabilities.

    Args:
        n: Number of actions.
    """

    n_constants = 0
    n_uniforms = 1

    def __init__(self, n: int) -> None:
        self.n_outputs = n

    def sample(self, params: Tensor, uniforms: Tensor) -> Tensor:
        """[N] int64."""
        return _drawn(params, uniforms[:, :1])

    def mode(self, params: Tensor) -> Tensor:
        """[N] int64."""
        return params.argmax(dim=-1)

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        """[N]."""
        return params.log_softmax(dim=-1).gather(-1, action[:, None]).squeeze(-1)

    def entropy(self, params: Tensor) -> Tensor:
        """[N]; a log-probability of -inf (a forbidden action) adds 0."""
        log_p = params.log_softmax(dim=-1)
        return -(log_p.exp() * _finite(log_p)).sum(dim=-1)

    def kl(self, params: Tensor, other: Tensor) -> Tensor:
        """[N]."""
        log_p, log_q = params.log_softmax(dim=-1), other.log_softmax(dim=-1)
        return (log_p.exp() * (_finite(log_p) - _finite(log_q))).sum(dim=-1)


class MultiCategorical:
    """Several independent choices, the k-th of ``sizes[k]``; the params are their logits one after another.

    Args:
        sizes: Number of actions of each choice.
        shape: Shape of one action, of ``len(sizes)`` elements.
        dtype: Of an action.
    """

    n_constants = 0

    def __init__(self, sizes: Sequence[int], shape: Sequence[int], dtype: torch.dtype = torch.int64) -> None:
        if math.prod(shape) != len(sizes):
            raise ValueError(f"shape: {tuple(shape)} has not {len(sizes)} elements")
        self._parts = [Categorical(int(n)) for n in sizes]
        self._sizes = [int(n) for n in sizes]
        self._shape, self._dtype = tuple(shape), dtype
        self.n_outputs = sum(self._sizes)
        self.n_uniforms = len(self._sizes)

    def sample(self, params: Tensor, uniforms: Tensor) -> Tensor:
        """[N, *shape]."""
        logits = torch.split(params, self._sizes, dim=-1)
        return self._joined([_drawn(x, uniforms[:, k : k + 1]) for k, x in enumerate(logits)])

    def mode(self, params: Tensor) -> Tensor:
        """[N, *shape]."""
        return self._joined([x.argmax(dim=-1) for x in torch.split(params, self._sizes, dim=-1)])

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        """[N], the sum over the choices."""
        columns = action.reshape(action.shape[0], -1).to(torch.int64).unbind(1)
        parts = zip(self._parts, torch.split(params, self._sizes, dim=-1), columns, strict=True)
        return _sum([part.log_prob(x, column) for part, x, column in parts])

    def entropy(self, params: Tensor) -> Tensor:
        """[N], the sum over the choices."""
        parts = zip(self._parts, torch.split(params, self._sizes, dim=-1), strict=True)
        return _sum([part.entropy(x) for part, x in parts])

    def kl(self, params: Tensor, other: Tensor) -> Tensor:
        """[N], the sum over the choices."""
        parts = zip(
            self._parts, torch.split(params, self._sizes, dim=-1), torch.split(other, self._sizes, dim=-1), strict=True
        )
        return _sum([part.kl(x, y) for part, x, y in parts])

    def _joined(self, columns: list[Tensor]) -> Tensor:
        return torch.stack(columns, dim=1).reshape(-1, *self._shape).to(self._dtype)


class DiagonalGaussian:
    """Independent normal distributions, without bounds; the params are the means, then the log standard deviations.

    Args:
        shape: Shape of one action.
        state_dependent: Whether the standard deviations are outputs of the network as the means are; else they are
            the same for all observations.
        tanh_mean: Whether the params hold the inverse hyperbolic tangents of the means.
    """

    def __init__(self, shape: Sequence[int], *, state_dependent: bool = False, tanh_mean: bool = False) -> None:
        self._shape = tuple(shape)
        self._n = math.prod(shape)
        self.n_outputs = 2 * self._n if state_dependent else self._n
        self.n_constants = 0 if state_dependent else self._n
        self.n_uniforms = self._n
        self._tanh_mean = tanh_mean

    def sample(self, params: Tensor, uniforms: Tensor) -> Tensor:
        """[N, *shape] in the dtype of the params."""
        mean, log_std = self._split(params)
        noise = torch.special.ndtri(uniforms[:, : self._n].double().clamp(_SMALLEST, _LARGEST))
        return self._shaped((mean.double() + log_std.double().exp() * noise).to(params.dtype))

    def mode(self, params: Tensor) -> Tensor:
        """The means [N, *shape]."""
        return self._shaped(self._split(params)[0])

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        """[N] log density, the sum over the dimensions."""
        mean, log_std = self._split(params)
        z = (action.reshape(action.shape[0], -1) - mean) * (-log_std).exp()
        return (-0.5 * z.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(dim=-1)

    def entropy(self, params: Tensor) -> Tensor:
        """[N], the sum over the dimensions of log(std) + log(2 pi e) / 2."""
        return (self._split(params)[1] + 0.5 * math.log(2 * math.pi * math.e)).sum(dim=-1)

    def kl(self, params: Tensor, other: Tensor) -> Tensor:
        """[N], the sum over the dimensions."""
        (mean, log_std), (other_mean, other_log_std) = self._split(params), self._split(other)
        ratio = (2 * (log_std - other_log_std)).exp()
        distance = (mean - other_mean).square() * (-2 * other_log_std).exp()
        return (other_log_std - log_std + 0.5 * (ratio + distance - 1)).sum(dim=-1)

    def _split(self, params: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = params[..., : self._n], params[..., self._n :]
        return (mean.tanh() if self._tanh_mean else mean), log_std

    def _shaped(self, x: Tensor) -> Tensor:
        return x.reshape(-1, *self._shape)


class Composite:
    """A dict of independent parts; log-probabilities, entropies and divergences are their sums.

    Args:
        parts: By the keys of the action, in the order of the params.
    """

    def __init__(self, parts: Mapping[str, ActionDistribution]) -> None:
        self._parts = dict(parts)
        self.n_outputs = sum(part.n_outputs for part in self._parts.values())
        self.n_constants = sum(part.n_constants for part in self._parts.values())
        self.n_uniforms = sum(part.n_uniforms for part in self._parts.values())

    def sample(self, params: Tensor, uniforms: Tensor) -> Tree:
        """A dict of [N, ...]."""
        stops = list(itertools.accumulate((part.n_uniforms for part in self._parts.values()), initial=0))
        cut = [uniforms[:, a:b] for a, b in itertools.pairwise(stops)]
        parts = zip(self._parts.items(), self._split(params), cut, strict=True)
        return {key: part.sample(x, u) for (key, part), x, u in parts}

    def mode(self, params: Tensor) -> Tree:
        """A dict of [N, ...]."""
        parts = zip(self._parts.items(), self._split(params), strict=True)
        return {key: part.mode(x) for (key, part), x in parts}

    def log_prob(self, params: Tensor, action: Tree) -> Tensor:
        """[N]."""
        parts = zip(self._parts.items(), self._split(params), strict=True)
        return _sum([part.log_prob(x, action[key]) for (key, part), x in parts])

    def entropy(self, params: Tensor) -> Tensor:
        """[N]."""
        parts = zip(self._parts.values(), self._split(params), strict=True)
        return _sum([part.entropy(x) for part, x in parts])

    def kl(self, params: Tensor, other: Tensor) -> Tensor:
        """[N]."""
        parts = zip(self._parts.values(), self._split(params), self._split(other), strict=True)
        return _sum([part.kl(x, y) for part, x, y in parts])

    def _split(self, params: Tensor) -> list[Tensor]:
        """Each part's own row: its outputs, then its constants."""
        outputs = torch.split(params[..., : self.n_outputs], [p.n_outputs for p in self._parts.values()], dim=-1)
        constants = torch.split(params[..., self.n_outputs :], [p.n_constants for p in self._parts.values()], dim=-1)
        return [torch.cat(pair, dim=-1) for pair in zip(outputs, constants, strict=True)]


def distribution_for(space: Any, *, state_dependent_std: bool = False, tanh_mean: bool = False) -> ActionDistribution:
    """The distribution over the actions of a space.

    Args:
        space: Discrete, MultiDiscrete, MultiBinary, a Box of floats, or a Dict or Tuple of these (nested too).
        state_dependent_std: See `DiagonalGaussian`.
        tanh_mean: See `DiagonalGaussian`.

    Raises:
        ConfigError: Another space.
    """
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategorical(space.nvec.flatten().tolist(), space.nvec.shape)
    if isinstance(space, spaces.MultiBinary):
        return MultiCategorical([2] * math.prod(space.shape), space.shape, torch.int8)
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        return DiagonalGaussian(space.shape, state_dependent=state_dependent_std, tanh_mean=tanh_mean)
    if isinstance(space, spaces.Dict | spaces.Tuple):
        how = {"state_dependent_std": state_dependent_std, "tanh_mean": tanh_mean}
        return Composite({key: distribution_for(part, **how) for key, part in space_parts(space)})
    raise ConfigError(f"env: no distribution for actions of {space}")


def space_parts(space: Any) -> list[tuple[str, Any]]:
    """The parts of a Dict or Tuple space with their names inside the program: those of a Tuple are "0", "1" ..."""
    if isinstance(space, spaces.Dict):
        return list(space.spaces.items())
    return [(str(i), part) for i, part in enumerate(space.spaces)]


def _drawn(logits: Tensor, uniform: Tensor) -> Tensor:
    """Index [N] where the cumulative distribution passes ``uniform`` [N, 1]."""
    cumulative = logits.double().softmax(dim=-1).cumsum(dim=-1)
    # The last sum may fall short of 1 by rounding: a draw above it belongs to the last action.
    return (cumulative <= uniform).sum(dim=-1).clamp_max_(logits.shape[-1] - 1)


def _finite(log_p: Tensor) -> Tensor:
    """0 * -inf would be nan."""
    return log_p.clamp(min=torch.finfo(log_p.dtype).min)


def _sum(terms: list[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
