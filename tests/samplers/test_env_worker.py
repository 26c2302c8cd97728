"""Worker processes: what they load, how many threads they take, which environments each holds."""

import contextlib
import os

import pytest
import torch

from rlcli.core import machine
from rlcli.samplers.batch import split
from rlcli.samplers.gpu import _spread
from tests.sampler_modes import batches, config
from tests.sampler_probes import SpaceAgent, make_setup
from tests.space_probes import ProcessConfig


def process_of_the_envs(mode, **options):
    """(torch is loaded, its threads, CPUs) as the environments saw them when they were made; the same for all."""
    setup = make_setup(ProcessConfig())
    setup = make_setup(ProcessConfig(), SpaceAgent(setup.spec.action_space, setup.spec.example_action))
    (got,) = batches(config(mode, 2, 2, start_method="spawn", max_decorrelation_steps=0, **options), setup, 1)
    (row,) = got.samples.obs.flatten(0, 1).unique(dim=0).tolist()
    return row


def test_workers_that_only_step_load_no_torch():
    loaded, *_ = process_of_the_envs("gpu of 2")

    assert not loaded


@pytest.mark.parametrize("mode", ["cpu of 2", "async serial"])
def test_processes_that_act_have_one_torch_thread_before_an_env_is_made(mode):
    assert [1, 1] == process_of_the_envs(mode)[:2]


@pytest.mark.skipif(not machine.can_pin(), reason="this system pins no process")
def test_workers_are_pinned_to_one_cpu_unless_told_otherwise():
    pinned, free = (process_of_the_envs("gpu of 1", pin_workers=pin)[2] for pin in (True, False))

    assert (1, len(os.sched_getaffinity(0))) == (pinned, free)


@pytest.mark.parametrize(("n", "parts"), [(1, 1), (5, 2), (7, 3), (8, 3), (2, 4)])
def test_slices_hold_every_environment_once_in_order_and_differ_by_one_at_most(n, parts):
    slices = split(n, parts)

    assert list(range(n)) == [i for part in slices for i in part]
    assert max(map(len, slices)) - min(map(len, slices)) <= 1


@pytest.mark.parametrize(("n_envs", "n"), [(5, 2), (5, 3), (6, 4), (16, 3)])
def test_second_half_evens_out_what_the_first_gave_to_each_worker(n_envs, n):
    halves = [_spread(ids, n, first=i) for i, ids in enumerate(split(n_envs, 2))]
    loads = [sum(map(len, parts)) for parts in zip(*halves, strict=True)]

    assert list(range(n_envs)) == [i for half in halves for part in half for i in part]
    assert max(loads) - min(loads) <= 1


def test_more_workers_than_environments_are_not_started():
    said = []
    with contextlib.closing(config("cpu of 3", 5, 2).build(make_setup(say=said.append))):
        assert any("workers: 2 (fork)" in line and "envs 0; 1" in line for line in said)


def test_batch_with_torch_threads_in_the_parent_is_unharmed_by_a_fork():
    torch.ones(500, 500) @ torch.ones(500, 500)  # the parent's threads are at work before the fork

    assert 1 == len(batches(config("cpu of 2", 5, 2), make_setup(), 1))
