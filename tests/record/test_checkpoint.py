"""The newest whole checkpoint wins, and at any moment there is one."""

import contextlib
import json
import os
import resource
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from rlcli.core.errors import SnapshotError
from rlcli.record.checkpoint import FORMAT, Checkpoints, complete, newest_first, read_checkpoint
from rlcli.replay.config import UniformReplayConfig
from tests.replay.conftest import Stream

FILES = ("state.tree", "replay.tree", "progress.csv", "manifest.json")
ROWS = "a,b\n1,2\n3,nan\n"


def state_at(step):
    return {"step": step, "weights": torch.full((50,), float(step)), "nested": {"tuple": (step, None)}}


@pytest.fixture
def run(tmp_path):
    (tmp_path / "progress.csv").write_text(ROWS)
    return tmp_path


@pytest.fixture
def checkpoints(run):
    return Checkpoints(run, None)


def names(run):
    return sorted(path.name for path in (run / "checkpoint").iterdir())


def loadable(run):
    """Steps of those that can be read, newest first, and what was said of the others."""
    said = []
    return [loaded.state["step"] for loaded in newest_first(run, said.append)], said


def newest(run):
    return next(newest_first(run, lambda line: None))


def damage(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


# what is kept


def test_a_run_without_checkpoints_has_none(run):
    assert [] == complete(run)
    assert ([], []) == loadable(run)


def test_what_was_saved_is_loaded(run, checkpoints):
    checkpoints.save(100, state_at(100))

    loaded = newest(run)

    assert (100, None, ROWS) == (loaded.step, loaded.replay_state, loaded.rows)
    assert run / "checkpoint" / "000000000100" == loaded.path
    assert torch.equal(torch.full((50,), 100.0), loaded.state["weights"])
    assert {"tuple": (100, None)} == loaded.state["nested"]


def test_the_newest_wins_and_the_last_two_are_kept(run, checkpoints):
    for step in (5, 90, 100, 1000):
        checkpoints.save(step, state_at(step))

    assert ([1000, 100], []) == loadable(run)
    assert ["000000000100", "000000001000"] == names(run)


def test_rows_are_those_of_the_moment(run, checkpoints):
    checkpoints.save(100, state_at(100))
    (run / "progress.csv").write_text(ROWS + "5,6\n")
    checkpoints.save(200, state_at(200))

    assert [ROWS + "5,6\n", ROWS] == [loaded.rows for loaded in newest_first(run, print)]


def test_a_run_without_progress_csv_has_no_rows(run, checkpoints):
    (run / "progress.csv").unlink()
    checkpoints.save(100, state_at(100))

    assert "" == newest(run).rows


def test_the_same_step_saved_again_replaces_the_first_and_takes_no_place_of_another(run, checkpoints):
    for step, value in ((100, 1), (200, 2), (200, 3)):
        checkpoints.save(step, {**state_at(step), "value": value})

    assert [3, 1] == [loaded.state["value"] for loaded in newest_first(run, print)]


def test_cost_is_that_of_all_on_disk(run, checkpoints):
    checkpoints.save(100, state_at(100))
    written = checkpoints.save(200, state_at(200))

    on_disk = sum(path.stat().st_size for path in (run / "checkpoint").rglob("*") if path.is_file())
    assert on_disk == written.n_bytes
    assert 0 < written.seconds < 60


# not finished


def unfinished(run, step):
    """What a kill in the middle of a save leaves."""
    left = run / "checkpoint" / f".new-{step:012d}"
    shutil.copytree(complete(run)[0], left)
    (left / "manifest.json").unlink()
    return left


def test_an_unfinished_one_is_ignored_and_removed_at_the_next_save(run, checkpoints):
    checkpoints.save(100, state_at(100))
    left, same = unfinished(run, 150), unfinished(run, 200)

    assert ([100], []) == loadable(run)
    again = Checkpoints(run, None)
    again.note_loaded(newest(run))
    assert left.exists()
    again.save(200, state_at(200))

    assert not left.exists()
    assert not same.exists()
    assert ([200, 100], []) == loadable(run)


@pytest.mark.parametrize(
    "point",
    [(Path, "mkdir", [200, 100]), (Path, "rename", [200, 100]), (Checkpoints, "_remove_older", [300, 200, 100])],
    ids=["at its beginning", "before it is in place", "before the oldest is removed"],
)
def test_a_kill_in_the_middle_of_a_save_leaves_the_one_before(run, checkpoints, monkeypatch, point):
    class KilledError(BaseException):
        pass

    def kill(*args, **rest):
        raise KilledError

    checkpoints.save(100, state_at(100))
    checkpoints.save(200, state_at(200))
    owner, name, expected = point
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, kill)
        with pytest.raises(KilledError):
            checkpoints.save(300, state_at(300))

    assert (expected, []) == loadable(run)
    again = Checkpoints(run, None)
    again.note_loaded(newest(run))
    again.save(400, state_at(400))
    assert ([400, expected[0]], []) == loadable(run)


