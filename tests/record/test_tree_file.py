"""A plain tree comes back as it was, or not at all."""

import contextlib
import json
import math
import pickle
import resource
import struct
import zipfile
from enum import IntEnum

import numpy as np
import pytest
import torch

from rlcli.core.errors import SnapshotError
from rlcli.record.tree_file import read_tree, write_tree

TREE = {
    "numbers": [1, -2.5, True, None, 2**130],
    "keys": {3: "three", "$array": (1, [2])},
    "array": np.arange(6, dtype=np.uint16).reshape(2, 3),
    "tensor": torch.arange(4.0),
}


def after_a_round_trip(tmp_path, tree):
    write_tree(tmp_path / "x.tree", tree)
    return read_tree(tmp_path / "x.tree")


def as_text(tree):
    """Every kind, dtype, shape and bit of a tree; equal texts mean equal trees."""
    if isinstance(tree, dict):
        return f"dict{[(as_text(k), as_text(v)) for k, v in tree.items()]}"
    if isinstance(tree, list | tuple):
        return f"{type(tree).__name__}{[as_text(item) for item in tree]}"
    if isinstance(tree, np.ndarray | np.generic):
        return f"{type(tree).__name__} {tree.dtype} {tree.shape} {tree.tobytes()!r}"
    if isinstance(tree, torch.Tensor):
        bits = tree.detach().contiguous().reshape(-1).view(torch.uint8).tolist() if tree.numel() else []
        return f"tensor {tree.dtype} {tuple(tree.shape)} {bits}"
    return f"{type(tree).__name__} {tree.hex() if type(tree) is float else tree!r}"


# plain values and containers


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -1,
        2**63,
        -(2**200) + 1,
        0.1,
        -0.0,
        5e-324,
        1.7976931348623157e308,
        math.inf,
        -math.inf,
        math.nan,
        "",
        'ü\n"\\ \U0001f600 \ud800',
        "$tuple",
        b"",
        b"\x00\xffbytes",
        [],
        (),
        {},
        [1, [2, (3, [4])]],
        ((),),
        (1,),
    ],
    ids=repr,
)
def test_every_plain_value_comes_back_as_its_own_kind_to_the_last_bit(tmp_path, value):
    assert as_text(value) == as_text(after_a_round_trip(tmp_path, value))


@pytest.mark.parametrize(
    "mapping",
    [
        {"a": 1, "b": {"c": 2}},
        {0: "int", 1: "int"},
        {True: 1, None: 2, 2.5: 3, (1, "a"): 4, "text": 5},
        {"$array": 1},
        {"$tensor": [1], "dtype": "float32", "shape": [1]},
        {"$dict": [[1, 2]]},
        {"$own": {"$bytes": 0}},
        {"": 1, "a.b": 2},
    ],
    ids=repr,
)
def test_keys_of_any_plain_kind_and_those_that_look_like_the_files_own_marks_come_back(tmp_path, mapping):
    assert as_text(mapping) == as_text(after_a_round_trip(tmp_path, mapping))


def test_order_of_keys_stays(tmp_path):
    assert ["z", "a", "m"] == list(after_a_round_trip(tmp_path, {"z": 1, "a": 2, "m": 3}))


def test_other_mappings_come_back_as_dicts(tmp_path):
    given = torch.nn.Linear(2, 1).state_dict()  # an OrderedDict

    assert as_text(dict(given)) == as_text(after_a_round_trip(tmp_path, given))


# numpy


@pytest.mark.parametrize("dtype", ["?", "u1", "u2", "u4", "u8", "i1", "i8", "f2", "f4", "f8", "c16", ">i4", "S3", "U2"])
def test_arrays_of_every_dtype_come_back(tmp_path, dtype):
    array = np.array([[0, 1], [1, 0]]).astype(dtype)

    assert as_text(array) == as_text(after_a_round_trip(tmp_path, array))


