"""DDPG, TD3 and SAC go on exactly from a checkpoint: weights, targets, optimizers, replay and random numbers."""

import numpy as np
import pytest

import rlcli
from tests.test_resume import MODES, rows, train  # noqa: F401  # a fixture

ALGOS = ("ddpg", "td3", "sac", "sac_v")
QUICK = [
    "algo.min_steps_learn=80",
    "algo.random_steps=60",
    "algo.batch_size=16",
    "algo.replay_ratio=4",
    "replay.size=300",
    "model.mlp_hidden=[8]",
    "sampler.batch_B=4",
    "device=cpu",
    "torch_threads=1",
]
PENDULUM = ["env=pendulum", "env.max_episode_steps=30", *QUICK]
HALFCHEETAH = ["env=halfcheetah", "env.max_episode_steps=30", *QUICK]


def half_and_whole(train, words):  # noqa: F811
    whole = train("whole", *words, "n_steps=320")
    halves = train("halves", *words, "n_steps=160")

    rlcli.resume(halves, ["n_steps=320"])

    assert rows(whole) == rows(halves)
    assert len({row["WeightsHash"] for row in rows(whole)}) > 2
    assert not np.isnan(float(rows(whole)[-1]["actorLossAverage"]))


SHARED_OUT = [*zip(ALGOS, MODES, strict=True), *(("sac", mode) for mode in MODES if mode != "gpu")]
"""Every algorithm and every mode; SAC, which has most to save, in all four."""


@pytest.mark.parametrize(("algo", "mode"), SHARED_OUT)
def test_half_and_resume_equal_the_whole_on_pendulum(train, algo, mode):  # noqa: F811
    half_and_whole(train, [*PENDULUM, f"algo={algo}", *MODES[mode]])


@pytest.mark.parametrize(("algo", "mode"), list(zip(ALGOS, MODES, strict=True)))
def test_half_and_resume_equal_the_whole_on_halfcheetah(train, algo, mode):  # noqa: F811
    pytest.importorskip("mujoco")
    half_and_whole(train, [*HALFCHEETAH, f"algo={algo}", *MODES[mode]])


@pytest.mark.slow
@pytest.mark.parametrize("env", [PENDULUM, HALFCHEETAH], ids=["pendulum", "halfcheetah"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("algo", ALGOS)
def test_half_and_resume_equal_the_whole_with_every_algorithm_in_every_mode(train, algo, mode, env):  # noqa: F811
    pytest.importorskip("mujoco")
    half_and_whole(train, [*env, f"algo={algo}", *MODES[mode]])


def test_random_first_steps_are_the_same_in_workers_as_in_one_process(train):  # noqa: F811
    words = [*PENDULUM, "algo=sac", "algo.min_steps_learn=1e6", "algo.random_steps=100", "n_steps=200"]
    runs = [train(mode, *words, *MODES[mode]) for mode in ("serial", "cpu")]

    one, two = (rows(run) for run in runs)
    for name in ("ReturnAverage", "CumCompletedTrajs"):
        np.testing.assert_allclose(*([float(row[name]) for row in part] for part in (one, two)), rtol=1e-4)
