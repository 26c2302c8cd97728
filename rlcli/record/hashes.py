"""Fingerprints of what a run did: by them `rlcli verify` finds where a second run parts from the first."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcli.core.samples import Samples
from rlcli.core.tree import leaves

FILE = "hashes.jsonl"
_FIELDS = ("obs", "action", "reward", "terminated", "truncated", "valid", "record", "state")
_HEX = 12


def weights_hash(weights: Mapping[str, Tensor]) -> int:
    """The first 48 bits of the SHA-256 of all weights, by name: an integer that a float holds exactly."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode())
        # as bytes: numpy lacks some of torch's dtypes
        digest.update(weights[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return int(digest.hexdigest()[:_HEX], 16)


@dataclass(frozen=True)
class Fingerprint:
    """One iteration."""

    itr: int
    step: int
    """Env steps done after it."""
    samples: Mapping[str, Sequence[str]]
    """Dotted path of a tensor -> one hash for each environment."""
    weights: int
    """After the update."""


def fingerprint(itr: int, step: int, samples: Samples, weights: Mapping[str, Tensor]) -> Fingerprint:
    """The hashes of one iteration, taken after its update."""
    found: dict[str, list[str]] = {}
    for field in _FIELDS:
        for path, leaf in leaves(getattr(samples, field), field):
            array = leaf.detach().cpu().numpy()
            by_env = array if field == "state" else np.moveaxis(array, 1, 0)
            found[path] = [hashlib.sha256(_bytes(np.ascontiguousarray(env))).hexdigest()[:_HEX] for env in by_env]
    return Fingerprint(itr, step, found, weights_hash(weights))


class HashLog:
    """hashes.jsonl: a fingerprint for each of the first iterations.

    Args:
        folder: The run folder.
        n_iterations: How many; 0: none, and no file.
    """

    def __init__(self, folder: Path, n_iterations: int) -> None:
        self._path, self.n_iterations = folder / FILE, n_iterations

    def add(self, itr: int, step: int, samples: Samples, weights: Mapping[str, Tensor]) -> None:
        """Write a line if the iteration is one of the first."""
        if itr > self.n_iterations:
            return
        with self._path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(_line(fingerprint(itr, step, samples, weights)))

    def cut(self, itr: int) -> None:
        """Drop what came after iteration ``itr``, from which the run goes on, and a line that was not finished."""
        if not self._path.exists():
            return
        kept = [entry for entry in read_hashes(self._path.parent) if entry.itr <= itr]
        temporary = self._path.with_name(f".{FILE}.{os.getpid()}.tmp")
        temporary.write_text("".join(_line(entry) for entry in kept), encoding="utf-8", newline="\n")
        temporary.replace(self._path)


def read_hashes(folder: Path) -> list[Fingerprint]:
    """The fingerprints in a run folder, in order; empty if there are none. A line cut short is left out."""
    found = []
    path = folder / FILE
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        try:
            entry: dict[str, Any] = json.loads(line)
            found.append(Fingerprint(entry["itr"], entry["step"], entry["samples"], entry["weights"]))
        except (ValueError, KeyError, TypeError):
            break
    return found


def first_difference(before: Fingerprint, now: Fingerprint) -> str:
    """Where two fingerprints of one iteration differ first, in words; empty if they do not."""
    if before.samples.keys() != now.samples.keys():
        return f"tensors: {', '.join(sorted(before.samples))} then, {', '.join(sorted(now.samples))} now"
    for path, hashes in before.samples.items():
        if len(hashes) != len(now.samples[path]):
            return f"{path}: {len(hashes)} environments then, {len(now.samples[path])} now"
    n_envs = len(next(iter(before.samples.values()), []))
    for env_id in range(n_envs):
        for path, hashes in before.samples.items():
            if hashes[env_id] != now.samples[path][env_id]:
                return f"env {env_id}, {path}"
    if before.weights != now.weights:
        return "the weights after the update"
    return ""


def _line(entry: Fingerprint) -> str:
    fields = {"itr": entry.itr, "step": entry.step, "weights": entry.weights, "samples": entry.samples}
    return json.dumps(fields) + "\n"


def _bytes(array: Any) -> Any:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