@pytest.mark.parametrize(
    "array",
    [
        np.array(7, np.uint16),
        np.zeros((0,)),
        np.zeros((2, 0, 3), np.float32),
        np.arange(24).reshape(2, 3, 4)[:, ::2, ::-1],
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "i4"), ("b", "f8")]),
        np.array([np.nan, -0.0, np.inf]),
        np.array(["2026-11-30"], dtype="M8[D]"),
    ],
    ids=["0-d", "empty", "empty with a shape", "with strides", "Fortran", "structured", "nan and -0.0", "dates"],
)
def test_arrays_of_every_shape_and_layout_come_back(tmp_path, array):
    assert as_text(array) == as_text(after_a_round_trip(tmp_path, array))


@pytest.mark.parametrize("scalar", [np.float64(0.1), np.float32(-0.0), np.uint16(9), np.bool_(True), np.str_("é")])
def test_numpy_scalars_stay_numpy_scalars(tmp_path, scalar):
    assert as_text(scalar) == as_text(after_a_round_trip(tmp_path, scalar))


def test_arrays_that_were_read_can_be_written_to(tmp_path):
    got = after_a_round_trip(tmp_path, {"numpy": np.zeros(3), "torch": torch.zeros(3)})

    got["numpy"][0] = got["torch"][0] = 1


# torch


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.bool,
        torch.uint8,
        torch.int16,
        torch.int64,
        torch.complex64,
        torch.float8_e4m3fn,
    ],
)
def test_tensors_of_every_dtype_come_back(tmp_path, dtype):
    tensor = torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]).to(dtype)

    assert as_text(tensor) == as_text(after_a_round_trip(tmp_path, tensor))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(2.5),
        torch.tensor(True),
        torch.empty(0),
        torch.empty(2, 0, 3, dtype=torch.bfloat16),
        torch.arange(24.0).reshape(2, 3, 4).transpose(0, 2)[::2],
        torch.arange(48.0).reshape(2, 3, 2, 4).contiguous(memory_format=torch.channels_last),
        torch.ones(2, requires_grad=True),
        torch.nn.Parameter(torch.ones(2)),
    ],
    ids=["0-d", "0-d bool", "empty", "empty with a shape", "strides", "channels_last", "with a gradient", "parameter"],
)
def test_tensors_of_every_shape_and_layout_come_back(tmp_path, tensor):
    assert as_text(tensor) == as_text(after_a_round_trip(tmp_path, tensor))


def test_a_view_does_not_drag_its_large_storage_along(tmp_path):
    write_tree(tmp_path / "x.tree", {"view": torch.zeros(1_000_000)[:3], "array": np.zeros(1_000_000)[::400_000]})

    assert (tmp_path / "x.tree").stat().st_size < 2_000


# what is not plain


class Colour(IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("Colour", Colour.RED),
        ("set", {1}),
        ("object", object()),
        ("ndarray", np.array([None])),
        ("ndarray", np.array([(1, None)], dtype=[("a", "i4"), ("b", "O")])),
        ("bytearray", bytearray(b"x")),
    ],
    ids=["enum", "set", "object", "object array", "structured with objects", "bytearray"],
)
def test_what_is_not_plain_is_refused_at_its_place(tmp_path, kind, value):
    with pytest.raises(TypeError, match=rf"^a\.1\.b: a {kind} is not plain$"):
        write_tree(tmp_path / "x.tree", {"a": [0, {"b": value}]})


# damage


def content_positions(path):
    """Where in an archive the bytes of its parts lie; the rest are names, dates, sizes and checksums."""
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        parts = [archive.read(name) for name in archive.namelist()]
    return {whole.index(part) + i for part in parts for i in range(len(part))}


def test_a_file_with_any_one_byte_changed_is_refused_or_reads_the_same(tmp_path):
    path = tmp_path / "x.tree"
    write_tree(path, TREE)
    whole, read_the_same = path.read_bytes(), set()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10 if position % 2 else 0xFF
        path.write_bytes(damaged)
        with contextlib.suppress(SnapshotError):
            assert as_text(TREE) == as_text(read_tree(path)), position
            read_the_same.add(position)

    path.write_bytes(whole)
    assert not read_the_same & content_positions(path)
    assert len(content_positions(path)) > len(whole) // 2


