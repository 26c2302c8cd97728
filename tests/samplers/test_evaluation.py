"""Evaluation: exactly the asked games, with the newest weights, in every sampler."""

import contextlib

import numpy as np
import pytest

from rlcli.core.spec import Step
from rlcli.samplers.evaluation import build_evaluator
from tests.sampler_modes import ALL, ONE_OF_EACH, config
from tests.sampler_probes import WeightAgent, make_setup
from tests.sampler_probes_parity import ParityConfig
from tests.space_probes import CountedConfig


@pytest.mark.parametrize("mode", ALL)
def test_evaluation_plays_exactly_the_asked_games_whatever_the_workers(mode):
    with contextlib.closing(config(mode, 10, 4).build(make_setup())) as sampler:
        first = sampler.evaluate(0)
        sampler.collect(0)
        again = sampler.evaluate(0)

    assert len(first.games) == 7
    assert [3, 2, 2] == [sum(g.env_id == i for g in first.games) for i in range(3)]
    assert first == again


@pytest.mark.parametrize("mode", ONE_OF_EACH)
def test_evaluation_acts_with_the_weights_published_last(mode, tmp_path):
    # A game lasts 20 steps and its reward is the action, which is the weight (modulo 3).
    agent = WeightAgent()
    setup = make_setup(CountedConfig(str(tmp_path / "steps")), agent, eval_n_episodes=2, eval_n_envs=2)
    with contextlib.closing(config(mode, 5, 4).build(setup)) as sampler:
        for weight in (2, 0, 1):
            sampler.collect(0)
            agent.weight[0] = weight
            sampler.publish()
            assert [20.0 * weight] * 2 == [game.score for game in sampler.evaluate(0).games]


def test_evaluation_cap_reports_the_games_it_cut():
    with contextlib.closing(config("serial", 5, 2).build(make_setup(eval_max_steps=3 * 4))) as sampler:
        result = sampler.evaluate(0)

    assert len(result.games) < 7
    assert 1 <= len(result.cut_scores) <= 3
    assert result.n_steps <= 12


@pytest.mark.parametrize("n_envs", [1, 4, 8])
def test_evaluation_does_not_favour_short_games(n_envs):
    setup = make_setup(ParityConfig(), eval_n_envs=n_envs, eval_n_episodes=4 * n_envs, eval_max_steps=10**6)
    with contextlib.closing(config("serial", 5, 2).build(setup)) as sampler:
        scores = [game.score for game in sampler.evaluate(0).games]

    assert np.mean(scores) == 100.0


class RestlessEnv:
    """Env 0 ends a game in each step, though told to idle, as one that was lost with its worker; env 1 after ten."""

    def __init__(self, spec):
        self.spec, self.env_ids, self.t = spec, (0, 1), 0

    def reset(self, obs_out, seed=None):
        obs_out[:] = 0

    def send(self, action, autoreset=True):
        self.t += 1

    def recv(self, obs_out):
        ended, no = np.array([True, self.t == 10]), np.zeros(2, bool)
        return Step(np.ones(2, np.float32), np.ones(2), terminated=ended, truncated=no, ended=ended, valid=~no)


def test_games_beyond_an_envs_share_do_not_count_and_do_not_keep_the_evaluation_going():
    setup = make_setup(eval_n_envs=2, eval_n_episodes=2)
    found = build_evaluator(setup, RestlessEnv(setup.spec)).evaluate(0)

    assert [(0, 1), (1, 10)] == [(game.env_id, game.length) for game in found.games]
    assert ([], 11) == (found.cut_scores, found.n_steps)
