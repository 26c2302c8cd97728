"""Trees of tensors: a tensor, a dict of trees, or None for nothing. The only place that walks one.

Leaves are torch tensors or numpy arrays; the functions that need one kind say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import torch

Tree: TypeAlias = Any
"""Tensor | dict[str, Tree] | None. Written Any because a recursive type would need a cast at every use."""


def map_tree(f: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """``f`` of each leaf, with the leaves at the same place in ``others``."""
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        return {k: map_tree(f, v, *(o[k] for o in others)) for k, v in tree.items()}
    return f(tree, *others)


def leaves(tree: Tree, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, leaf) in the order of the keys; the path of a bare leaf is ``path`` itself."""
    if tree is None:
        return
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from leaves(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, tree


def index(tree: Tree, key: Any) -> Tree:
    """``leaf[key]`` of each leaf: views where the library gives views."""
    return map_tree(lambda leaf: leaf[key], tree)


def write(tree: Tree, key: Any, values: Tree) -> None:
    """``leaf[key] = value`` for each leaf."""

    def put(leaf: Any, value: Any) -> None:
        leaf[key] = value

    map_tree(put, tree, values)


def to(tree: Tree, device: torch.device | str) -> Tree:
    """The same tree of tensors on ``device``; nothing is copied if it lies there already."""
    return map_tree(lambda leaf: leaf.to(device), tree)


def as_numpy(tree: Tree) -> Tree:
    """Numpy views of CPU tensors, on the same memory."""
    return map_tree(lambda leaf: leaf.numpy(), tree)


def as_torch(tree: Tree) -> Tree:
    """Tensors on the memory of numpy arrays."""
    import torch  # here, so that config modules may walk trees without loading it

    return map_tree(torch.as_tensor, tree)


def flatten_leading(tree: Tree) -> Tree:
    """[T, B, ...] leaves as [T * B, ...]."""
    return map_tree(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tree)
