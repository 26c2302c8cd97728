"""Evaluation: exactly the asked games, with the newest weights, in every sampler."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from rlcli.core.errors import EnvError
from rlcli.core.spec import Step
from rlcli.samplers.evaluation import build_evaluator
from tests.sampler_modes import ALL, ONE_OF_EACH, config
from tests.sampler_probes import TableAgent, WeightAgent, make_setup
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


@pytest.mark.parametrize("mode", ["serial", "cpu of 2", "gpu of 2", "async gpu of 2"])
def test_environments_share_the_games_equally_where_that_can_be(mode):
    setup = make_setup(eval_n_envs=4, eval_n_episodes=9)
    with contextlib.closing(config(mode, 5, 2).build(setup)) as sampler:
        games = sampler.evaluate(0).games

    assert [3, 3, 3, 0] == [sum(game.env_id == i for game in games) for i in range(4)]


class CameraEnv:
    """Three envs with a camera of floats and a screen of bytes; one number turns bad after some steps.

    Args:
        spec: Any, but for the observations.
        row: In which of its steps, from 1; 0: in the reset.
        b: Of which env.
        place: Where in its camera; None: in the reward.
        value: The bad number.
    """

    def __init__(self, spec, row, b=1, place=3, value=np.nan):
        example = {"camera": np.zeros(4, np.float32), "screen": np.zeros((2, 2), np.uint8)}
        self.spec, self.env_ids, self.t = replace(spec, example_obs=example), (0, 1, 2), 0
        self.row, self.b, self.place, self.value = row, b, place, value

    def reset(self, obs_out, seed=None):
        self.show(obs_out)

    def send(self, action, autoreset=True):
        self.t += 1

    def recv(self, obs_out):
        self.show(obs_out)
        ended, no = np.array([self.t % 2 == 0] * 3), np.zeros(3, bool)
        reward = np.ones(3, np.float32)
        if self.t == self.row and self.place is None:
            reward[self.b] = self.value
        return Step(reward, np.ones(3), terminated=ended, truncated=no, ended=ended, valid=~no)

    def show(self, obs_out):
        if self.t == self.row and self.place is not None:
            obs_out["camera"][self.b, self.place] = self.value


class ZeroAgent(TableAgent):
    """Takes any observation."""

    def act(self, obs, state, uniforms, *, env_ids, step, explore):
        return super().act(torch.zeros(len(env_ids), 1), state, uniforms, env_ids=env_ids, step=step, explore=explore)


def camera_evaluator(*args, **kwargs):
    setup = make_setup(agent=ZeroAgent(), eval_n_envs=3, eval_n_episodes=3)
    return build_evaluator(setup, CameraEnv(setup.spec, *args, **kwargs))


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"row": 0}, "evaluation env 1, step 0: obs.camera[3] is nan, must be finite"),
        ({"row": 2}, "evaluation env 1, step 2: obs.camera[3] is nan, must be finite"),
        ({"row": 1, "b": 2, "value": -np.inf}, "evaluation env 2, step 1: obs.camera[3] is -inf, must be finite"),
        ({"row": 2, "place": None, "value": np.inf}, "evaluation env 1, step 2: reward is inf, must be finite"),
        ({"row": 4}, "evaluation env 1, step 4: obs.camera[3] is nan, must be finite"),  # in the second evaluation
    ],
)
def test_number_that_is_not_finite_ends_an_evaluation_by_its_place_and_the_envs_own_step(env, told):
    evaluator = camera_evaluator(**env)
    with pytest.raises(EnvError) as caught:
        [evaluator.evaluate(0) for _ in range(2)]

    assert told == str(caught.value)


def test_observations_of_whole_numbers_are_not_looked_at(monkeypatch):
    isfinite, seen = np.isfinite, set()
    monkeypatch.setattr(np, "isfinite", lambda leaf: seen.add(leaf.shape) or isfinite(leaf))
    camera_evaluator(row=99).evaluate(0)

    assert {(3,), (3, 4)} == seen  # reward and camera


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
