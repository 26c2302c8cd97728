"""What the configs of all algorithms that learn from replay share."""

from __future__ import annotations


def learning_notes(min_steps_learn: int, n_steps: int) -> list[str]:
    """Lines worth telling before a run of ``n_steps`` whose first gradient step is after ``min_steps_learn``."""
    if min_steps_learn < n_steps:
        return []
    return [f"nothing will be learned: algo.min_steps_learn={min_steps_learn:,} >= n_steps={n_steps:,}"]
