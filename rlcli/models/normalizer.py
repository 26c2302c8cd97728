"""Observations brought to mean 0 and deviation 1 by running statistics, which are part of the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlcli.core.tree import Tree, leaves
from rlcli.models.recurrent import OBS, has_previous
from rlcli.models.trunk import is_image

_EPS = 1e-8
"""Added to variances."""


class RunningMoments(nn.Module):
    """Mean and variance of all rows ever seen, in float64, as buffers.

    Equal to those of the rows in one array, however they were cut into batches (Chan et al. 1979).

    Args:
        shape: Of one row.
    """

    count: Tensor
    mean: Tensor
    squares: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1, dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("squares", torch.zeros(shape, dtype=torch.float64))

    @property
    def variance(self) -> Tensor:
        """Of the population; 1 while nothing was seen."""
        return torch.where(self.count > 0, self.squares / self.count.clamp(min=1), torch.ones_like(self.squares))

    @torch.no_grad()
    def add(self, rows: Tensor) -> None:
        """See some more rows, [N, *shape]; in place, for the memory may be shared with workers."""
        n = rows.shape[0]
        if not n:
            return
        rows = rows.double()
        mean = rows.mean(dim=0)
        squares = (rows - mean).square().sum(dim=0)
        total = self.count + n
        delta = mean - self.mean
        self.squares += squares + delta.square() * (self.count * n / total)
        self.mean += delta * (n / total)
        self.count.copy_(total)


class ObsNormalizer(nn.Module):
    """(obs - mean) / deviation, clipped to +-``clip``, for each element of the parts that are vectors of floats.

    Images, categories and the previous action and reward of `rlcli.envs.previous` pass as they are. `forward` changes
    nothing: only the learner shows it observations, with `observe`. Before that it only clips.

    Args:
        observation_space: Box, or a Dict (nested too).
        clip: In deviations (Henderson 2018 and all of its successors: 10).
    """

    def __init__(self, observation_space: gymnasium.Space[Any], clip: float = 10.0) -> None:
        super().__init__()
        self._clip = clip
        self._paths = list(_float_paths(observation_space))
        shapes = [shape for _, shape in self._paths]
        self.moments = nn.ModuleList([RunningMoments(shape) for shape in shapes])

    def forward(self, obs: Tree) -> Tree:
        """Observations of any leading dimensions, float32 where they were normalised."""
        for (path, _), moments in zip(self._paths, self.moments, strict=True):
            assert isinstance(moments, RunningMoments)
            obs = _replaced(obs, path, lambda leaf, m=moments: self._normal(leaf, m))
        return obs

    @torch.no_grad()
    def observe(self, obs: Tree, valid: Tensor) -> None:
        """Take the valid rows into the statistics.

        Args:
            obs: [T + 1, B, ...] as in `Samples`: those acted upon are looked at.
            valid: [T, B] bool.
        """
        found = dict(leaves(obs))
        for (path, _), moments in zip(self._paths, self.moments, strict=True):
            assert isinstance(moments, RunningMoments)
            leaf = found[".".join(path)]
            moments.add(leaf[: valid.shape[0]].to(moments.mean.device)[valid.to(moments.mean.device)])

    def _normal(self, leaf: Tensor, moments: RunningMoments) -> Tensor:
        # in float64: a mean of thousands would leave float32 few digits for the difference
        x = (leaf.double() - moments.mean) / (moments.variance + _EPS).sqrt()
        return x.clamp(-self._clip, self._clip).float()


class Through:
    """A pre-hook of a network whose first argument is an observation: it goes through a normaliser first."""

    def __init__(self, normalizer: ObsNormalizer) -> None:
        self.normalizer = normalizer

    def __call__(self, network: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """The inputs that the network sees."""
        obs, *rest = inputs
        return (self.normalizer(obs), *rest)


def without_normalizer(config: Any) -> Any:
    """A model's config that asks for no normalisation, and for all else that it asked for."""
    return replace(config, normalize_obs=False) if getattr(config, "normalize_obs", False) else config


def add_normalizer(network: nn.Module, config: Any, observation_space: gymnasium.Space[Any]) -> None:
    """Let a network that acts see observations through new statistics, if its model's config asks for them.

    The statistics become part of it as ``normalizer``, as in `rlcli.models.policy`: they are saved with its weights,
    and reach whoever acts with them. Its ``trunk`` looks through them, so that all that the network can be asked for
    (values, distributions, a recurrent state) is asked for with observations as they are. Other names stay the same.

    Args:
        network: Has a ``trunk``, whose first argument is the observation.
        config: Of the model; may lack ``normalize_obs``.
        observation_space: The environment's.
    """
    if not getattr(config, "normalize_obs", False):
        return
    normalizer = ObsNormalizer(observation_space)
    network.normalizer = normalizer
    trunk = network.trunk
    assert isinstance(trunk, nn.Module)
    _look_through(normalizer, network, [trunk])


def normalizer_of(network: nn.Module) -> ObsNormalizer | None:
    """What `add_normalizer` gave a network; None if it gave nothing."""
    normalizer = getattr(network, "normalizer", None)
    assert normalizer is None or isinstance(normalizer, ObsNormalizer)
    return normalizer


def share_normalizer(actor: nn.Module, network: nn.Module, *parts: nn.Module) -> None:
    """Let another network see observations through the actor's statistics, if it has any.

    They do not become part of it: what is saved of it has the same names with and without.

    Args:
        actor: Has the statistics.
        network: Its slow copies, see `rlcli.algos.target.Target`, share them too.
        parts: What of it is called with an observation first; none: the network itself.
    """
    normalizer = normalizer_of(actor)
    if normalizer is not None:
        _look_through(normalizer, network, parts or [network])


def _look_through(normalizer: ObsNormalizer, network: nn.Module, parts: Iterable[nn.Module]) -> None:
    for part in parts:
        part.register_forward_pre_hook(Through(normalizer))
    network.shared_by_copies = (normalizer,)  # type: ignore[assignment]  # in a tuple: not one of its modules


def _float_paths(space: gymnasium.Space[Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not path and has_previous(space):
        yield from _float_paths(space[OBS], (OBS,))  # type: ignore[index]  # a Dict space
    elif isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _float_paths(part, (*path, key))
    elif isinstance(space, spaces.Box) and space.dtype.kind == "f" and not is_image(space):
        yield path, space.shape


def _replaced(tree: Tree, path: tuple[str, ...], f: Any) -> Tree:
    """``tree`` with ``f`` of the leaf at ``path`` in its place."""
    if not path:
        return f(tree)
    return {key: _replaced(part, path[1:], f) if key == path[0] else part for key, part in tree.items()}
