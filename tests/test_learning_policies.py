"""Learning runs of A2C's and PPO's reference configurations, minutes each: make test-slow."""

import pytest

from tests.learning_runs import SOLVED, last_evaluations

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("experiment", ["cartpole_a2c", "cartpole_ppo", "cartpole_masked_ppo_lstm"])
def test_cartpole_is_solved_by_every_seed(experiment, tmp_path):
    scores = last_evaluations([f"experiment={experiment}"], tmp_path)

    assert min(scores.values()) >= SOLVED, scores


def test_velocities_cannot_be_told_without_a_memory(tmp_path):
    words = ["experiment=cartpole_masked_ppo_lstm", "model.recurrent=none", "n_steps=50000"]
    scores = last_evaluations(words, tmp_path)

    assert max(scores.values()) < 300, scores
