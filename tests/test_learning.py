"""The README's first run: make test-slow."""

import pytest

from tests.learning_runs import SOLVED, last_evaluations

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def test_quickstart_solves_cartpole_for_every_one_of_five_seeds(tmp_path):
    scores = last_evaluations(["experiment=quickstart"], tmp_path, range(5))

    assert min(scores.values()) >= SOLVED, scores
