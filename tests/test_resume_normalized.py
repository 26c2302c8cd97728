"""Algorithms that learn from replay with model.normalize_obs: exact resume, and what a run's files hold."""

import pytest
import torch

import rlcli
from tests.test_resume import ALGOS, CARTPOLE, MODES, rows, train  # noqa: F401  # a fixture
from tests.test_resume_continuous import PENDULUM

NORMALIZE = "model.normalize_obs=true"
Q = {name: [*CARTPOLE, *ALGOS[name], NORMALIZE] for name in ("dqn", "cat_dqn", "iqn", "rainbow", "r2d1")}
BOX = {name: [*PENDULUM, f"algo={name}", NORMALIZE] for name in ("ddpg", "td3", "sac", "sac_v")}
WORDS = Q | BOX
FAST = [("dqn", "cpu"), ("r2d1", "serial"), ("td3", "serial"), ("sac", "cpu")]


@pytest.mark.parametrize(
    ("algo", "mode"),
    [
        pytest.param(algo, mode, marks=[] if (algo, mode) in FAST else [pytest.mark.slow])
        for algo in WORDS
        for mode in MODES
    ],
)
def test_half_and_resume_equal_the_whole_with_statistics(train, algo, mode):  # noqa: F811
    words = [*WORDS[algo], *MODES[mode], "eval.interval_steps=100", "eval.n_envs=2", "eval.n_episodes=2"]
    whole = train("whole", *words, "n_steps=400")
    halves = train("halves", *words, "n_steps=200")

    rlcli.resume(halves, ["n_steps=400"])

    assert rows(whole) == rows(halves)
    assert len({row["WeightsHash"] for row in rows(whole)}) > 2


def test_sac_on_pendulum_runs_and_its_file_holds_the_statistics_of_every_step(train):  # noqa: F811
    words = [
        "env=pendulum",
        "algo=sac",
        NORMALIZE,
        "algo.min_steps_learn=10",
        "algo.batch_size=8",
        "env.max_episode_steps=20",
    ]
    two_iterations = [
        "sampler.batch_T=4",
        "sampler.batch_B=4",
        "n_steps=32",
        "log_interval_steps=16",
        "replay.size=300",
    ]
    run = train("run", *words, *two_iterations)

    model = torch.load(run / "params.pkl", weights_only=True)["agent_state_dict"]["model"]

    assert 2 == len(rows(run))
    assert [float(rows(run)[-1]["CumSteps"])] == model["normalizer.moments.0.count"].tolist()
    assert (3,) == model["normalizer.moments.0.mean"].shape
    assert 1 == rlcli.evaluate(run, episodes=1).n
    assert torch.equal(model["normalizer.moments.0.mean"], rlcli.load(run).agent.model.normalizer.moments[0].mean)
