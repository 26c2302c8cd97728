"""The random states of the process, for what draws from them: libraries, a user's algorithm, dropout."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def state() -> dict[str, Any]:
    """The states of Python, numpy and torch, its GPUs included; plain."""
    name, key, position, has_gauss, gauss = np.random.get_state(legacy=True)
    return {
        "python": random.getstate(),
        "numpy": (name, np.asarray(key), position, has_gauss, gauss),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def load_state(given: Mapping[str, Any]) -> None:
    """Go on from there; a GPU that the other machine did not have keeps its own state."""
    random.setstate(given["python"])
    np.random.set_state(given["numpy"])
    torch.set_rng_state(given["torch"])
    if torch.cuda.is_available():
        for device, gpu_state in enumerate(given["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(gpu_state, device)
