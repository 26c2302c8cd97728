"""Learning runs of minutes for continuous actions: make test-slow."""

import pytest

from tests.learning_runs import last_evaluations

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("algo", ["ddpg", "td3", "sac", "sac_v"])
def test_pendulum_is_swung_up_within_20_000_steps_for_every_seed(tmp_path, algo):
    scores = last_evaluations([f"experiment=pendulum_{algo}"], tmp_path)

    assert min(scores.values()) >= -200, scores