def test_an_array_whose_header_asks_for_less_than_there_is_is_refused(tmp_path):
    """Of a large one the rest would stay unread, and with it the checksum uncompared."""
    path = tmp_path / "x.tree"
    write_tree(path, np.zeros(90_000, np.uint8))
    whole = path.read_bytes()
    assert whole.count(b"(90000,)") == 1
    path.write_bytes(whole.replace(b"(90000,)", b"(10000,)"))

    with pytest.raises(SnapshotError, match="bytes after the end of an array"):
        read_tree(path)


def test_a_file_cut_anywhere_is_refused(tmp_path):
    path = tmp_path / "x.tree"
    write_tree(path, TREE)
    whole = path.read_bytes()
    for size in range(0, len(whole), 3):
        path.write_bytes(whole[:size])
        with pytest.raises(SnapshotError, match=r"x\.tree: damaged, cut short or not a file of rlcli: .+$"):
            read_tree(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SnapshotError, match=r"nothing\.tree: no such file$"):
        read_tree(tmp_path / "nothing.tree")


@pytest.mark.parametrize(
    "text", ['{"$tensor": 0, "dtype": "load", "shape": [1]}', '{"$array": 5}', "{", '{"$tuple": 3}']
)
def test_a_tree_that_makes_no_sense_is_refused(tmp_path, text):
    path = tmp_path / "x.tree"
    write_tree(path, np.zeros(1, np.uint8))
    with zipfile.ZipFile(path) as archive:
        array = archive.read("0.npy")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("0.npy", array)
        archive.writestr("tree.json", text)

    with pytest.raises(SnapshotError, match=r"x\.tree: damaged"):
        read_tree(path)


class Canary:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return exec, (f"open({str(self.path)!r}, 'w').close()",)


def test_an_archive_that_holds_pickled_objects_is_refused_unexecuted(tmp_path):
    path, canary = tmp_path / "x.tree", tmp_path / "executed"
    with zipfile.ZipFile(path, "w") as archive:
        with archive.open("0.npy", "w") as file:
            np.lib.format.write_array(file, np.array([Canary(canary)]), allow_pickle=True)
        archive.writestr("tree.json", json.dumps({"$array": 0}))

    with pytest.raises(SnapshotError, match="damaged, cut short or not a file of rlcli: Object arrays"):
        read_tree(path)
    assert not canary.exists()


def test_a_pickle_is_refused_unexecuted(tmp_path):
    path, canary = tmp_path / "x.tree", tmp_path / "executed"
    path.write_bytes(pickle.dumps(Canary(canary)))

    with pytest.raises(SnapshotError, match="not a file of rlcli"):
        read_tree(path)
    assert not canary.exists()


def test_an_array_that_claims_more_than_memory_is_refused(tmp_path):
    path = tmp_path / "x.tree"
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000000,), }".ljust(117) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("0.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        archive.writestr("tree.json", '{"$array": 0}')

    with pytest.raises(SnapshotError, match=r"x\.tree: damaged"):
        read_tree(path)


# a full disk


@contextlib.contextmanager
def no_room(size):
    """Lets no file grow beyond some bytes, as a full disk would; for the call alone, since pytest writes files too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.95])
@pytest.mark.parametrize("n_floats", [10, 100_000])
def test_a_full_disk_names_the_path_wherever_it_comes(tmp_path, n_floats, share):
    """In an array, in the tree, in the archive's directory; in a buffered write or in the last flush."""
    path = tmp_path / "x.tree"
    tree = {"a": np.zeros(n_floats), "b": torch.zeros(n_floats), "c": [1.5] * n_floats}
    write_tree(path, tree)
    size = path.stat().st_size

    with pytest.raises(SnapshotError, match=r"x\.tree: not written: File too large"), no_room(int(share * size)):
        write_tree(path, tree)
    with pytest.raises(SnapshotError):
        read_tree(path)


def test_a_missing_folder_is_told_by_the_path(tmp_path):
    with pytest.raises(SnapshotError, match=r"none/x\.tree: not written: No such file or directory"):
        write_tree(tmp_path / "none" / "x.tree", 1)


def test_the_file_is_on_the_disk_before_the_writer_returns(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("os.fsync", synced.append)

    write_tree(tmp_path / "x.tree", TREE)

    assert synced
