"""Files of plain trees: JSON with arrays beside it, in a zip archive. Reading one runs no code that it may hold.

A plain tree is made of dicts, lists, tuples, texts, numbers, bools, None, bytes, numpy arrays and torch tensors. It
comes back as it was: the kinds of containers, integers of any size, floats to the last bit, dtypes and shapes.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from rlcli.core.errors import SnapshotError

_TREE = "tree.json"


def write_tree(path: Path, tree: Any) -> None:
    """Write a plain tree and bring it to the disk.

    Args:
        path: The file; what was there is overwritten in place, so give a new name.
        tree: The plain tree.

    Raises:
        TypeError: Something in it is not plain; the message names where it stands.
        SnapshotError: The file system refuses.
    """
    try:
        with path.open("wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
                writer = _Writer(archive)
                text = json.dumps(writer.node(tree, ""))
                archive.writestr(_TREE, text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise SnapshotError(f"{path}: not written: {error.strerror or error}") from error


def read_tree(path: Path) -> Any:
    """The tree of a file.

    Raises:
        SnapshotError: There is no such file, or it is damaged or no file of this kind; one line.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _Reader(archive).value(json.loads(archive.read(_TREE)))
    except FileNotFoundError:
        raise SnapshotError(f"{path}: no such file") from None
    # zipfile, json and numpy raise many kinds on damaged bytes, and the reader of the message needs none of them
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0][:200]
        raise SnapshotError(f"{path}: damaged, cut short or not a file of rlcli: {reason}") from error


class _Writer:
    """Turns a tree into JSON and puts its arrays into the archive as they come, so that no second copy lies around."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._n_arrays = 0

    def node(self, value: Any, path: str) -> Any:
        """The JSON node of a value."""
        if isinstance(value, np.generic):
            return {"$scalar": self._put(np.asarray(value))}
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) is list:
            return [self.node(item, f"{path}.{i}") for i, item in enumerate(value)]
        if type(value) is tuple:
            return {"$tuple": [self.node(item, f"{path}.{i}") for i, item in enumerate(value)]}
        if isinstance(value, Mapping):
            return self._mapping(value, path)
        return self._array(value, path)

    def _mapping(self, value: Mapping[Any, Any], path: str) -> Any:
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: self.node(item, f"{path}.{key}") for key, item in value.items()}
        return {"$dict": [[self.node(k, path), self.node(v, f"{path}.{k}")] for k, v in value.items()]}

    def _array(self, value: Any, path: str) -> Any:
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return {"$array": self._put(value)}
        if isinstance(value, bytes):
            return {"$bytes": self._put(np.frombuffer(value, np.uint8))}
        if isinstance(value, Tensor):
            plain = value.detach().to("cpu").contiguous()
            # as bytes: numpy lacks some of torch's dtypes
            flat = plain.reshape(-1).view(torch.uint8).numpy() if plain.numel() else np.empty(0, np.uint8)
            return {
                "$tensor": self._put(flat),
                "dtype": str(value.dtype).removeprefix("torch."),
                "shape": [*value.shape],
            }
        raise TypeError(f"{path.lstrip('.')}: a {type(value).__name__} is not plain")

    def _put(self, array: np.ndarray[Any, Any]) -> int:
        number, self._n_arrays = self._n_arrays, self._n_arrays + 1
        with self._archive.open(f"{number}.npy", "w", force_zip64=True) as file:
            _write_npy(file, array)
        return number


class _Reader:
    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._kinds: dict[str, Callable[[Any], Any]] = {
            "$scalar": lambda node: self._get(node["$scalar"])[()],
            "$tuple": lambda node: tuple(self.value(item) for item in node["$tuple"]),
            "$dict": lambda node: {self.value(k): self.value(v) for k, v in node["$dict"]},
            "$array": lambda node: self._get(node["$array"]),
            "$bytes": lambda node: self._get(node["$bytes"]).tobytes(),
            "$tensor": self._tensor,
        }

    def value(self, node: Any) -> Any:
        """What a JSON node stands for."""
        if isinstance(node, list):
            return [self.value(item) for item in node]
        if not isinstance(node, dict):
            return node
        for key, make in self._kinds.items():
            if key in node:
                return make(node)
        return {key: self.value(item) for key, item in node.items()}

    def _get(self, number: int) -> np.ndarray[Any, Any]:
        with self._archive.open(f"{number}.npy") as file:
            return _read_npy(file)

    def _tensor(self, node: Any) -> Tensor:
        dtype = getattr(torch, node["dtype"])
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"torch has no dtype {node['dtype']}")
        flat = torch.from_numpy(self._get(node["$tensor"]))
        return flat.view(dtype).reshape(node["shape"]) if flat.numel() else torch.empty(node["shape"], dtype=dtype)


def _write_npy(file: Any, array: np.ndarray[Any, Any]) -> None:
    np.lib.format.write_array(file, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)


def _read_npy(file: BinaryIO | Any) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = np.lib.format.read_array(file, allow_pickle=False)
    if file.read(1):  # also makes zipfile compare the checksum, which it does at the end of a part
        raise ValueError("bytes after the end of an array")
    return array