def test_everything_is_on_the_disk_before_the_name_is_there(run, checkpoints, monkeypatch):
    events = []
    fsync, rename = os.fsync, Path.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append(str(Path(f"/proc/self/fd/{fd}").readlink())), fsync(fd)))
    monkeypatch.setattr(Path, "rename", lambda path, to: (events.append("rename"), rename(path, to)))

    checkpoints.save(100, state_at(100))

    folder = run / "checkpoint"
    new = folder / ".new-000000000100"
    before, after = events[: events.index("rename")], events[events.index("rename") + 1 :]
    assert {str(new / name) for name in FILES} | {str(new)} == set(before)
    assert [str(folder)] == after


# abandoned


def test_a_damaged_newer_one_stays_until_the_next_save_and_never_counts_as_one_of_two(run, checkpoints):
    for step in (100, 200):
        checkpoints.save(step, state_at(step))
    damage(run / "checkpoint" / "000000000200" / "state.tree")
    again = Checkpoints(run, None)
    again.note_loaded(newest(run))

    assert ["000000000100", "000000000200"] == names(run)
    again.save(150, state_at(150))

    assert ["000000000100", "000000000150"] == names(run)
    assert ([150, 100], []) == loadable(run)


def test_a_damaged_newer_one_is_replaced_by_a_save_at_its_own_step(run, checkpoints):
    for step in (100, 200):
        checkpoints.save(step, state_at(step))
    damage(run / "checkpoint" / "000000000200" / "state.tree")
    again = Checkpoints(run, None)
    again.note_loaded(newest(run))
    again.save(200, state_at(200))

    assert ([200, 100], []) == loadable(run)
    again.save(300, state_at(300))
    assert ([300, 200], []) == loadable(run)


# damage


@pytest.mark.parametrize("how", ["changed", "cut", "empty", "missing"])
@pytest.mark.parametrize("file", FILES)
def test_damage_to_any_file_is_found_told_and_the_one_before_taken(run, checkpoints, file, how):
    for step in (100, 200):
        checkpoints.save(step, state_at(step))
    path = run / "checkpoint" / "000000000200" / file
    if how == "changed":
        damage(path)
    elif how == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 if how == "cut" else 0])

    steps, said = loadable(run)

    assert [100] == steps
    (line,) = said
    assert line.startswith(f"checkpoint left out: {run / 'checkpoint' / '000000000200'}")
    assert "\n" not in line


def test_a_manifest_with_any_one_byte_changed_is_refused_or_means_the_same(run, checkpoints):
    checkpoints.save(123, state_at(123))
    path = run / "checkpoint" / "000000000123" / "manifest.json"
    whole = path.read_bytes()
    for position in range(len(whole)):
        for mask in (0x01, 0x02, 0x80):
            changed = bytearray(whole)
            changed[position] ^= mask
            path.write_bytes(changed)
            with contextlib.suppress(SnapshotError):
                loaded = read_checkpoint(path.parent)
                assert (123, ROWS) == (loaded.step, loaded.rows), bytes(changed)


