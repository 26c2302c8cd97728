"""Learning runs of minutes for continuous actions: make test-slow."""

import pytest

import rlcli
from tests.test_learning import last_evaluation

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("algo", ["ddpg", "td3", "sac", "sac_v"])
def test_pendulum_is_swung_up_within_20_000_steps_for_every_seed(tmp_path, algo):
    scores = [
        last_evaluation(rlcli.train([f"experiment=pendulum_{algo}", f"seed={seed}", f"run_dir={tmp_path}/{seed}"]))
        for seed in range(3)
    ]

    assert all(score >= -200 for score in scores), scores
