"""What the Q-learning family must solve, and what it must not solve without a memory: make test-slow."""

from dataclasses import replace

import pytest

from rlcli.replay.config import UniformReplayConfig
from tests.learning_probes import CUE_DQN, CUE_MODEL, CUE_R2D1, CUE_SEQUENCES, score_of_cue
from tests.learning_runs import SEEDS, SOLVED, last_evaluations

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

MEMORY = 150
"""CartPole without velocities: a score for which a memory is needed."""


@pytest.mark.parametrize("algo", ["dqn", "cat_dqn", "rainbow", "iqn"])
def test_cartpole_is_solved_by_every_seed(algo, tmp_path):
    scores = last_evaluations([f"experiment=cartpole_{algo}"], tmp_path)

    assert min(scores.values()) >= SOLVED, scores


def test_cartpole_without_velocities_is_balanced_by_every_seed_with_a_memory(tmp_path):
    scores = last_evaluations(["experiment=cartpole_masked_r2d1"], tmp_path)

    assert min(scores.values()) >= MEMORY, scores


def test_cartpole_without_velocities_is_balanced_by_no_seed_without_a_memory(tmp_path):
    scores = last_evaluations(["experiment=cartpole_dqn", "env=cartpole_masked"], tmp_path)

    assert max(scores.values()) < MEMORY, scores


def test_a_cue_is_remembered_by_r2d1_for_every_seed():
    scores = {seed: score_of_cue(CUE_R2D1, CUE_MODEL, CUE_SEQUENCES, 1_000, seed) for seed in SEEDS}
    print(scores)

    assert min(scores.values()) >= 0.95, scores


@pytest.mark.parametrize("observe_previous", [False, True])
def test_a_cue_is_only_guessed_at_without_a_memory_for_every_seed(observe_previous):
    model = replace(CUE_MODEL, recurrent="none", observe_previous=observe_previous)
    scores = {seed: score_of_cue(CUE_DQN, model, UniformReplayConfig(size=5_000), 3_000, seed) for seed in SEEDS}
    print(scores)

    assert max(abs(score) for score in scores.values()) <= 0.3, scores
