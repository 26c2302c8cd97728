"""Memory that processes share: the same bytes in all, room checked before, nothing left behind."""

import copy
import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rlcli.core import machine
from rlcli.core.errors import RlcliError
from rlcli.samplers.shared import SharedTree, need_open_files
from tests.samplers.shared_probes import answer

MB = 10**6
ROOT = Path(__file__).parents[2]
needs_proc = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads Linux's /proc")


def of_bytes(n):
    """An example that costs nothing."""
    return SimpleNamespace(shape=(n,), dtype=np.uint8)


def mappings():
    return Path("/proc/self/maps").read_text().count("memfd:rlcli")


@pytest.fixture
def memory_of_16_mb(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "available_memory", lambda: 16 * MB)
    monkeypatch.setattr("psutil.disk_partitions", lambda all: [])  # the test's own folder may lie in memory
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_tree_has_the_example_s_shapes_and_dtypes_and_is_zero():
    example = {
        "a": np.ones((2, 3), np.float32),
        "b": {"c": np.ones((), bool)},
        "d": None,
        "e": np.ones((0, 4), np.int64),
    }
    shared = SharedTree(example)
    tree = shared.tree
    shared.close()

    assert ["a", "b", "d", "e"] == list(tree)
    assert tree["d"] is None
    assert [((2, 3), np.float32), ((), bool), ((0, 4), np.int64)] == [
        (leaf.shape, leaf.dtype) for leaf in (tree["a"], tree["b"]["c"], tree["e"])
    ]
    assert not tree["a"].any()
    assert not tree["b"]["c"]


def test_leaves_begin_on_cache_lines_of_their_own():
    shared = SharedTree({"a": of_bytes(1), "b": of_bytes(65), "c": np.zeros(3)})
    addresses = [leaf.ctypes.data for leaf in shared.tree.values()]
    shared.close()

    assert [0, 0, 0] == [address % 64 for address in addresses]
    assert [64, 128] == np.diff(addresses).tolist()
    assert 64 + 128 + 64 == shared.n_bytes


def test_tree_of_nothing_is_nothing():
    shared = SharedTree(None)

    assert shared.tree is None
    shared.close()


def test_torch_example_gives_numpy_arrays_of_its_dtype():
    shared = SharedTree(torch.zeros((2, 1), dtype=torch.int32))
    tree = shared.tree
    shared.close()

    assert (np.dtype(np.int32), (2, 1)) == (tree.dtype, tree.shape)


def test_python_objects_are_refused_by_path():
    with pytest.raises(TypeError, match=r"^obs\.text: processes cannot share an array of Python objects"):
        SharedTree({"obs": {"text": np.array(["x"], object)}})


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # newer Pythons warn of threads; the child uses none
@pytest.mark.parametrize("in_file", [False, True], ids=["memory", "file"])
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_child_reads_what_the_parent_wrote_and_the_reverse(method, in_file, request):
    if in_file:
        request.getfixturevalue("memory_of_16_mb")
    example = {"question": np.zeros(5), "answer": np.zeros(5), "torch": np.zeros((), bool), "rest": of_bytes(20 * MB)}
    shared = SharedTree(example, say=lambda line: None)
    shared.tree["question"][:] = np.arange(5)
    child = multiprocessing.get_context(method).Process(target=answer, args=(shared,))
    child.start()
    child.join(60)
    tree = shared.tree
    shared.close()

    assert 0 == child.exitcode
    assert [1, 2, 3, 4, 5] == tree["answer"].tolist()
    assert (method == "fork") == tree["torch"]  # a new process loads only what it is asked for


@pytest.mark.parametrize("send", [pickle.dumps, copy.copy], ids=["pickle", "copy"])
def test_it_goes_to_a_process_only_at_its_start(send):
    shared = SharedTree(np.zeros(3))
    with pytest.raises(RuntimeError, match="SharedTree objects should only be shared"):
        send(shared)
    shared.close()


def test_closing_twice_is_harmless_and_ends_the_tree():
    shared = SharedTree(np.zeros(3))
    shared.close()
    shared.close()

    with pytest.raises(ValueError, match="closed"):
        _ = shared.tree


def test_closed_tree_cannot_be_given_to_a_process():
    shared = SharedTree(np.zeros(3))
    shared.close()
    child = multiprocessing.get_context("spawn").Process(target=answer, args=(shared,))

    with pytest.raises(ValueError, match="closed"):
        child.start()


@needs_proc
def test_array_held_elsewhere_stays_valid_after_close_and_frees_the_memory_when_it_goes():
    before = mappings()
    shared = SharedTree({"a": np.zeros(1000), "b": np.zeros(10)})
    held = torch.as_tensor(shared.tree["a"][10:20])
    shared.close()
    held += 3

    assert [3.0] * 10 == held.tolist()
    assert before + 1 == mappings()
    del held
    assert before == mappings()


@needs_proc
def test_one_tree_costs_one_descriptor():
    before, _ = machine.open_files()
    shared = SharedTree({"a": np.zeros(1000), "b": np.zeros(10)})
    during, _ = machine.open_files()
    shared.close()

    assert 1 == during - before
    assert before == machine.open_files()[0]


