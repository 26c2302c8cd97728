"""Learning, and acting, on a CUDA device: make test-gpu."""

import pytest
import torch

import rlcli
from rlcli.core.errors import ConfigError
from rlcli.record.snapshot import read_snapshot

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
TINY = ["env=cartpole", "n_steps=1500", "log_interval_steps=500", "eval.interval_steps=500", "eval.n_episodes=2"]


@pytest.mark.parametrize("algo", [["algo=dqn", "algo.min_steps_learn=200", "replay.size=1000"], ["algo=a2c"]])
@pytest.mark.parametrize("sampler", ["serial", "cpu", "gpu", "alternating"])
def test_run_on_the_gpu_leaves_a_file_that_a_cpu_loads_and_trains_on(algo, sampler, tmp_path):
    words = [*algo, *TINY, f"sampler={sampler}"]
    on_gpu = rlcli.train([*words, "device=cuda", f"run_dir={tmp_path / 'gpu'}"])
    on_cpu = rlcli.train([*words, "device=cpu", f"resume={on_gpu / 'params.pkl'}", f"run_dir={tmp_path / 'cpu'}"])

    model = read_snapshot(on_cpu / "params.pkl")["agent_state_dict"]["model"]
    assert {"cpu"} == {tensor.device.type for tensor in model.values()}
    assert all(bool(torch.isfinite(tensor).all()) for tensor in model.values())


@pytest.mark.parametrize("inner", ["serial", "cpu", "gpu", "alternating"])
def test_async_runs_on_the_gpu(inner, tmp_path):
    words = ["algo=dqn", "algo.min_steps_learn=200", "replay.size=1000", *TINY, "device=cuda"]
    folder = rlcli.train([*words, "sampler=async", f"sampler.inner={inner}", f"run_dir={tmp_path / 'run'}"])

    assert (folder / "params.pkl").is_file()


def test_fork_is_refused_beside_cuda(tmp_path):
    with pytest.raises(ConfigError, match="start_method: 'fork' is not allowed with device=cuda"):
        rlcli.train(["device=cuda", "sampler=cpu", "sampler.start_method=fork", f"run_dir={tmp_path / 'run'}"])
