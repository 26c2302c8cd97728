"""What one sampler saved goes on in any other; where it cannot, all begin anew in the same way."""

import contextlib
import os
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import torch

from rlcli.core.errors import EnvError, InexactError, WorkerError
from rlcli.core.rng import Purpose, integer_seed
from rlcli.core.tree import map_tree
from rlcli.record.tree_file import read_tree, write_tree
from rlcli.samplers import crew
from tests.record.test_tree_file import as_text
from tests.sampler_modes import assert_same_bytes, config, copy_of
from tests.sampler_probes import WanderConfig, WanderEnv, make_setup

SHAPE = {"batch_T": 8, "batch_B": 5, "max_decorrelation_steps": 9}
"""Neither two halves nor two workers divide 5 environments; episodes last up to 11 steps."""
MODES = ("serial", "cpu of 1", "cpu of 2", "cpu of 3", "gpu of 1", "gpu of 3", "alternating of 1", "alternating of 2")
ONE_OF_EACH = ("serial", "cpu of 2", "gpu of 2", "alternating of 2")
RESETS = ("mid_batch", "between_batches")


def built(mode, setup=None, **options):
    return contextlib.closing(config(mode, **SHAPE | options).build(setup or make_setup()))


def collect(sampler, n, step=0):
    """Copies of the next batches."""
    batches = []
    for _ in range(n):
        got = sampler.collect(step)
        step += got.n_steps
        batches.append(replace(got, samples=copy_of(got.samples)))
    return batches


def steps_of(batches):
    return sum(batch.n_steps for batch in batches)


def assert_same(expected, actual):
    """Samples and statistics."""
    for a, b in zip(expected, actual, strict=True):
        assert_same_bytes(a.samples, b.samples)
        assert (a.n_steps, a.episodes, a.games, a.longest_running) == (
            b.n_steps,
            b.episodes,
            b.games,
            b.longest_running,
        )


@cache
def whole(reset):
    """Eight batches of the serial sampler, which nobody saved."""
    with built("serial", reset=reset) as sampler:
        return collect(sampler, 8)


@cache
def saved(mode, reset):
    """What was collected to the third batch and after a save, and the save."""
    with built(mode, reset=reset) as sampler:
        before = collect(sampler, 3)
        state = sampler.state()
        return before + collect(sampler, 5, steps_of(before)), state


# exact


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("mode", MODES)
def test_a_save_changes_nothing(mode, reset):
    assert_same(whole(reset), saved(mode, reset)[0])


@pytest.mark.parametrize("mode", MODES[1:])
def test_every_sampler_saves_what_serial_saves(mode):
    assert as_text(saved("serial", "mid_batch")[1]) == as_text(saved(mode, "mid_batch")[1])


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("mode", MODES)
def test_every_sampler_goes_on_from_a_file_as_if_it_had_never_stopped(tmp_path, mode, reset):
    for source in ("serial", "cpu of 2"):  # where environments idle, the one resets them later than the other
        write_tree(tmp_path / "state.tree", saved(source, reset)[1])
        with built(mode, reset=reset) as sampler:
            sampler.load_state(read_tree(tmp_path / "state.tree"))

            assert_same(whole(reset)[3:], collect(sampler, 5, steps_of(whole(reset)[:3])))


def test_a_save_before_the_first_batch_goes_on_too():
    with built("serial") as one, built("cpu of 2") as other:
        other.load_state(one.state())

        assert_same(whole("mid_batch"), collect(other, 8))


@pytest.mark.parametrize("mode", ONE_OF_EACH)
def test_a_sampler_that_has_done_other_things_goes_on_as_well(mode):
    with built(mode, make_setup(seed=0)) as sampler:
        collect(sampler, 2)
        sampler.load_state(saved("gpu of 3", "mid_batch")[1])

        assert_same(whole("mid_batch")[3:], collect(sampler, 5, steps_of(whole("mid_batch")[:3])))


@pytest.mark.parametrize("mode", ONE_OF_EACH)
def test_recurrent_state_is_carried_into_an_episode_that_runs(mode):
    _, state = saved("serial", "mid_batch")
    carried = np.array([each["carry"]["count"] for each in state])
    with built(mode) as sampler:
        sampler.load_state(state)
        (first,) = collect(sampler, 1, steps_of(whole("mid_batch")[:3]))

    assert carried.max() > 1
    assert carried.tolist() == first.samples.state["count"].tolist()
    # the observation says how long the episode has run
    running = first.samples.obs[0, :, 1].long()
    assert torch.equal(running, first.samples.state["count"])