def test_a_progress_csv_with_any_one_byte_changed_is_refused(run, checkpoints):
    checkpoints.save(100, state_at(100))
    path = run / "checkpoint" / "000000000100" / "progress.csv"
    for position in range(len(ROWS)):
        changed = bytearray(ROWS.encode())
        changed[position] ^= 0x01
        path.write_bytes(changed)
        with pytest.raises(SnapshotError, match=r"progress\.csv: damaged: it does not match its checksum"):
            read_checkpoint(path.parent)


def test_another_format_number_is_told_before_anything_else_is_looked_at(run, checkpoints):
    checkpoints.save(100, state_at(100))
    path = run / "checkpoint" / "000000000100"
    (path / "manifest.json").write_text(json.dumps({"format": FORMAT + 1, "step": 100}))
    (path / "state.tree").unlink()

    with pytest.raises(SnapshotError, match=rf"^{path}: has format {FORMAT + 1}, this rlcli reads format {FORMAT}$"):
        read_checkpoint(path)


@pytest.mark.parametrize("text", ["[]", "null", '"text"', "{}", '{"format": 1, "step": 100, "files": 5}'])
def test_a_manifest_that_is_something_else_is_damage(run, checkpoints, text):
    checkpoints.save(100, state_at(100))
    (run / "checkpoint" / "000000000100" / "manifest.json").write_text(text)

    with pytest.raises(SnapshotError, match="damaged"):
        read_checkpoint(run / "checkpoint" / "000000000100")


# a full disk, a folder that cannot be written to


@contextlib.contextmanager
def no_room(size):
    """Lets no file grow beyond some bytes, as a full disk would; for the call alone, since pytest writes files too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [0, 10, 400, 2_000])
def test_a_full_disk_names_the_path_and_leaves_the_older_ones(run, checkpoints, size):
    for step in (100, 200):
        checkpoints.save(step, state_at(step))
    large = {**state_at(300), "large": np.zeros(10_000)}

    named = r"checkpoint/\S*000000000300\S*: .*not written: File too large"
    with pytest.raises(SnapshotError, match=named), no_room(size):
        checkpoints.save(300, large)

    assert ([200, 100], []) == loadable(run)
    checkpoints.save(300, large)
    assert ["000000000200", "000000000300"] == names(run)


@pytest.fixture
def folder_for_all():
    """A run folder that any user can reach, unlike pytest's."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        (Path(name) / "progress.csv").write_text(ROWS)
        yield Path(name)


