"""What the replay costs, and what it refuses."""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from rlcli.core.errors import ConfigError, RlcliError
from rlcli.core.options import range_problems
from rlcli.replay.config import UniformReplayConfig
from rlcli.replay.storage import OnDisk


@pytest.fixture
def ram_of_1_gb(monkeypatch):
    monkeypatch.setattr("rlcli.core.machine.available_memory", lambda: 10**9)


@pytest.mark.parametrize(("size", "n_envs"), [(1, 1), (100, 7), (999, 16), (5_000, 3)])
def test_estimate_is_what_is_allocated(make_replay, atari_spec, size, n_envs):
    replay = make_replay(atari_spec, n_envs, size=max(size, n_envs + 1))
    estimate = UniformReplayConfig(size=max(size, n_envs + 1)).memory_bytes(atari_spec, n_envs)

    assert replay.n_bytes == pytest.approx(estimate, rel=0.05)


def test_atari_costs_one_frame_a_transition(atari_spec):
    # 84 * 84 frame + 8 action + 4 reward + 3 flags + 1 stack depth = 7072 bytes, and 3 rows more for the stacks
    assert UniformReplayConfig(size=1000).memory_bytes(atari_spec, 10) == (100 + 3) * 10 * 7072


def test_dict_observations_cost_all_their_leaves(make_replay, dict_case):
    replay = make_replay(dict_case.spec, 2, size=50)

    # 6 camera + 12 x + 8 action + 4 reward + 3 flags + 1 stack depth = 34 bytes
    assert replay.n_bytes == 50 * 34


def test_default_fits_and_is_described_in_one_line(atari_spec, monkeypatch):
    monkeypatch.setattr("rlcli.core.machine.available_memory", lambda: 24 * 10**9)
    config = UniformReplayConfig()

    assert config.describe(atari_spec, 16) == "replay: 250,000 transitions x 7.1 kB = 1.8 GB of 24.0 GB free RAM"
    assert config.memory_problems(atari_spec, 16) == []
    assert range_problems(config) == []


def test_absurd_size_is_refused_with_both_numbers_and_the_largest_that_fits(atari_spec):
    (line,) = UniformReplayConfig(size=1_000_000_000).memory_problems(atari_spec, 16)

    assert line.startswith("size: 1_000_000_000 transitions need 7,072.0 GB of ")
    assert " GB free RAM; the largest size that fits is " in line


def test_size_named_as_the_largest_fits_and_one_more_row_does_not(atari_spec, ram_of_1_gb):
    (line,) = UniformReplayConfig(size=10**9).memory_problems(atari_spec, 16)
    fits = int(line.rsplit(" ", 1)[1])

    assert UniformReplayConfig(size=fits).memory_problems(atari_spec, 16) == []
    assert UniformReplayConfig(size=fits + 1).memory_problems(atari_spec, 16) != []


def test_build_refuses_what_does_not_fit_before_it_allocates(atari_spec, ram_of_1_gb):
    with pytest.raises(ConfigError, match=r"replay\.size: 1_000_000 transitions need 7\.1 GB of 1\.0 GB free RAM"):
        UniformReplayConfig(size=1_000_000).build(atari_spec, 1, seed=0, discount=0.99, n_step=1)


@pytest.mark.parametrize(("size", "n_envs", "n_step", "least"), [(3, 1, 3, 4), (12, 4, 3, 13), (1, 1, 1, 2)])
def test_size_that_holds_no_window_is_refused_with_the_least_that_does(make_stream, size, n_envs, n_step, least):
    spec = make_stream(["."]).spec

    with pytest.raises(ConfigError, match=rf"replay\.size: {size} holds no .* must be >= {least}$"):
        UniformReplayConfig(size=size).build(spec, n_envs, seed=0, discount=0.99, n_step=n_step)
    UniformReplayConfig(size=least).build(spec, n_envs, seed=0, discount=0.99, n_step=n_step).close()


def test_size_below_1_is_out_of_range():
    assert range_problems(UniformReplayConfig(size=0)) == ["size: 0 is not allowed, must be >= 1"]


def test_memory_map_gives_the_same_back_and_leaves_no_file(make_stream, make_replay, tmp_path):
    stream = make_stream(["....T_......U_....L....."], frame_stack=3)
    replay = make_replay(stream.spec, 1, size=9, n_step=2, memory_map_dir=str(tmp_path))
    for start, stop in stream.batches(4):
        replay.append(stream.samples(start, stop))
        stream.check(replay, stop, 9 + 2, 2, 0.5)
    stream.check_batch(replay.sample(20), stream.expected(24, 11, 2, 0.5))
    replay.close()
    replay.close()

    assert list(tmp_path.iterdir()) == []


def test_memory_map_reserves_its_disk_space_at_once(tmp_path):
    storage = OnDisk(tmp_path)
    storage((1000, 1000), np.dtype("uint8"))
    (file,) = storage._files
    blocks = os.fstat(file.fileno()).st_blocks
    storage.close()

    assert blocks * 512 >= 10**6


def test_memory_map_is_measured_against_the_free_disk(atari_spec, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=10**9))
    config = UniformReplayConfig(size=1_000_000, memory_map_dir=str(tmp_path))
    (line,) = config.memory_problems(atari_spec, 1)

    assert line.startswith(f"size: 1_000_000 transitions need 7.1 GB of 1.0 GB free disk in {tmp_path}; ")
    assert config.describe(atari_spec, 1).endswith(f"= 7.1 GB of 1.0 GB free disk in {tmp_path}")


def test_memory_map_folder_that_does_not_exist_is_refused(atari_spec, tmp_path):
    config = UniformReplayConfig(size=100, memory_map_dir=str(tmp_path / "nowhere"))

    assert config.memory_problems(atari_spec, 1) == [
        f"memory_map_dir: '{tmp_path}/nowhere' is not a folder that can be written to"
    ]


def test_disk_that_fills_up_is_an_error_of_ours_and_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)

    with pytest.raises(RlcliError, match=r"memory_map_dir: .* cannot take 1,000 bytes there: .* No space left"):
        OnDisk(tmp_path)((1000,), np.dtype("uint8"))
    assert list(tmp_path.iterdir()) == []


def test_config_and_its_estimate_load_no_torch():
    code = (
        "import sys; import numpy as np; from gymnasium.spaces import Box, Discrete;"
        "from rlcli.core.spec import EnvSpec;"
        "from rlcli.replay.config import UniformReplayConfig as C;"
        "s = EnvSpec(Box(0, 1, (2,)), Discrete(2), np.zeros(2, np.float32), np.zeros((), np.int64));"
        "C().describe(s, 2); C().memory_problems(s, 2); C(); sys.exit('torch' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
