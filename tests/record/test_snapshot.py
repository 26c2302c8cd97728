import errno
import json
import os
import pickle
import resource
import zipfile
from collections import OrderedDict
from enum import IntEnum
from pathlib import Path

import numpy as np
import pytest
import torch

from rlcli.core.errors import SnapshotError
from rlcli.record.snapshot import (
    Snapshots,
    read_snapshot,
    snapshot_state,
    state_mismatches,
    write_snapshot,
)


def state(value=1.0, itr=5, **changes):
    return snapshot_state(
        **{
            "itr": itr,
            "cum_steps": 100,
            "agent_state_dict": {"model": {"w": torch.full((2, 3), value)}},
            "optimizer_state_dict": {"state": {0: {"step": torch.tensor(7.0)}}, "param_groups": [{"params": [0]}]},
            "algo_state_dict": {"n_updates": 7, "target": {"w": torch.zeros(2, 3)}},
            "config": {"seed": 3, "env": {"id": None, "shape": [84, 84]}},
        }
        | changes
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "params.pkl"


# Which files


def run(folder, mode, *, n_itr=10, gap=3, rows_every=1, final_call=False):
    """A run that logs every few iterations; its end is a log row, or a call of its own."""
    snapshots = Snapshots(folder, mode, gap)
    written = []
    for itr in range(1, n_itr + 1):
        if itr % rows_every == 0:
            final = itr == n_itr and not final_call
            written += snapshots.save(itr, lambda i=itr: state(itr=i), row_number=itr // rows_every, final=final)
    if final_call:
        written += snapshots.save(n_itr, lambda: state(itr=n_itr), final=True)
    return sorted((p.name for p in folder.iterdir()), key=lambda n: (len(n), n)), [p.name for p in written]


FILES_OF_TEN_ROWS = [
    ("none", []),
    ("last", ["params.pkl"]),
    ("all", [f"itr_{n}.pkl" for n in range(1, 11)]),
    ("gap", ["itr_3.pkl", "itr_6.pkl", "itr_9.pkl", "itr_10.pkl"]),
    ("last_gap", ["itr_3.pkl", "itr_6.pkl", "itr_9.pkl", "params.pkl"]),
]


@pytest.mark.parametrize("final_call", [False, True])
@pytest.mark.parametrize(("mode", "files"), FILES_OF_TEN_ROWS)
def test_each_mode_leaves_its_documented_files_for_ten_rows_with_gap_three(tmp_path, mode, files, final_call):
    assert run(tmp_path, mode, final_call=final_call)[0] == files


@pytest.mark.parametrize(
    ("mode", "files"),
    [
        ("last", ["params.pkl"]),
        ("all", ["itr_4.pkl", "itr_8.pkl", "itr_10.pkl"]),
        ("gap", ["itr_8.pkl", "itr_10.pkl"]),
        ("last_gap", ["itr_8.pkl", "params.pkl"]),
    ],
)
def test_end_between_two_log_rows_is_saved_too(tmp_path, mode, files):
    assert run(tmp_path, mode, gap=2, rows_every=4, final_call=True)[0] == files
    newest = tmp_path / ("params.pkl" if "params.pkl" in files else files[-1])
    assert read_snapshot(newest)["itr"] == 10


@pytest.mark.parametrize("mode", ["last", "all", "gap", "last_gap"])
def test_end_that_is_also_a_log_row_is_saved_once(tmp_path, mode):
    snapshots = Snapshots(tmp_path, mode, 1)
    first = snapshots.save(4, state, row_number=1)

    assert snapshots.save(4, state, final=True) == []
    assert first != []


def test_last_is_rewritten_at_each_row(tmp_path):
    _, written = run(tmp_path, "last")

    assert written == ["params.pkl"] * 10
    assert read_snapshot(tmp_path / "params.pkl")["itr"] == 10


def test_state_is_not_gathered_when_nothing_is_due(tmp_path):
    def never():
        raise AssertionError

    assert Snapshots(tmp_path, "none", 1).save(1, never, row_number=1, final=True) == []
    assert Snapshots(tmp_path, "gap", 2).save(1, never, row_number=1) == []


@pytest.mark.parametrize(("mode", "gap"), [("last+gap", 1), ("gap", 0)])
def test_unknown_mode_and_gap_below_one_are_refused(tmp_path, mode, gap):
    with pytest.raises(ValueError, match="must be"):
        Snapshots(tmp_path, mode, gap)


# What is in them


def test_snapshot_reads_back_as_it_was_written(path):
    write_snapshot(path, state(1.5))
    content = read_snapshot(path)

    assert list(content) == [
        "format",
        "itr",
        "cum_steps",
        "agent_state_dict",
        "optimizer_state_dict",
        "algo_state_dict",
        "config",
    ]
    assert (content["format"], content["itr"], content["cum_steps"]) == (1, 5, 100)
    assert torch.equal(content["agent_state_dict"]["model"]["w"], torch.full((2, 3), 1.5))
    assert content["optimizer_state_dict"]["state"][0]["step"] == 7.0
    assert content["optimizer_state_dict"]["param_groups"] == [{"params": [0]}]
    assert content["config"] == {"seed": 3, "env": {"id": None, "shape": [84, 84]}}


def test_real_optimizer_and_model_go_through_a_snapshot(path):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    write_snapshot(
        path, state(agent_state_dict={"model": model.state_dict()}, optimizer_state_dict=optimizer.state_dict())
    )
    content = read_snapshot(path)

    fresh = torch.nn.Linear(3, 2)
    fresh.load_state_dict(content["agent_state_dict"]["model"])
    other = torch.optim.Adam(fresh.parameters(), lr=1e-3)
    other.load_state_dict(content["optimizer_state_dict"])
    assert torch.equal(fresh.weight, model.weight)
    assert torch.equal(other.state_dict()["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])


def test_content_is_a_copy_that_later_updates_do_not_reach():
    weight = torch.zeros(2, requires_grad=True)
    content = state(agent_state_dict={"w": weight})
    with torch.no_grad():
        weight += 1
    copied = content["agent_state_dict"]["w"]

    assert torch.equal(copied, torch.zeros(2))
    assert not copied.requires_grad


def test_view_does_not_drag_its_large_storage_along(path):
    write_snapshot(path, state(agent_state_dict={"w": torch.zeros(1_000_000)[::500_000]}))

    assert path.stat().st_size < 10_000


def test_content_is_plain_containers_numbers_and_text():
    class Kind(IntEnum):
        ONE = 1

    content = state(algo_state_dict=OrderedDict(kind=Kind.ONE, n=np.int64(3), x=np.float64(0.5), pair=(1, "a")))
    algo = content["algo_state_dict"]

    assert algo == {"kind": 1, "n": 3, "x": 0.5, "pair": (1, "a")}
    assert [type(v) for v in (algo, *algo.values())] == [dict, int, int, float, tuple]


@pytest.mark.parametrize("value", [np.zeros(2), object(), {1, 2}])
def test_what_a_reader_without_rlcli_could_not_load_is_refused_by_name(value):
    with pytest.raises(TypeError, match=r"^algo_state_dict\.x\.0: "):
        state(algo_state_dict={"x": [value]})


WITHOUT_RLCLI = """
import json, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "rlcli":
            raise ImportError("rlcli is not here")
sys.meta_path.insert(0, Blocked())
import torch
content = torch.load(sys.argv[1], weights_only=True)
print(json.dumps([list(content), content["agent_state_dict"]["model"]["w"].tolist(), content["config"]]))
"""


def test_file_loads_with_torch_alone(path, start_python):
    write_snapshot(path, state(0.5))
    process = start_python(WITHOUT_RLCLI, path)
    keys, weights, config = json.loads(process.communicate(timeout=120)[0])

    assert keys[:3] == ["format", "itr", "cum_steps"]
    assert weights == [[0.5] * 3] * 2
    assert config["env"]["shape"] == [84, 84]


# Writing never harms what is there


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_never_replace_a_good_file(path, bad):
    write_snapshot(path, state(1.0))

    with pytest.raises(SnapshotError, match=r"params\.pkl: not written: agent_state_dict\.model\.w holds .* finite"):
        write_snapshot(path, state(bad))
    assert read_snapshot(path)["agent_state_dict"]["model"]["w"][0, 0] == 1.0


def test_full_disk_names_the_path_and_leaves_the_older_file(path):
    write_snapshot(path, state(1.0))
    before = path.read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        with pytest.raises(SnapshotError, match=r"params\.pkl: not written: File too large"):
            write_snapshot(path, state(2.0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)

    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["params.pkl"]


def test_data_is_on_disk_before_the_name_points_to_it(path, monkeypatch):
    order = []
    sync, replace = os.fsync, type(path).replace

    def noted_sync(fd):
        target = str(Path(f"/proc/self/fd/{fd}").readlink())
        order.append("sync folder" if target == str(path.parent) else "sync file")
        sync(fd)

    def noted_replace(self, target):
        order.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(type(path), "replace", noted_replace)
    write_snapshot(path, state())

    assert order == ["sync file", "rename", "sync folder"]


def test_failing_sync_is_an_error_that_names_the_path(path, monkeypatch):
    def fail(fd):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)

    with pytest.raises(SnapshotError, match=r"params\.pkl: not written: Input/output error"):
        write_snapshot(path, state())
    assert list(path.parent.iterdir()) == []


WRITER = """
import sys
from pathlib import Path
import torch
from rlcli.record.snapshot import snapshot_state, write_snapshot
n = 0
while True:
    n += 1
    weights = {"w": torch.full((300_000,), float(n))}
    write_snapshot(Path(sys.argv[1]), snapshot_state(itr=n, cum_steps=n, agent_state_dict=weights,
        optimizer_state_dict={}, algo_state_dict={}, config={}))
    print(n, flush=True)
"""


def test_snapshot_is_whole_at_any_moment_and_after_sigkill(path, start_python):
    writer = start_python(WRITER, path)
    for _ in range(5):
        written = int(writer.stdout.readline())
        content = read_snapshot(path)
        assert content["itr"] >= written
        assert torch.equal(content["agent_state_dict"]["w"], torch.full((300_000,), float(content["itr"])))
    writer.kill()
    writer.wait()
    content = read_snapshot(path)

    assert torch.equal(content["agent_state_dict"]["w"], torch.full((300_000,), float(content["itr"])))


# Reading trusts nothing


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def cut_short(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_weight(path):
    data = bytearray(path.read_bytes())
    data[data.index(np.full(6, 1.0, np.float32).tobytes())] ^= 1
    path.write_bytes(data)


def plain_pickle(path):
    path.write_bytes(pickle.dumps({"format": 1, "x": Malicious(str(path.parent / "owned"))}))


def pickle_in_an_archive(path):
    torch.save({"format": 1, "x": Malicious(str(path.parent / "owned"))}, path)


def other_archive(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello.txt", "hello")


FAULTS = [
    (lambda path: path.unlink(), "no such file"),
    (lambda path: path.write_bytes(b""), "damaged, cut short or not a snapshot"),
    (lambda path: path.write_text("a,b\n1,2\n"), "damaged, cut short or not a snapshot"),
    (cut_short, "damaged, cut short or not a snapshot"),
    (flip_a_weight, "does not match its checksum"),
    (plain_pickle, "damaged, cut short or not a snapshot"),
    (pickle_in_an_archive, "holds more than tensors and plain values; reading it could run code"),
    (other_archive, "cannot be read"),
    (lambda path: torch.save([1, 2], path), "not a snapshot of rlcli"),
    (lambda path: torch.save({"agent_state_dict": {}}, path), "not a snapshot of rlcli"),
    (lambda path: torch.save(state() | {"format": 2}, path), "has format 2, this rlcli reads format 1"),
    (lambda path: torch.save({"format": 1, "itr": 3}, path), "cum_steps, agent_state_dict, .* missing"),
]


@pytest.mark.parametrize(("spoil", "reason"), FAULTS)
def test_file_that_is_no_good_snapshot_is_one_line_with_path_and_reason(path, spoil, reason):
    write_snapshot(path, state())
    spoil(path)

    with pytest.raises(SnapshotError, match=reason) as caught:
        read_snapshot(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    assert not (path.parent / "owned").exists()


def test_folder_is_no_snapshot(tmp_path):
    with pytest.raises(SnapshotError, match="is a folder"):
        read_snapshot(tmp_path)


# Does a file fit


def test_equal_names_and_shapes_fit_whatever_the_values():
    assert state_mismatches({"a": {"w": torch.zeros(2)}, "n": 1}, {"a": {"w": torch.ones(2)}, "n": 2}) == []


@pytest.mark.parametrize(
    ("expected", "given", "lines"),
    [
        (
            {"trunk": {"fc.weight": torch.zeros(256, 3136)}},
            {"trunk": {"fc.weight": torch.zeros(512, 3136)}},
            ["trunk.fc.weight: file has (512, 3136), this run needs (256, 3136)"],
        ),
        (
            {"w": torch.zeros(2), "b": torch.zeros(3)},
            {"w": torch.zeros(2)},
            ["b: missing in the file, this run needs (3,)"],
        ),
        (
            {"w": torch.zeros(2)},
            {"w": torch.zeros(2), "target": {"w": torch.zeros(2)}},
            ["target: file has a group of 1, this run has no such name"],
        ),
        ({"w": torch.zeros(2)}, {"w": 3}, ["w: file has a number or text, this run needs (2,)"]),
        (
            {"w": {"a": torch.zeros(2)}},
            {"w": torch.zeros(2)},
            ["w: file has (2,), this run needs a group of 1"],
        ),
        (
            {"g": [{"p": [0, 1]}]},
            {"g": [{"p": [0]}]},
            ["g.0.p.1: missing in the file, this run needs a number or text"],
        ),
        ({"s": torch.zeros(())}, {"s": torch.zeros(1)}, ["s: file has (1,), this run needs ()"]),
    ],
)
def test_each_difference_is_named_with_both_sides(expected, given, lines):
    assert state_mismatches(expected, given) == lines


def test_prefix_is_put_before_each_name():
    lines = state_mismatches({"w": torch.zeros(2)}, {}, prefix="agent_state_dict")

    assert lines == ["agent_state_dict.w: missing in the file, this run needs (2,)"]


def test_five_differences_are_named_and_the_rest_counted():
    lines = state_mismatches({str(i): torch.zeros(i) for i in range(12)}, {})

    assert len(lines) == 6
    assert lines[4].startswith("4: missing")
    assert lines[5] == "and 7 more"