@contextlib.contextmanager
def without_privileges():
    """As a user whom file modes bind; they do not bind root."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.parametrize("has_older", [False, True])
def test_a_read_only_folder_is_named_and_what_is_in_it_stays_loadable(folder_for_all, has_older):
    run = folder_for_all
    checkpoints = Checkpoints(run, None)
    if has_older:
        checkpoints.save(100, state_at(100))
        (run / "checkpoint").chmod(0o555)
    run.chmod(0o555)

    with without_privileges():
        with pytest.raises(SnapshotError) as error:
            checkpoints.save(200, state_at(200))
        steps = loadable(run)[0]

    run.chmod(0o755)
    path = run / "checkpoint" / "000000000200"
    assert f"{path}: checkpoint not written: Permission denied; the one before it stays" == str(error.value)
    assert [100] * has_older == steps


# the replay


class Filling:
    """A replay of 80 rows that is filled a few rows at a time, in small files."""

    def __init__(self):
        self.stream = Stream(["." * 400, "." * 400])
        self.replay = self.fresh()
        self.n_rows = 0

    def fresh(self):
        config = UniformReplayConfig(size=160)
        return config.build(self.stream.spec, 2, seed=0, discount=0.9, n_step=1)

    def add(self, n):
        for row in range(self.n_rows, self.n_rows + n, 5):
            self.replay.append(self.stream.samples(row, row + 5))
        self.n_rows += n

    def check(self, loaded, n_rows):
        """What is loaded is the replay as it was after ``n_rows``."""
        replay = self.fresh()
        replay.load(loaded.replay_folder, loaded.replay_state)
        twin = self.fresh()
        for row in range(0, n_rows, 5):
            twin.append(self.stream.samples(row, row + 5))
        places = twin.eligible()
        assert np.array_equal(places, replay.eligible())
        assert len(twin)
        expected, got = (each.sample(200) for each in (twin, replay))
        assert torch.equal(expected.obs, got.obs)
        assert torch.equal(expected.action, got.action)


@pytest.fixture
def filling(monkeypatch):
    monkeypatch.setattr("rlcli.replay.log.SEGMENT_BYTES", 1_500)
    return Filling()


def replay_files(run):
    return sorted(path.name for path in (run / "checkpoint" / "replay").iterdir())


def test_each_kept_checkpoint_has_its_replay_and_files_that_none_needs_go(run, filling):
    checkpoints, seen = Checkpoints(run, filling.replay), set()
    for step in range(20, 400, 20):
        filling.add(20)
        checkpoints.save(step, state_at(step))
        seen |= set(replay_files(run))
        for loaded in newest_first(run, pytest.fail):
            filling.check(loaded, loaded.step)

    assert len(replay_files(run)) < len(seen) / 2  # 19 saves of 20 rows; 80 + 20 rows are needed


def test_a_resumed_run_keeps_what_the_checkpoint_before_needs_as_long_as_it_is_kept(run, filling):
    checkpoints = Checkpoints(run, filling.replay)
    for step in (100, 200):
        filling.add(100)
        checkpoints.save(step, state_at(step))
    loaded = newest(run)
    resumed = filling.fresh()
    resumed.load(loaded.replay_folder, loaded.replay_state)
    filling.replay, before = resumed, set(replay_files(run))

    again = Checkpoints(run, resumed)
    again.note_loaded(loaded)
    filling.add(100)
    again.save(300, state_at(300))
    for each in newest_first(run, pytest.fail):
        filling.check(each, each.step)
    filling.add(80)
    again.save(380, state_at(380))
    for each in newest_first(run, pytest.fail):
        filling.check(each, each.step)
    assert not before & set(replay_files(run))


def test_an_abandoned_checkpoint_keeps_no_replay_files_beyond_the_next_save(run, filling):
    checkpoints = Checkpoints(run, filling.replay)
    filling.add(20)
    checkpoints.save(20, state_at(20))
    older = set(replay_files(run))
    filling.add(200)
    checkpoints.save(220, state_at(220))
    newer = set(replay_files(run)) - older
    damage(run / "checkpoint" / "000000000220" / "state.tree")
    loaded = newest(run)
    filling.replay, filling.n_rows = filling.fresh(), 20
    filling.replay.load(loaded.replay_folder, loaded.replay_state)

    again = Checkpoints(run, filling.replay)
    again.note_loaded(loaded)
    assert newer <= set(replay_files(run))
    filling.add(20)
    again.save(40, state_at(40))

    assert not newer & set(replay_files(run))
    for each in newest_first(run, pytest.fail):
        filling.check(each, each.step)


def test_an_older_one_that_is_damaged_does_not_keep_a_run_from_going_on(run, filling):
    checkpoints = Checkpoints(run, filling.replay)
    for step in (20, 40):
        filling.add(20)
        checkpoints.save(step, state_at(step))
    damage(run / "checkpoint" / "000000000020" / "replay.tree")

    again = Checkpoints(run, filling.replay)
    again.note_loaded(newest(run))
    filling.add(20)
    again.save(60, state_at(60))

    assert ([60, 40], []) == loadable(run)


def test_a_full_disk_while_the_replay_is_written_leaves_older_ones_whole(run, filling):
    checkpoints = Checkpoints(run, filling.replay)
    for step in (20, 40):
        filling.add(20)
        checkpoints.save(step, state_at(step))
    filling.add(100)

    with pytest.raises(SnapshotError, match=r"checkpoint/replay/rows_\d+\.log: not written"), no_room(700):
        checkpoints.save(140, state_at(140))

    assert ([40, 20], []) == loadable(run)
    for each in newest_first(run, pytest.fail):
        filling.check(each, each.step)
    checkpoints.save(140, state_at(140))
    filling.check(newest(run), 140)