@pytest.mark.parametrize("mode", ONE_OF_EACH)
def test_each_environment_keeps_its_own_place(mode):
    """In whatever worker or half an environment is, its state is at the place of its global id."""
    setup = make_setup()
    with built(mode, setup) as sampler:
        collect(sampler, 2)
        places = np.stack([state["obs"] for state in sampler.state()])

        assert np.array_equal(sampler.boundary(), places)


def test_resets_between_batches_are_still_to_come_after_a_save():
    """Environments idle at the end of the batch; their reset is the first thing after."""
    state = saved("serial", "between_batches")[1]
    idle = ~whole("between_batches")[2].samples.valid[-1]

    assert idle.tolist() == [each["env"]["idle"] for each in state]
    assert bool(idle.any())
    assert not bool(whole("between_batches")[3].samples.obs[0, idle, 1].any())  # step 0 of an episode


# a cut


CUT_SEED = 4321


@cache
def cut_after_three(mode, reset):
    """Five batches of a running sampler after a cut, and the observations before it."""
    with built(mode, reset=reset) as sampler:
        before = collect(sampler, 3)
        boundary = map_tree(np.copy, sampler.boundary())
        sampler.cut(CUT_SEED)
        return collect(sampler, 5, steps_of(before)), boundary


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("mode", MODES)
def test_a_cut_is_the_same_in_a_running_sampler_and_in_a_new_one_of_any_mode(mode, reset):
    expected, boundary = cut_after_three("serial", reset)
    running, _ = cut_after_three(mode, reset)
    with built(mode, reset=reset) as sampler:
        sampler.cut(CUT_SEED, boundary)
        new = collect(sampler, 5, steps_of(whole(reset)[:3]))

    assert_same(expected, running)
    assert_same(expected, new)


@pytest.mark.parametrize("reset", RESETS)
def test_a_cut_is_a_row_that_follows_the_last_and_leads_to_new_episodes(reset):
    batches, boundary = cut_after_three("serial", reset)
    first = batches[0].samples

    assert np.array_equal(boundary, whole(reset)[2].samples.obs[-1].numpy())
    assert np.array_equal(boundary, first.obs[0].numpy())
    assert bool(first.truncated[0].all())
    assert not bool(first.valid[0].any() | first.terminated[0].any() | first.reward[0].any())
    assert torch.equal(first.obs[1, :, :3], torch.tensor([[0.0, 0.0, -1.0]] * 5))  # first episode, step 0, no action
    assert torch.equal(first.state["count"], torch.zeros(5, dtype=torch.int64))


def test_episodes_before_a_cut_are_in_no_statistics_after_it():
    batches, _ = cut_after_three("serial", "mid_batch")

    # after the cut's row an episode of n steps ends in row n
    first = {}
    for episode in batches[0].episodes:
        first.setdefault(episode.env_id, episode)
    assert first
    assert all(episode.length == episode.row for episode in first.values())


def test_another_seed_of_a_cut_gives_other_episodes():
    _, boundary = cut_after_three("serial", "mid_batch")
    with built("serial") as one, built("serial") as other:
        one.cut(CUT_SEED, boundary)
        other.cut(CUT_SEED + 1, boundary)

        assert not torch.equal(*(collect(sampler, 1)[0].samples.obs for sampler in (one, other)))


@pytest.mark.parametrize("mode", ONE_OF_EACH)
def test_what_was_saved_after_a_cut_and_a_batch_goes_on(mode):
    expected, boundary = cut_after_three("serial", "mid_batch")
    n_steps = steps_of(whole("mid_batch")[:3])
    with built(mode) as sampler, built("serial") as other:
        sampler.cut(CUT_SEED, boundary)
        collect(sampler, 1, n_steps)
        other.load_state(sampler.state())

        assert_same(expected[1:], collect(other, 4, n_steps + expected[0].n_steps))


# where a batch ends


