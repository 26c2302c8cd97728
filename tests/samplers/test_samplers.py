import contextlib
import itertools
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from rlcli.core.rng import Purpose, integer_seed
from rlcli.core.samples import Samples
from rlcli.core.tree import leaves, map_tree
from rlcli.envs.config import GymConfig
from rlcli.samplers.config import CpuConfig, SerialConfig
from tests.sampler_probes import TableAgent, WanderConfig, make_setup


def copy_of(samples):
    return Samples(**{f.name: map_tree(torch.clone, getattr(samples, f.name)) for f in fields(samples)})


def batches(config, setup, n):
    """Copies of ``n`` batches and all that was said of them."""
    step, out = 0, []
    with contextlib.closing(config.build(setup)) as sampler:
        for _ in range(n):
            got = sampler.collect(step)
            step += got.n_steps
            out.append(replace(got, samples=copy_of(got.samples)))
    return out


def assert_same_bytes(expected, actual):
    for field in fields(Samples):
        pairs = zip(leaves(getattr(expected, field.name)), leaves(getattr(actual, field.name)), strict=True)
        for (path, a), (_, b) in pairs:
            assert a.dtype == b.dtype
            assert a.numpy().tobytes() == b.numpy().tobytes(), f"{field.name}.{path}"


@pytest.mark.parametrize("reset", ["mid_batch", "between_batches"])
@pytest.mark.parametrize("n_workers", [1, 2, 3])
def test_cpu_gives_the_same_bytes_as_serial(reset, n_workers):
    serial = batches(SerialConfig(20, 5, max_decorrelation_steps=13, reset=reset), make_setup(), 15)
    cpu = batches(CpuConfig(20, 5, n_workers, max_decorrelation_steps=13, reset=reset), make_setup(), 15)

    assert any(bool(b.samples.terminated.any()) for b in serial)
    assert any(bool(b.samples.truncated.any()) for b in serial)
    for expected, actual in zip(serial, cpu, strict=True):
        assert_same_bytes(expected.samples, actual.samples)
        assert expected.episodes == actual.episodes
        assert expected.games == actual.games
        assert (expected.n_steps, expected.longest_running) == (actual.n_steps, actual.longest_running)


def test_cutting_time_into_batches_changes_nothing():
    setup = make_setup(agent=TableAgent(use_step=False))
    long = batches(SerialConfig(60, 3), setup, 1)[0].samples
    short = [b.samples for b in batches(SerialConfig(20, 3), setup, 3)]

    assert torch.equal(long.obs[:60], torch.cat([s.obs[:20] for s in short]))
    assert torch.equal(long.reward, torch.cat([s.reward for s in short]))
    assert torch.equal(long.valid, torch.cat([s.valid for s in short]))


@pytest.mark.parametrize("reset", ["mid_batch", "between_batches"])
def test_valid_rows_hold_true_successors_and_no_pair_crosses_an_episode(reset):
    n_pairs = 0
    for batch in batches(SerialConfig(25, 4, reset=reset), make_setup(), 8):
        s = batch.samples
        for t, b in s.valid.nonzero().tolist():
            episode, step = s.obs[t, b, :2].tolist()
            assert [episode, step + 1, float(s.action[t, b])] == s.obs[t + 1, b, :3].tolist()
            n_pairs += 1
        assert batch.n_steps == int(s.valid.sum())
    assert n_pairs > 150


def test_each_end_is_followed_by_one_filler_row_and_then_by_the_new_episode():
    s = batches(SerialConfig(200, 2), make_setup(), 1)[0].samples
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


def test_between_batches_idles_on_the_last_observation_and_starts_anew_in_the_next_batch():
    got = [b.samples for b in batches(SerialConfig(30, 4, reset="between_batches"), make_setup(), 6)]
    n_ends = 0
    for s, following in itertools.pairwise(got):
        for t, b in (s.terminated | s.truncated)[:-1].nonzero().tolist():
            n_ends += 1
            assert not s.valid[t + 1 :, b].any()
            assert bool((s.obs[t + 1 :, b] == s.obs[t + 1, b]).all())
            assert [s.obs[t, b, 0] + 1, 0] == following.obs[0, b, :2].tolist()
            assert bool(following.valid[0, b])
    assert n_ends >= 12


