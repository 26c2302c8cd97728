"""Observation and action spaces of every kind, through every sampler."""

from functools import cache

import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete, MultiDiscrete

from rlcli.envs.probe import probe
from tests.probes import ACTION_SPACES, DictConfig, ReuseConfig, TupleConfig
from tests.sampler_modes import assert_same_run, config, run
from tests.sampler_probes import SpaceAgent, make_setup
from tests.space_probes import EchoConfig

MODES = ("serial", "cpu of 2", "gpu of 2", "alternating of 2", "async serial")


@cache
def spec_of(kind):
    return probe(EchoConfig(kind))


@cache
def echoed(kind, mode):
    spec = spec_of(kind)
    setup = make_setup(EchoConfig(kind), SpaceAgent(spec.action_space, spec.example_action))
    return run(config(mode, 15, 3, max_decorrelation_steps=4), setup, 2, evaluate=True)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ACTION_SPACES)
def test_the_env_is_given_the_action_of_each_row(kind, mode):
    space = spec_of(kind).action_space
    start = np.ravel(space.start) if isinstance(space, Discrete | MultiDiscrete) else 0
    got = echoed(kind, mode)

    for batch in got.batches:
        s = batch.samples
        sent = s.action.numpy().reshape(*s.action.shape[:2], -1) + start
        echo = s.obs["echo"][1:].numpy()
        np.testing.assert_array_equal(sent.astype(space.dtype).astype(np.float32)[s.valid], echo[s.valid])
        assert s.valid.float().mean() > 0.7
        assert len(s.action[s.valid].unique(dim=0)) > 1
    assert_same_run(echoed(kind, "serial"), got)


@pytest.mark.parametrize("mode", MODES)
def test_nested_observations_keep_their_dtypes_and_belong_to_one_step(mode):
    s = echoed("discrete", mode).batches[0].samples
    step, image = s.obs["pair"]["0"], s.obs["pair"]["1"]["image"]

    assert (torch.float32, torch.int64, torch.uint8) == (s.obs["echo"].dtype, step.dtype, image.dtype)
    assert (16, 3, 1, 2, 2) == image.shape
    assert torch.equal(step[..., None, None, None].expand_as(image), image.long())
    assert torch.equal(step[:-1][s.valid] + 1, step[1:][s.valid])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env", [DictConfig(), TupleConfig(), ReuseConfig()], ids=["dict", "tuple", "reuses arrays"])
def test_probe_environments_give_what_they_give_in_serial(env, mode):
    spec = probe(env)
    setup = make_setup(env, SpaceAgent(spec.action_space, spec.example_action))
    expected, got = (run(config(m, 12, 3), setup, 2, evaluate=True) for m in ("serial", mode))

    assert_same_run(expected, got)


def test_observations_are_copied_at_the_border():
    s = (
        run(config("serial", 20, 2), make_setup(ReuseConfig(), SpaceAgent(Discrete(3), np.int64(0))), 1)
        .batches[0]
        .samples
    )

    assert {0.0, 1.0, 2.0, 3.0} == set(s.obs[..., 1].unique().tolist())