@needs_proc
def test_tree_that_is_forgotten_gives_all_back():
    before = machine.open_files()[0], mappings()
    SharedTree(np.zeros(3))
    gc.collect()

    assert before == (machine.open_files()[0], mappings())


@needs_proc
def test_200_trees_made_and_closed_leave_nothing():
    before = machine.open_files()[0], mappings()
    for _ in range(200):
        shared = SharedTree({"a": of_bytes(100_000), "b": np.zeros(10)})
        shared.tree["a"][:] = 1
        shared.close()

    assert before == (machine.open_files()[0], mappings())


@needs_proc
@pytest.mark.parametrize("n_free", [2**40, 0], ids=["memory", "file"])
def test_killed_process_leaves_no_name_behind(n_free, tmp_path):
    code = f"""
import sys
import psutil
from rlcli.core import machine
machine.available_memory, psutil.disk_partitions = (lambda: {n_free}), (lambda all: [])
from rlcli.samplers.shared import SharedTree
from numpy import zeros
shared = SharedTree(zeros(1000), say=lambda line: None)
shared.tree[:] = 1
print("made", flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    with process:
        line = process.stdout.readline()
        maps = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
        names = list(tmp_path.iterdir())
        process.kill()

    shared = [row for row in maps if row.split()[1] == "rw-s"]
    assert "made\n" == line
    assert 1 == len(shared)
    assert shared[0].endswith("(deleted)")
    assert "/dev/shm" not in shared[0]
    assert [] == names
    assert [] == list(tmp_path.iterdir())


@pytest.mark.usefixtures("memory_of_16_mb")
def test_what_fits_into_memory_is_there_without_a_word(tmp_path):
    said = []
    shared = SharedTree(of_bytes(15 * MB), say=said.append)
    shared.close()

    assert [] == said


@pytest.mark.usefixtures("memory_of_16_mb")
def test_what_does_not_fit_into_memory_goes_to_a_file_with_one_line(tmp_path):
    said = []
    shared = SharedTree(of_bytes(20 * MB), say=said.append)
    shared.tree[-1] = 7
    blocks = os.fstat(shared._descriptor).st_blocks
    names = list(tmp_path.iterdir())
    shared.close()

    assert [
        "sampler: the shared memory needs 20,000,000 bytes, 16,000,000 are free in memory: "
        f"it is a nameless file in {tmp_path} instead, which makes sampling slower"
    ] == said
    assert [] == names
    assert blocks * 512 >= 20 * MB  # taken at once, since a full disk met later would be a SIGBUS


@pytest.mark.usefixtures("memory_of_16_mb")
def test_what_fits_nowhere_is_refused_with_all_numbers_and_a_way_out(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=18 * MB))
    before = machine.open_files()
    with pytest.raises(RlcliError) as caught:
        SharedTree(of_bytes(20 * MB))

    assert (
        "sampler: the shared memory needs 20,000,000 bytes, 16,000,000 are free in memory; "
        f"18,000,000 are free in {tmp_path}. Make sampler.batch_B or sampler.batch_T smaller, "
        "or set TMPDIR to a folder on a larger disk"
    ) == str(caught.value)
    assert before == machine.open_files()


def test_system_that_refuses_is_quoted_for_both_places_and_leaves_no_descriptor(monkeypatch, tmp_path):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(machine, "reserve", full)
    before = machine.open_files()
    with pytest.raises(RlcliError) as caught:
        SharedTree(of_bytes(1000))

    assert 2 == str(caught.value).count("cannot be had (No space left on device)")
    assert before == machine.open_files()


def test_file_size_limit_is_an_error_and_not_a_signal():
    code = """
import resource, signal
import numpy as np
from rlcli.core.errors import RlcliError
from rlcli.samplers.shared import SharedTree
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
try:
    SharedTree(np.zeros(1_000_000))
except RlcliError as error:
    print(error)
SharedTree(np.zeros(1_000)).tree[:] = 1
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)

    assert (0, "") == (done.returncode, done.stderr)
    assert "cannot be had (files may not exceed 1,000,000 bytes (ulimit -f))" in done.stdout


def test_address_space_that_is_too_small_is_an_error_of_ours(monkeypatch):
    def refuse(*_):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("rlcli.samplers.shared._map", refuse)
    before = machine.open_files()
    with pytest.raises(RlcliError, match="1,024 bytes cannot be mapped: Cannot allocate memory") as caught:
        SharedTree(of_bytes(1024))

    assert caught.tb  # holds the half-made tree, whose descriptor is closed all the same
    assert before == machine.open_files()


def test_file_limit_is_checked_with_numbers(monkeypatch):
    monkeypatch.setattr(machine, "open_files", lambda: (20, 64))
    need_open_files(28, "sampler.n_workers: 8 workers")  # 20 + 28 + 16 to spare

    with pytest.raises(RlcliError) as caught:
        need_open_files(29, "sampler.n_workers: 8 workers")
    assert (
        "sampler.n_workers: 8 workers need 29 open files, the limit is 64 (ulimit -n 64), 20 are in use; "
        "raise it (ulimit -n 128) or ask for less"
    ) == str(caught.value)


def test_without_a_limit_any_number_of_files_is_fine(monkeypatch):
    monkeypatch.setattr(machine, "open_files", lambda: (20, None))

    need_open_files(10**9, "sampler.n_workers: 8 workers")
