"""How an evaluation's games are shared out: by hand, and what it is for."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest

from rlcli.samplers.evaluation import quotas
from rlcli.samplers.quota import fair_n_envs
from tests.sampler_modes import config
from tests.sampler_probes import make_setup
from tests.sampler_probes_parity import ParityConfig


@pytest.mark.parametrize(
    ("expected", "n_envs", "n_episodes"),
    [
        (5, 8, 20),  # 4 each; all 8 would play 3, 3, 3, 3, 2, 2, 2, 2
        (4, 4, 20),  # 5 each; 3 would be uneven, and 2 are not more than half
        (8, 8, 16),
        (5, 6, 10),  # 2 each
        (1, 1, 20),
        (3, 8, 3),  # never more environments than games
        (3, 4, 9),  # equal, though odd
        (6, 8, 12),
        (8, 8, 11),  # a prime number of games cannot be shared out equally
        (1, 4, 1),
    ],
)
def test_so_many_environments_play(expected, n_envs, n_episodes):
    assert expected == fair_n_envs(n_envs, n_episodes)


def test_the_number_is_in_bounds_and_more_than_half_play_for_every_size():
    for n_envs in range(1, 40):
        for n_episodes in range(1, 80):
            n = fair_n_envs(n_envs, n_episodes)
            most = min(n_envs, n_episodes)
            assert most / 2 < n <= most
            assert n_episodes == sum(quotas(n_episodes, n))
            if any(n_episodes % k == 0 for k in range(most // 2 + 1, most + 1)):
                assert 1 == len(set(quotas(n_episodes, n)))


@pytest.mark.parametrize("n_envs", [1, 8])
def test_twenty_games_short_and_long_by_turns_have_their_true_mean(n_envs):
    setup = make_setup(ParityConfig(), eval_n_envs=n_envs, eval_n_episodes=20, eval_max_steps=10**6)
    setup = replace(setup, eval_n_envs=fair_n_envs(n_envs, 20))
    with contextlib.closing(config("serial", 5, 2).build(setup)) as sampler:
        scores = [game.score for game in sampler.evaluate(0).games]

    assert (20, 100.0) == (len(scores), np.mean(scores))
