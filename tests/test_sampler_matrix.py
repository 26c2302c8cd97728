"""Every algorithm with every sampler and start method: whole runs of `rlcli.train` in this process."""

import csv
import math

import pytest

import rlcli
from rlcli.core.errors import ConfigError
from rlcli.record.snapshot import read_snapshot

SYNCHRONOUS = {
    "serial": ["sampler=serial"],
    "cpu": ["sampler=cpu", "sampler.n_workers=2"],
    "gpu": ["sampler=gpu", "sampler.n_workers=2"],
    "alternating": ["sampler=alternating", "sampler.n_workers=2"],
}
ASYNC = {f"async {inner}": ["sampler=async", f"sampler.inner={inner}", "sampler.n_workers=2"] for inner in SYNCHRONOUS}
DQN = ["algo=dqn", "replay.size=2000", "algo.min_steps_learn=100", "algo.replay_ratio=2"]
A2C = ["algo=a2c"]
START_METHODS = [[f"sampler.start_method={method}"] for method in ("spawn", "forkserver", "fork")]
MATRIX = [
    pytest.param(algo, [*sampler, *start], id=" ".join([algo[0], name, *start]))
    for algo, samplers in ((DQN, SYNCHRONOUS | ASYNC), (A2C, SYNCHRONOUS))
    for name, sampler in samplers.items()
    for start in (
        [[]] if name == "serial" else [[f"sampler.start_method={m}"] for m in ("spawn", "forkserver", "fork")]
    )
]


def trained(algo, sampler, n_steps, folder):
    words = ["env=cartpole", "device=cpu", "logger.ui=quiet", "sampler.batch_B=5", "sampler.batch_T=10"]
    words += [f"n_steps={n_steps}", f"log_interval_steps={n_steps // 2}", f"eval.interval_steps={n_steps}"]
    words += ["eval.n_episodes=2", "eval.n_envs=2", f"run_dir={folder / 'run'}"]
    run = rlcli.train([*algo, *sampler, *words])
    with (run / "progress.csv").open(newline="") as file:
        *_, last = csv.DictReader(file)
    assert n_steps <= int(last["CumSteps"]) < n_steps + 50
    assert int(last["CumUpdates"]) > 0
    assert math.isfinite(float(last["lossAverage"]))
    assert float(last["EvalReturnAverage"]) > 0
    assert int(last["Iteration"]) == read_snapshot(run / "params.pkl")["itr"]


@pytest.mark.parametrize(("algo", "sampler"), MATRIX)
def test_algorithm_learns_with_sampler_and_start_method(algo, sampler, tmp_path):
    trained(algo, sampler, 300, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "sampler"), MATRIX)
def test_algorithm_learns_for_2000_steps_with_sampler_and_start_method(algo, sampler, tmp_path):
    trained(algo, sampler, 2000, tmp_path)


@pytest.mark.parametrize("inner", SYNCHRONOUS)
def test_on_policy_algorithm_is_refused_by_name_in_async_mode(inner, tmp_path):
    with pytest.raises(ConfigError, match="a2c") as caught:
        rlcli.train([*A2C, *ASYNC[f"async {inner}"], "env=cartpole", f"run_dir={tmp_path / 'run'}"])

    assert "sampler" in str(caught.value)
    assert not (tmp_path / "run").exists()
