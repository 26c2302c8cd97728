"""The data contract of core.samples, held by the step loop in every sampler."""

import itertools

import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete

from rlcli.core.rng import Purpose, integer_seed
from tests.probes import LivesConfig
from tests.sampler_modes import ONE_OF_EACH, batches, config
from tests.sampler_probes import SpaceAgent, TableAgent, make_setup


@pytest.mark.parametrize("mode", ONE_OF_EACH)
def test_cutting_time_into_batches_changes_nothing(mode):
    setup = make_setup(agent=TableAgent(use_step=False))
    long = batches(config(mode, 60, 3), setup, 1)[0].samples
    short = [b.samples for b in batches(config(mode, 20, 3), setup, 3)]

    assert torch.equal(long.obs[:60], torch.cat([s.obs[:20] for s in short]))
    assert torch.equal(long.reward, torch.cat([s.reward for s in short]))
    assert torch.equal(long.valid, torch.cat([s.valid for s in short]))


@pytest.mark.parametrize("reset", ["mid_batch", "between_batches"])
@pytest.mark.parametrize("mode", ONE_OF_EACH)
def test_valid_rows_hold_true_successors_and_no_pair_crosses_an_episode(mode, reset):
    n_pairs = 0
    for batch in batches(config(mode, 25, 4, reset=reset), make_setup(), 8):
        s = batch.samples
        for t, b in s.valid.nonzero().tolist():
            episode, step = s.obs[t, b, :2].tolist()
            assert [episode, step + 1, float(s.action[t, b])] == s.obs[t + 1, b, :3].tolist()
            n_pairs += 1
        assert batch.n_steps == int(s.valid.sum())
    assert n_pairs > 150


@pytest.mark.parametrize("mode", ONE_OF_EACH)
def test_each_end_is_followed_by_one_filler_row_and_then_by_the_new_episode(mode):
    s = batches(config(mode, 200, 2), make_setup(), 1)[0].samples
    ends = (s.terminated | s.truncated)[:-2].nonzero().tolist()

    assert len(ends) > 20
    for t, b in ends:
        assert [True, False, True] == s.valid[t : t + 3, b].tolist()
        assert s.obs[t + 2, b, :2].tolist() == [s.obs[t, b, 0] + 1, 0]
        assert (0.0, False, False) == (
            s.reward[t + 1, b].item(),
            s.terminated[t + 1, b].item(),
            s.truncated[t + 1, b].item(),
        )


@pytest.mark.parametrize("mode", ONE_OF_EACH)
def test_between_batches_idles_on_the_last_observation_and_starts_anew_in_the_next_batch(mode):
    got = [b.samples for b in batches(config(mode, 30, 4, reset="between_batches"), make_setup(), 6)]
    n_ends = 0
    for s, following in itertools.pairwise(got):
        for t, b in (s.terminated | s.truncated)[:-1].nonzero().tolist():
            n_ends += 1
            assert not s.valid[t + 1 :, b].any()
            assert bool((s.obs[t + 1 :, b] == s.obs[t + 1, b]).all())
            assert [s.obs[t, b, 0] + 1, 0] == following.obs[0, b, :2].tolist()
            assert bool(following.valid[0, b])
    assert n_ends >= 12


@pytest.mark.parametrize("mode", ONE_OF_EACH)
def test_recurrent_state_starts_anew_with_each_episode(mode):
    for batch in batches(config(mode, 40, 3, max_decorrelation_steps=0), make_setup(), 3):
        s = batch.samples
        expected = torch.where(s.valid, s.obs[:-1, :, 1], s.record["count"])

        assert torch.equal(expected.long(), s.record["count"])
        assert torch.equal(s.state["count"], s.record["count"][0])


@pytest.mark.parametrize("mode", ONE_OF_EACH)
def test_recurrent_state_starts_anew_after_a_lost_life(mode):
    # A life lasts 4 steps and a game 3 lives; the observation is the step of the game.
    setup = make_setup(LivesConfig(), SpaceAgent(Discrete(2), np.int64(0)))
    got = batches(config(mode, 30, 3, max_decorrelation_steps=0), setup, 2)
    n_lives = 0
    for s in (batch.samples for batch in got):
        step = s.obs[:-1, :, 0].long()
        assert torch.equal((step % 4)[s.valid], s.record["count"][s.valid])
        n_lives += int((s.terminated & (step % 12 != 11)).sum())
    assert n_lives > 20


def test_statistics_are_those_of_the_samples():
    got = batches(config("serial", 200, 3, max_decorrelation_steps=0), make_setup(), 1)[0]
    s = got.samples
    b = 1
    ends = (s.terminated | s.truncated)[:, b].nonzero().flatten().tolist()
    starts = [0, *(e + 2 for e in ends)]
    mine = [e for e in got.episodes if e.env_id == b]

    assert len(mine) == len(ends) > 10
    for start, end, episode in zip(starts, ends, mine, strict=False):
        rewards = s.reward[start : end + 1, b].double()
        assert end - start + 1 == episode.length
        assert rewards.sum().item() == episode.return_
        assert int((rewards != 0).sum()) == episode.nonzero_rewards
        discounts = 0.9 ** torch.arange(len(rewards), dtype=torch.float64)
        assert (rewards * discounts).sum().item() == pytest.approx(episode.discounted_return)


def test_env_streams_of_two_seeds_are_disjoint():
    seeds = [{integer_seed(s, Purpose.ENV, i) for i in range(100)} for s in (0, 1)]
    first, second = (batches(config("serial", 50, 4), make_setup(seed=s), 1)[0].samples for s in (0, 1))

    assert not seeds[0] & seeds[1]
    assert not torch.equal(first.obs, second.obs)


def test_envs_of_one_run_differ_from_each_other():
    s = batches(config("serial", 50, 4), make_setup(), 1)[0].samples

    assert len({s.obs[:, b].numpy().tobytes() for b in range(4)}) == 4
