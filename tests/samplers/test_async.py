"""Sampling in a process of its own: weights at most a publication old, neither side runs ahead of the other."""

import contextlib
import csv
import time

import pytest

import rlcli
from rlcli.algos.replay_learner import ReplayLearner as DQN
from tests.sampler_modes import ASYNC, ONE_OF_EACH, config
from tests.sampler_probes import WeightAgent, make_setup
from tests.space_probes import CountedConfig

SYNCHRONOUS = tuple(mode for mode in ONE_OF_EACH if mode not in ASYNC)


def weights_that_acted(mode, n, learn_s, env=None):
    """(weight noted in each batch, newest weight, lag told) for a learner that adds 1 to the weight per batch."""
    agent, rows = WeightAgent(), []
    with contextlib.closing(config(mode, 5, 4).build(make_setup(env, agent))) as sampler:
        for _ in range(n):
            got = sampler.collect(0)
            (noted,) = got.samples.record["weight"].unique().tolist()
            rows.append((noted, int(agent.weight), got.policy_lag))
            time.sleep(learn_s)
            agent.weight += 1
            sampler.publish()
    return rows


@pytest.mark.parametrize("learn_s", [0.0, 0.02], ids=["quick learner", "slow learner"])
@pytest.mark.parametrize("mode", ASYNC)
def test_policy_lag_is_told_and_never_more_than_one_publication_per_batch_in_hand(mode, learn_s):
    rows = weights_that_acted(mode, 12, learn_s)

    assert all(noted == newest - lag for noted, newest, lag in rows)
    assert {lag for *_, lag in rows} <= {0, 1}
    assert rows[-1][0] >= 11  # of 12: what is published arrives


@pytest.mark.parametrize("mode", SYNCHRONOUS)
def test_next_batch_acts_with_the_newest_weights(mode):
    assert [(i, i, 0) for i in range(1, 5)] == weights_that_acted(mode, 4, 0.0)


@pytest.mark.parametrize("mode", ["async serial", "async gpu of 2"])
def test_sampler_fills_the_free_buffers_and_then_waits(mode, tmp_path):
    steps = tmp_path / "steps"
    setup = make_setup(CountedConfig(str(steps)), WeightAgent())
    with contextlib.closing(config(mode, 5, 4, max_decorrelation_steps=0).build(setup)) as sampler:
        probed = steps.stat().st_size
        for n_taken in range(1, 4):
            assert 20 == sampler.collect(0).n_steps  # games last 20 steps: no filler in the first 4 batches
            # one batch is with the learner, one more lies ready
            wait_until(lambda n=n_taken: steps.stat().st_size - probed >= 20 * (n + 1))
            time.sleep(0.1)
            assert 20 * (n_taken + 1) == steps.stat().st_size - probed


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)


def slow_learner(monkeypatch):
    update = DQN.update

    def slow(self, samples, *, step):
        time.sleep(0.02)
        return update(self, samples, step=step)

    monkeypatch.setattr(DQN, "update", slow)


@pytest.mark.parametrize("slow", ["learner", "env"])
@pytest.mark.parametrize("inner", ["serial", "gpu"])
def test_replay_ratio_is_kept_whoever_is_slow(inner, slow, tmp_path, monkeypatch):
    if slow == "learner":
        slow_learner(monkeypatch)
    sleep_s = 0.002 if slow == "env" else 0.0
    folder = rlcli.train(
        [
            *("algo=dqn", "algo.replay_ratio=4", "algo.batch_size=16", "algo.min_steps_learn=200", "replay.size=2000"),
            *("env=gym", "env.id=tests.slow_envs:SlowCartPole-v0", f"env.kwargs={{sleep_s: {sleep_s}}}"),
            *("sampler=async", f"sampler.inner={inner}", "sampler.start_method=fork", "sampler.n_workers=1"),
            *("sampler.batch_T=5", "sampler.batch_B=4", "sampler.max_decorrelation_steps=0"),
            *("n_steps=1200", "log_interval_steps=400", "eval.interval_steps=0", "logger.ui=quiet"),
            f"run_dir={tmp_path / 'run'}",
        ]
    )
    with (folder / "progress.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))

    assert [4.0, 4.0] == pytest.approx([float(row["ReplayRatio"]) for row in rows[1:]], rel=0.05)
    assert all(0 <= float(row["PolicyLag"]) <= 1 for row in rows)