def test_recurrent_state_starts_anew_with_each_episode():
    for batch in batches(SerialConfig(40, 3, max_decorrelation_steps=0), make_setup(), 3):
        s = batch.samples
        expected = torch.where(s.valid, s.obs[:-1, :, 1], s.record["count"])

        assert torch.equal(expected.long(), s.record["count"])
        assert torch.equal(s.state["count"], s.record["count"][0])


def test_statistics_are_those_of_the_samples():
    got = batches(SerialConfig(200, 3, max_decorrelation_steps=0), make_setup(), 1)[0]
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
    first, second = (batches(SerialConfig(50, 4), make_setup(seed=s), 1)[0].samples for s in (0, 1))

    assert not seeds[0] & seeds[1]
    assert not torch.equal(first.obs, second.obs)


def test_envs_of_one_run_differ_from_each_other():
    s = batches(SerialConfig(50, 4), make_setup(), 1)[0].samples

    assert len({s.obs[:, b].numpy().tobytes() for b in range(4)}) == 4


@pytest.mark.parametrize("config", [SerialConfig(10, 4), CpuConfig(10, 4, 2), CpuConfig(10, 4, 3)])
def test_evaluation_plays_exactly_the_asked_games_whatever_the_workers(config):
    with contextlib.closing(SerialConfig(10, 4).build(make_setup())) as serial:
        expected = serial.evaluate(0)
    with contextlib.closing(config.build(make_setup())) as sampler:
        first = sampler.evaluate(0)
        sampler.collect(0)
        again = sampler.evaluate(0)

    assert len(first.games) == 7
    assert [3, 2, 2] == [sum(g.env_id == i for g in first.games) for i in range(3)]
    assert expected == first == again


def test_evaluation_leaves_training_as_it_was():
    config = SerialConfig(15, 3)
    without = [b.samples for b in batches(config, make_setup(), 4)]
    step = 0
    with contextlib.closing(config.build(make_setup())) as sampler:
        for expected in without:
            sampler.evaluate(step)
            got = sampler.collect(step)
            step += got.n_steps
            assert_same_bytes(expected, got.samples)


def test_evaluation_cap_reports_the_games_it_cut():
    with contextlib.closing(SerialConfig(5, 2).build(make_setup(eval_max_steps=3 * 4))) as sampler:
        result = sampler.evaluate(0)

    assert len(result.games) < 7
    assert 1 <= len(result.cut_scores) <= 3
    assert result.n_steps <= 12


@pytest.mark.parametrize("n_envs", [1, 4, 8])
def test_evaluation_does_not_favour_short_games(n_envs):
    from tests.sampler_probes_parity import ParityConfig

    config = ParityConfig()
    setup = make_setup(config, eval_n_envs=n_envs, eval_n_episodes=4 * n_envs, eval_max_steps=10**6)
    with contextlib.closing(SerialConfig(5, 2).build(setup)) as sampler:
        scores = [game.score for game in sampler.evaluate(0).games]

    assert np.mean(scores) == 100.0


def test_cartpole_network_gives_the_same_within_rounding():
    from rlcli.agents.categorical import CategoricalAgent
    from rlcli.models.config import AutoModelConfig
    from rlcli.models.heads import PolicyValueNetwork

    def setup():
        torch.manual_seed(0)
        base = make_setup(GymConfig("CartPole-v1"))
        trunk = AutoModelConfig().build(base.spec.observation_space)
        return replace(base, agent=CategoricalAgent(PolicyValueNetwork(trunk, 2)))

    serial = batches(SerialConfig(60, 5), setup(), 5)
    cpu = batches(CpuConfig(60, 5, 2), setup(), 5)

    for expected, actual in zip(serial, cpu, strict=True):
        assert torch.equal(expected.samples.action, actual.samples.action)
        torch.testing.assert_close(expected.samples.obs, actual.samples.obs, atol=1e-6, rtol=0)
        torch.testing.assert_close(expected.samples.record["value"], actual.samples.record["value"], atol=1e-6, rtol=0)


def test_observations_are_copied_at_the_border():
    s = batches(SerialConfig(20, 2), make_setup(WanderConfig()), 1)[0].samples

    assert len(set(s.obs[:, 0, 3].tolist())) > 5