@pytest.mark.parametrize("mode", ONE_OF_EACH)
def test_boundary_is_the_last_row_of_the_last_batch_and_no_view_of_it(mode):
    with built(mode) as sampler:
        (batch,) = collect(sampler, 1)
        boundary = sampler.boundary()
        collect(sampler, 1)

    assert np.array_equal(boundary, batch.samples.obs[-1].numpy())


@pytest.mark.parametrize("mode", ONE_OF_EACH)
def test_a_batch_that_was_given_up_half_way_leaves_the_boundary_of_the_last_whole_one(mode):
    setup = make_setup(WanderConfig(fault="raise", at=20))
    with built(mode, setup, max_decorrelation_steps=0) as sampler:
        step, last = 0, None
        for _ in range(10):
            try:
                got = sampler.collect(step)
            except (EnvError, WorkerError):
                break
            step, last = step + got.n_steps, got.samples.obs[-1].numpy().copy()
        else:
            pytest.fail("the fault did not come")
        boundary = sampler.boundary()

    assert np.array_equal(last, boundary)


# where it cannot be saved


@pytest.mark.parametrize("mode", ONE_OF_EACH)
def test_a_cut_that_is_still_to_come_cannot_be_saved_and_the_sampler_goes_on(mode):
    expected, boundary = cut_after_three("serial", "mid_batch")
    with built(mode) as sampler:
        sampler.cut(CUT_SEED, boundary)
        with pytest.raises(InexactError, match="an environment was lost with its worker in the last batch"):
            sampler.state()

        assert_same(expected, collect(sampler, 5, steps_of(whole("mid_batch")[:3])))


class OpenFileEnv(WanderEnv):
    """Holds what cannot be saved from its second episode on."""

    def reset(self, *, seed=None, options=None):
        if seed is None and not hasattr(self, "file"):
            self.file = os.fdopen(os.dup(0))
        return super().reset(seed=seed)

    def close(self):
        if hasattr(self, "file"):
            self.file.close()


@dataclass
class OpenFileConfig(WanderConfig):
    def build(self):
        return OpenFileEnv()


@pytest.mark.parametrize("mode", ONE_OF_EACH)
def test_an_environment_that_cannot_be_saved_is_named_and_the_sampler_goes_on(mode):
    setup = make_setup(OpenFileConfig())
    with built(mode, setup) as sampler:
        before = collect(sampler, 3)
        with pytest.raises(InexactError, match=r"env \d: .*file"):
            sampler.state()

        assert_same(whole("mid_batch"), before + collect(sampler, 5, steps_of(before)))


@pytest.mark.parametrize("mode", ["cpu of 2", "gpu of 2", "alternating of 2"])
def test_a_lost_worker_cannot_be_saved_until_its_environments_are_in_a_batch_again(mode, monkeypatch):
    monkeypatch.setattr(crew, "_FIRST_BACKOFF_S", 0.02)
    setup = make_setup(WanderConfig(fault="exit", at=20, victim=integer_seed(0, Purpose.ENV, 3)))
    options = {"max_decorrelation_steps": 0, "on_worker_failure": "restart", "max_restarts": 1}
    with built(mode, setup, **options) as sampler:
        refused, n_cuts, step = [], 0, 0
        for itr in range(6):
            got = sampler.collect(step)
            step += got.n_steps
            n_cuts += int((got.samples.truncated & ~got.samples.valid).sum())
            try:
                state = sampler.state()
            except InexactError:
                refused.append(itr)
        expected = collect(sampler, 2, step)
    with built("serial", setup) as other:
        other.load_state(state)

        assert_same(expected, collect(other, 2, step))
    assert n_cuts > 0
    assert refused == ([2] if mode == "cpu of 2" else [])  # the others cut and begin anew within the batch


def test_async_says_why_it_cannot_be_saved():
    with built("async serial") as sampler:
        collect(sampler, 1)
        with pytest.raises(InexactError, match="sampler=async"):
            sampler.state()


def test_no_leaf_of_a_save_is_a_view_of_what_goes_on(tmp_path):
    with built("serial") as sampler:
        collect(sampler, 3)
        state = sampler.state()
        write_tree(tmp_path / "before.tree", state)
        collect(sampler, 3)
        write_tree(tmp_path / "after.tree", state)

    assert (tmp_path / "before.tree").read_bytes() == (tmp_path / "after.tree").read_bytes()
