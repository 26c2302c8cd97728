"""A replay that was saved and loaded goes on as one that never was."""

import pickle
import re
import subprocess
import sys
import tempfile
import tracemalloc
from contextlib import ExitStack
from dataclasses import fields
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlcli.core.errors import SnapshotError
from rlcli.core.samples import Samples
from rlcli.core.spec import EnvSpec
from rlcli.core.tree import leaves, map_tree
from rlcli.replay.config import PrioritizedReplayConfig, SequenceReplayConfig, UniformReplayConfig
from rlcli.replay.replay import Replay
from tests.replay.conftest import Stream, built
from tests.replay.test_replay_streams import words

SEGMENT_BYTES = "rlcli.replay.log.SEGMENT_BYTES"
REPOSITORY = Path(__file__).parents[2]


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def on_disk(folder):
    return sum(path.stat().st_size for path in Path(folder).iterdir())


def assert_plain(tree):
    """Nothing that a checkpoint cannot hold."""
    if isinstance(tree, dict):
        assert all(type(key) in (str, int) for key in tree)
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        for item in tree:
            assert_plain(item)
    elif isinstance(tree, np.ndarray):
        assert tree.dtype != object
    else:
        assert type(tree) in (str, int, float, bool, bytes, type(None)), type(tree)


def outcome(f, *args):
    """What a call returns as {name: array}, or the kind of error it raises."""
    try:
        batch = f(*args)
    except LookupError as error:
        return {"error": type(error)}
    both = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return dict(leaves(map_tree(np.asarray, both)))


def learn(replay, n, step=0):
    """Draw and say how much it matters, which is in what was drawn."""
    batch = replay.sample(n, step)
    replay.update_priorities(batch.row, batch.env, batch.row % 5 + 0.5 * batch.env + 0.25)
    return batch


def assert_same(one, other):
    """Two replays give the same now, and draw the same next."""
    assert len(one) == len(other)
    places, other_places = one.eligible(), other.eligible()
    np.testing.assert_array_equal(places, other_places)
    calls = [(r.batch_at, r.sample, partial(learn, r), r.sample) for r in (one, other)]
    args = [places, (1,), (3, 400), (8, 700)]
    for mine, yours, arg in zip(*calls, args, strict=True):
        left, right = outcome(mine, *arg), outcome(yours, *arg)
        assert left.keys() == right.keys()
        for name in left:
            np.testing.assert_array_equal(left[name], right[name])


@pytest.fixture
def grown(make_stream, make_replay):
    """Builds (stream, replay) with the first rows of some words appended."""

    def build(rows, text="....T_......U_...L....C0..", size=10, frame_stack=2, **settings):
        stream = make_stream([text, text[3:] + "..."], frame_stack)
        replay = make_replay(stream.spec, 2, size=2 * size, n_step=2, **settings)
        for start, stop in stream.batches(3):
            if stop <= rows:
                replay.append(stream.samples(start, stop))
        return stream, replay

    return build


class History:
    """Everything that happened to a replay, to make its never saved twin.

    Args:
        stream: What is appended.
        closing: An ExitStack that closes what is made here.
        kind: Config class of the replay.
        settings: Of the replay.
        events: ("append", (start, stop)) or ("sample", n), in order.
    """

    def __init__(self, stream, closing, kind, settings, events=()):
        self.stream, self.closing, self.kind, self.settings, self.events = stream, closing, kind, settings, list(events)

    def copy(self):
        return History(self.stream, self.closing, self.kind, self.settings, self.events)

    def fresh(self):
        replay = built(self.kind, self.settings, self.stream.spec, self.stream.n_envs, seed=3, discount=0.9, n_step=2)
        self.closing.callback(replay.close)
        return replay

    def twin(self):
        replay = self.fresh()
        for event in self.events:
            self._apply(replay, *event)
        return replay

    @property
    def head(self):
        return max((value[1] for name, value in self.events if name == "append"), default=0)

    def do(self, replay, name, value):
        self.events.append((name, value))
        self._apply(replay, name, value)

    def _apply(self, replay, name, value):
        if name == "append":
            replay.append(self.stream.samples(*value), self._priority(*value))
        else:
            outcome(learn, replay, value, 10 * self.head)

    def _priority(self, start, stop):
        if not self.settings.get("prioritized"):
            return None
        row, env = torch.meshgrid(torch.arange(start, stop), torch.arange(self.stream.n_envs), indexing="ij")
        return torch.where(row % 4 == 1, torch.nan, (row * 3 + env) % 7 / 2)

    def check(self, replay):
        """The replay equals its twin, now and after the rest of the stream."""
        twin, stop = self.twin(), self.stream.n_rows
        assert_same(twin, replay)
        if self.head < stop:
            for one in (twin, replay):
                one.append(self.stream.samples(self.head, stop))
            assert_same(twin, replay)


@pytest.mark.parametrize("kind", [UniformReplayConfig, PrioritizedReplayConfig, SequenceReplayConfig])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_sequence_of_appends_saves_and_loads_equals_a_replay_never_saved(kind, data):
    draw = data.draw
    n_envs, k = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 4]))
    stream = Stream(words(draw, 30, n_envs), k)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder, ExitStack() as closing:
        patch.setattr(SEGMENT_BYTES, draw(st.sampled_from([1, 300, 2000, 10**6])))
        log = Path(folder) / "replay"
        size, memory_map_dir = draw(st.integers(3, 14)) * n_envs, draw(st.sampled_from([None, folder]))
        chosen = {"size": size, "memory_map_dir": memory_map_dir}
        if kind is PrioritizedReplayConfig:
            chosen["unique"] = draw(st.booleans())
        if kind is SequenceReplayConfig:
            chosen |= {"burn_in_T": 1, "train_T": 2, "size": size + 5 * n_envs}
            chosen |= {"state_interval": draw(st.integers(0, 3)), "prioritized": draw(st.booleans())}
        history = History(stream, closing, kind, chosen)
        replay, kept = history.fresh(), []
        for _ in range(draw(st.integers(3, 14))):
            act = draw(st.sampled_from(["append", "append", "save", "save", "sample", "load", "go back", "prune"]))
            if act == "append" and history.head < stream.n_rows:
                stop = min(history.head + draw(st.integers(1, 9)), stream.n_rows)
                history.do(replay, "append", (history.head, stop))
            elif act == "sample":
                history.do(replay, "sample", 4)
            elif act == "save":
                kept.append((replay.save(log), history.copy()))
                assert_plain(kept[-1][0])
            elif act == "prune":
                kept = kept[-2:]
                Replay.prune(log, [state for state, _ in kept])
            elif kept:
                state, then = kept[-1] if act == "load" else draw(st.sampled_from(kept))
                history = then.copy()
                replay = history.fresh()
                replay.load(log, state)
        for state, then in [*kept, (replay.save(log), history)]:
            loaded = then.fresh()
            loaded.load(log, state)
            then.check(loaded)
        history.check(replay)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_append_changes_no_stored_row_but_the_newest(data):
    draw = data.draw
    stream = Stream(words(draw, 40, 2), 2)
    replay = UniformReplayConfig(size=24).build(stream.spec, 2, seed=0, discount=0.9, n_step=1)
    ring, start = replay._ring, 0
    while start < stream.n_rows:
        stop = min(start + draw(st.integers(1, 15)), stream.n_rows)
        before = {row: [a.copy() for a in ring.memory(row, row + 1)] for row in range(ring.oldest, ring.head)}
        replay.append(stream.samples(start, stop))
        for row in range(ring.oldest, start - 1):
            for old, now in zip(before[row], ring.memory(row, row + 1), strict=True):
                np.testing.assert_array_equal(old, now)
        start = stop
    replay.close()


@pytest.mark.parametrize("saves", [[4], [3, 4], [4, 5], [4, 6], [1, 2, 3, 4, 5, 6]])
def test_cut_behind_a_saved_row_is_in_the_next_save(make_stream, make_replay, tmp_path, saves):
    stream = make_stream(["....C...", "........"])
    replay, loaded = (make_replay(stream.spec, 2, size=16, n_step=3) for _ in range(2))
    state = None
    for t in range(8):
        replay.append(stream.samples(t, t + 1))
        if t + 1 in saves or t == 7:
            state = replay.save(tmp_path)
    loaded.load(tmp_path, state)

    assert (3, 0) in set(zip(*(x.tolist() for x in loaded.eligible()), strict=True))
    assert_same(replay, loaded)


def test_cut_that_comes_first_after_a_load_truncates_the_row_before(make_stream, make_replay, tmp_path):
    stream = make_stream(["....C...", "........"])
    replay, loaded = (make_replay(stream.spec, 2, size=16, n_step=3) for _ in range(2))
    replay.append(stream.samples(0, 4))
    loaded.load(tmp_path, replay.save(tmp_path))
    for one in (replay, loaded):
        one.append(stream.samples(4, 8))

    assert_same(replay, loaded)


def test_empty_replay_can_be_saved_and_loaded(grown, tmp_path):
    stream, replay = grown(0)
    _, loaded = grown(0)
    loaded.load(tmp_path / "new", replay.save(tmp_path / "new"))
    for one in (replay, loaded):
        one.append(stream.samples(0, 9))

    assert_same(replay, loaded)


def test_save_writes_the_new_rows_and_one_more(grown, tmp_path):
    stream, replay = grown(9, size=100)
    replay.save(tmp_path)
    before = on_disk(tmp_path)
    replay.append(stream.samples(9, 12))
    replay.save(tmp_path)

    assert (3 + 1) * replay._ring.row_bytes <= on_disk(tmp_path) - before <= 4 * replay._ring.row_bytes + 24
    assert ["rows_00000001.log"] == names(tmp_path)


def test_save_without_new_rows_writes_nothing_and_gives_a_state_as_good(grown, tmp_path):
    _, replay = grown(9)
    first = replay.save(tmp_path)
    before = {p: p.read_bytes() for p in tmp_path.iterdir()}
    second = replay.save(tmp_path)

    assert before == {p: p.read_bytes() for p in tmp_path.iterdir()}
    assert first["segments"] == second["segments"]


def test_more_new_rows_than_the_ring_holds_write_the_ring_once(grown, tmp_path):
    stream, replay = grown(3, size=4)
    replay.save(tmp_path)
    before = on_disk(tmp_path)
    replay.append(stream.samples(3, 24))
    state = replay.save(tmp_path)
    _, loaded = grown(0, size=4)
    loaded.load(tmp_path, state)

    assert on_disk(tmp_path) - before == replay.n_bytes + 24
    assert_same(replay, loaded)


def test_bytes_once_written_never_change(grown, tmp_path, monkeypatch):
    monkeypatch.setattr(SEGMENT_BYTES, 300)
    stream, replay = grown(0)
    before = {}
    for start, stop in stream.batches(1):
        replay.append(stream.samples(start, stop))
        replay.save(tmp_path)
        now = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
        assert all(now[name].startswith(content) for name, content in before.items())
        before = now
    assert len(before) > 3


def test_everything_is_synced_before_save_returns(grown, tmp_path, monkeypatch):
    import os

    synced, fsync = {}, os.fsync

    def noted(fd):
        fsync(fd)
        synced[os.fstat(fd).st_ino] = os.fstat(fd).st_size

    monkeypatch.setattr("os.fsync", noted)
    monkeypatch.setattr(SEGMENT_BYTES, 300)
    stream, replay = grown(9)
    for stop in (9, 12):
        replay.save(tmp_path)
        assert tmp_path.stat().st_ino in synced
        assert {p.stat().st_ino: p.stat().st_size for p in tmp_path.iterdir()}.items() <= synced.items()
        replay.append(stream.samples(stop, stop + 3))


def test_log_goes_on_after_a_load_in_a_file_of_its_own(grown, tmp_path):
    stream, replay = grown(9, size=100)
    older = replay.save(tmp_path)
    replay.append(stream.samples(9, 15))
    newer = replay.save(tmp_path)
    _, resumed = grown(0, size=100)
    resumed.load(tmp_path, older)
    other_words = type(stream)(["." * 26] * 2, 2)
    resumed.append(other_words.samples(9, 12))
    third = resumed.save(tmp_path)

    assert len({s["name"] for s in third["segments"]} - {s["name"] for s in newer["segments"]}) == 1
    for state, expected in ((newer, replay), (third, resumed)):
        _, loaded = grown(0, size=100)
        loaded.load(tmp_path, state)
        loaded._selector, expected._selector = replay._selector, replay._selector  # what was drawn since aside
        np.testing.assert_array_equal(expected.eligible(), loaded.eligible())
        left, right = (outcome(r.batch_at, *r.eligible()) for r in (expected, loaded))
        assert all(np.array_equal(left[name], right[name]) for name in left)


def test_nothing_is_appended_to_a_file_that_was_loaded(grown, tmp_path):
    stream, replay = grown(9, size=100)
    state = replay.save(tmp_path)
    before = (tmp_path / "rows_00000001.log").read_bytes()
    _, resumed = grown(0, size=100)
    resumed.load(tmp_path, state)
    resumed.append(stream.samples(9, 12))
    resumed.save(tmp_path)

    assert before == (tmp_path / "rows_00000001.log").read_bytes()
    assert ["rows_00000001.log", "rows_00000002.log"] == names(tmp_path)


def test_save_to_another_folder_is_whole(grown, tmp_path):
    stream, replay = grown(9)
    replay.save(tmp_path / "a")
    replay.append(stream.samples(9, 12))
    state = replay.save(tmp_path / "b")
    _, loaded = grown(0)
    loaded.load(tmp_path / "b", state)

    assert_same(replay, loaded)


def test_save_whose_earlier_files_were_deleted_is_whole(grown, tmp_path):
    stream, replay = grown(9)
    replay.save(tmp_path)
    replay.append(stream.samples(9, 12))
    Replay.prune(tmp_path, [])
    state = replay.save(tmp_path)
    _, loaded = grown(0)
    loaded.load(tmp_path, state)

    assert_same(replay, loaded)


def test_folder_may_be_given_relative_to_another_working_directory(grown, tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    stream, replay = grown(9)
    monkeypatch.chdir(tmp_path)
    replay.save(Path("a/log"))
    replay.append(stream.samples(9, 12))
    monkeypatch.chdir(tmp_path / "a" / "b")
    state = replay.save(Path("../log"))

    assert ["rows_00000001.log"] == names(tmp_path / "a" / "log")
    _, loaded = grown(0)
    loaded.load(tmp_path / "a" / "log", state)
    assert_same(replay, loaded)


def test_prune_keeps_what_a_state_names_and_whatever_is_not_the_logs_own(grown, tmp_path, monkeypatch):
    monkeypatch.setattr(SEGMENT_BYTES, 300)
    stream, replay = grown(0)
    others = ["manifest.json", "rows_1.log", "rows_00000001.log.bak", "xrows_00000001.log"]
    for name in others:
        (tmp_path / name).touch()
    states = []
    for start, stop in stream.batches(2):
        replay.append(stream.samples(start, stop))
        states.append(replay.save(tmp_path))
    needed = {s["name"] for state in states[-3::2] for s in state["segments"]}
    assert needed < set(names(tmp_path))
    Replay.prune(tmp_path, states[-3::2])

    assert sorted([*needed, *others]) == names(tmp_path)
    for state in states[-3::2]:
        grown(0)[1].load(tmp_path, state)


def test_prune_of_a_folder_that_does_not_exist_does_nothing(tmp_path):
    Replay.prune(tmp_path / "nowhere", [])

    assert [] == names(tmp_path)


@pytest.mark.parametrize("every", [1, 7, 40])
def test_log_takes_no_more_than_it_says(make_replay, dict_case, tmp_path, monkeypatch, every):
    monkeypatch.setattr(SEGMENT_BYTES, 1500)
    replay = make_replay(dict_case.spec, 2, size=200)
    limit, row = UniformReplayConfig(size=200).log_bytes(dict_case.spec, 2), replay._ring.row_bytes
    most = 0
    for i in range(80):
        replay.append(dict_case.samples)
        if i % every == 0:
            Replay.prune(tmp_path, [replay.save(tmp_path)])
            n_saves = 100 // (4 * every) + 2  # that the stored rows come from: each wrote a row again, and a header
            n_chunks = n_saves + len(names(tmp_path))
            most = max(most, on_disk(tmp_path) - n_saves * row - n_chunks * 24)

    assert replay.n_bytes - row * 4 < most <= limit
    assert limit == replay.n_bytes + 1500 + row


@pytest.mark.parametrize("memory_map", [False, True])
def test_neither_save_nor_load_needs_a_copy_of_the_ring(atari_spec, make_replay, tmp_path, memory_map):
    settings = {"memory_map_dir": str(tmp_path)} if memory_map else {}
    replay, loaded = (make_replay(atari_spec, 4, size=6000, **settings) for _ in range(2))
    replay._ring.append(map_tree(lambda leaf: np.ones_like(leaf), replay._ring._data))
    tracemalloc.start()
    try:
        loaded.load(tmp_path / "log", replay.save(tmp_path / "log"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 4e6 < replay.n_bytes / 10
    assert all((array == 1).all() for array in loaded._ring.memory(0, loaded._ring.n_rows))


def test_dict_observations_come_back(make_replay, dict_case, tmp_path):
    replay, loaded = (make_replay(dict_case.spec, 2, size=6) for _ in range(2))
    replay.append(dict_case.samples)
    loaded.load(tmp_path, replay.save(tmp_path))

    assert_same(replay, loaded)


# ---- what is refused


def spec_of(obs=(3,), dtype=np.float32, action=(), action_dtype=np.int64, frame_stack=1):
    return EnvSpec(
        Box(0, 1, obs, dtype), Discrete(3), np.zeros(obs, dtype), np.zeros(action, action_dtype), frame_stack
    )


@pytest.mark.parametrize(
    ("difference", "spec", "n_envs", "size"),
    [
        ("environments: saved 2, this run has 4", spec_of(), 4, 20),
        ("rows for each environment: saved 10, this run has 20", spec_of(), 2, 40),
        ("leaf obs: saved float32 (3,), this run has float32 (4,)", spec_of((4,)), 2, 20),
        ("leaf obs: saved float32 (3,), this run has float64 (3,)", spec_of(dtype=np.float64), 2, 20),
        (
            "leaf action: saved int64 (), this run has float32 (2,)",
            spec_of(action=(2,), action_dtype=np.float32),
            2,
            20,
        ),
        ("frame stack: saved 1, this run has 3", spec_of(frame_stack=3), 2, 20),
    ],
)
def test_another_layout_is_refused_with_the_first_difference(make_replay, tmp_path, difference, spec, n_envs, size):
    state = make_replay(spec_of(), 2, size=20).save(tmp_path)

    with pytest.raises(SnapshotError, match=re.escape(f"{tmp_path}: replay of another layout: {difference}")):
        make_replay(spec, n_envs, size=size).load(tmp_path, state)


def test_leaves_in_another_order_are_refused(make_replay, tmp_path):
    def spec(keys):
        from gymnasium.spaces import Dict

        example = {key: np.zeros(2, np.float32) for key in keys}
        space = Dict([(key, Box(0, 1, (2,))) for key in keys])
        return EnvSpec(space, Discrete(3), example, np.zeros((), np.int64))

    state = make_replay(spec("ab"), 1, size=9).save(tmp_path)

    with pytest.raises(SnapshotError, match=r"order of the leaves: saved obs\.a, obs\.b, .* has obs\.b, obs\.a"):
        make_replay(spec("ba"), 1, size=9).load(tmp_path, state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "replay format 2, this rlcli reads format 1"),
        ({"selector": {}}, "make no sense: KeyError('rng')"),
        ({"segments": [{"name": "x"}]}, "make no sense: TypeError"),
        ({"segments": []}, "names no file with the replay's rows from 0 to 9"),
        ({"head": 8}, "names no file with the replay's rows from 9 to 8"),
        ({"segments": [{"name": "../etc", "first": 0, "end": 9, "n_bytes": 1, "crc": 0}]}, "not the name of a replay"),
    ],
)
def test_state_that_makes_no_sense_is_refused_and_another_can_be_loaded(grown, tmp_path, change, message):
    _, replay = grown(9)
    state = replay.save(tmp_path)
    _, loaded = grown(0)

    with pytest.raises(SnapshotError, match=re.escape(message)):
        loaded.load(tmp_path, state | change)
    loaded.load(tmp_path, state)
    assert_same(replay, loaded)


@pytest.mark.parametrize(
    "change",
    [
        {"leaves": np.zeros(3)},
        {"leaves": np.zeros(22, np.float32)},
        {"leaves": np.full(22, np.nan)},
        {"max_priority": "x"},
        {"rng": 3},
    ],
)
def test_priorities_that_make_no_sense_are_refused_and_others_can_be_loaded(grown, tmp_path, change):
    _, replay = grown(9, kind=PrioritizedReplayConfig)
    learn(replay, 8)
    state = replay.save(tmp_path)
    assert state["selector"]["leaves"].shape == (22,)
    _, loaded = grown(0, kind=PrioritizedReplayConfig)

    with pytest.raises(SnapshotError, match="make no sense"):
        loaded.load(tmp_path, state | {"selector": state["selector"] | change})
    assert not loaded._selector._tree.total
    loaded.load(tmp_path, state)
    assert_same(replay, loaded)


def test_replay_that_draws_otherwise_is_refused(grown, tmp_path):
    state = grown(9)[1].save(tmp_path)

    with pytest.raises(SnapshotError, match="another layout: selector: saved uniform, this run has prioritized"):
        grown(0, kind=PrioritizedReplayConfig)[1].load(tmp_path, state)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"state_interval": 2}, "rows between recurrent states: saved 3, this run has 2"),
        ({"burn_in_T": 2, "train_T": 1}, "rows before the trained ones: saved 1, this run has 2"),
        ({"train_T": 3}, "rows of a sequence: saved 5, this run has 6"),
        ({"prioritized": False}, "selector: saved prioritized, this run has uniform"),
        ({"state_interval": 0}, "rows between sequences: saved 3, this run has 1"),
    ],
)
def test_sequences_of_another_kind_are_refused(grown, tmp_path, change, difference):
    settings = {"kind": SequenceReplayConfig, "burn_in_T": 1, "train_T": 2, "state_interval": 3}
    state = grown(9, **settings)[1].save(tmp_path)

    with pytest.raises(SnapshotError, match=difference):
        grown(0, **settings | change)[1].load(tmp_path, state)


def test_states_of_sequences_are_pruned_with_the_rows_and_missing_ones_are_named(grown, tmp_path, monkeypatch):
    monkeypatch.setattr(SEGMENT_BYTES, 100)
    settings = {"kind": SequenceReplayConfig, "burn_in_T": 1, "train_T": 2, "state_interval": 3}
    stream, replay = grown(0, **settings)
    for start, stop in stream.batches(3):
        replay.append(stream.samples(start, stop))
        state = replay.save(tmp_path)
    before = [name for name in names(tmp_path) if name.startswith("states")]
    Replay.prune(tmp_path, [state])
    left = [name for name in names(tmp_path) if name.startswith("states")]
    assert 0 < len(left) < len(before)
    _, loaded = grown(0, **settings)
    loaded.load(tmp_path, state)
    assert_same(replay, loaded)

    (tmp_path / left[-1]).unlink()
    with pytest.raises(SnapshotError, match=re.escape(f"{tmp_path / left[-1]}: missing")):
        grown(0, **settings)[1].load(tmp_path, state)


@pytest.mark.parametrize("n_step", [1, 4])
def test_window_of_another_length_after_a_load_draws_what_can_be_drawn(make_stream, make_replay, tmp_path, n_step):
    stream = make_stream(["....T_......U_...L....C0..", "." * 26])
    replay = make_replay(stream.spec, 2, 40, n_step=2, kind=PrioritizedReplayConfig)
    loaded = make_replay(stream.spec, 2, 40, n_step=n_step, kind=PrioritizedReplayConfig)
    replay.append(stream.samples(0, 20))
    loaded.load(tmp_path, replay.save(tmp_path))

    drawn = loaded.sample(2000)
    assert set(zip(drawn.row.tolist(), drawn.env.tolist(), strict=True)) == set(stream.expected(20, 20, n_step, 0.5))


@pytest.mark.parametrize("hurt", ["missing", "short", "folder"])
def test_file_that_is_not_all_there_is_named(grown, tmp_path, monkeypatch, hurt):
    monkeypatch.setattr(SEGMENT_BYTES, 300)
    _, replay = grown(24)
    state = replay.save(tmp_path)
    path = tmp_path / state["segments"][1]["name"]
    n_bytes = path.stat().st_size
    content = path.read_bytes()
    path.unlink()
    if hurt == "short":
        path.write_bytes(content[:-1])
    elif hurt == "folder":
        path.mkdir()
    _, loaded = grown(0)

    expected = {
        "missing": f"{path}: missing, the checkpoint needs {n_bytes} bytes of it",
        "short": f"{path}: has {n_bytes - 1} bytes, the checkpoint needs {n_bytes} bytes of it",
        "folder": f"{path}: not readable: Is a directory",
    }
    with pytest.raises(SnapshotError, match=re.escape(expected[hurt])):
        loaded.load(tmp_path, state)


def test_any_byte_that_changed_is_found_and_its_file_named(grown, tmp_path, monkeypatch):
    monkeypatch.setattr(SEGMENT_BYTES, 300)
    _, replay = grown(24, size=8)
    state = replay.save(tmp_path)
    _, loaded = grown(0, size=8)
    n_tried = 0
    for segment in state["segments"][-2:]:
        path = tmp_path / segment["name"]
        content = path.read_bytes()
        for i in range(len(content)):
            path.write_bytes(content[:i] + bytes([content[i] ^ 1 << i % 8]) + content[i + 1 :])
            with pytest.raises(SnapshotError, match=re.escape(f"{path}: damaged")):
                loaded.load(tmp_path, state)
            n_tried += 1
        path.write_bytes(content)
    loaded.load(tmp_path, state)

    assert n_tried > 300
    assert_same(replay, loaded)


def test_replay_that_is_not_empty_is_not_loaded(grown, tmp_path):
    _, replay = grown(9)
    state = replay.save(tmp_path)

    with pytest.raises(ValueError, match="only an empty replay can be loaded"):
        replay.load(tmp_path, state)


# ---- what goes wrong in a save


@pytest.fixture
def file_size_limit():
    """Sets the longest a file may get: the write that reaches it is cut short, and the next one fails."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda n: resource.setrlimit(resource.RLIMIT_FSIZE, before if n is None else (n, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("segment_bytes", [150_000, 10**9])
@pytest.mark.parametrize("room", [10, 5_000, 60_000])
def test_save_that_fails_half_way_harms_nothing_and_the_next_one_works(
    make_replay, atari_spec, tmp_path, monkeypatch, file_size_limit, segment_bytes, room
):
    def samples(start, stop):
        n = stop - start
        obs = torch.arange(start, stop + 1, dtype=torch.uint8)[:, None, None, None, None].expand(-1, 1, 4, 84, 84)
        no = torch.zeros(n, 1, dtype=torch.bool)
        return Samples(obs, torch.zeros(n, 1, dtype=torch.int64), torch.zeros(n, 1), no, no, ~no, None, None)

    monkeypatch.setattr(SEGMENT_BYTES, segment_bytes)
    replay, one, two, twin = (make_replay(atari_spec, 1, size=50) for _ in range(4))
    replay.append(samples(0, 15))
    twin.append(samples(0, 15))
    state = replay.save(tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    replay.append(samples(15, 40))
    file_size_limit(len(before["rows_00000001.log"]) + room if segment_bytes == 10**9 else room)
    with pytest.raises(SnapshotError, match=rf"^{re.escape(str(tmp_path))}/rows_0000000\d\.log: not written: File too"):
        replay.save(tmp_path)
    file_size_limit(None)

    assert before == {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    one.load(tmp_path, state)
    assert_same(twin, one)
    two.load(tmp_path, replay.save(tmp_path))
    assert_same(replay, two)


def test_save_into_what_is_no_folder_names_the_path(grown, tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(SnapshotError, match=re.escape(f"{tmp_path}/file/log: not written: Not a directory")):
        grown(9)[1].save(tmp_path / "file" / "log")


def test_interrupt_in_a_save_passes_and_the_next_save_works(grown, tmp_path, monkeypatch):
    stream, replay = grown(9)
    state = replay.save(tmp_path)
    _, twin = grown(9)
    replay.append(stream.samples(9, 12))

    def interrupt(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            replay.save(tmp_path)
    later = replay.save(tmp_path)
    for then, expected in ((state, twin), (later, replay)):
        _, loaded = grown(0)
        loaded.load(tmp_path, then)
        assert_same(expected, loaded)


_KILLED = """
import os, pickle, random, signal, sys, time
from pathlib import Path
import torch
import rlcli.replay.log
from rlcli.replay.config import UniformReplayConfig
from tests.replay.conftest import Stream

rlcli.replay.log.SEGMENT_BYTES = 4000
stream = Stream([sys.argv[2], sys.argv[2][1:] + "."], 2)
batches = [stream.samples(t, t + 2) for t in range(0, stream.n_rows, 2)]


def save_for_ever(folder):
    while True:
        replay = UniformReplayConfig(size=40).build(stream.spec, 2, seed=0, discount=0.5, n_step=1)
        published = folder / "state"
        done = 0
        if published.exists():
            state = pickle.loads(published.read_bytes())
            replay.load(folder / "log", state)
            done = state["head"] // 2
        for batch in batches[done:]:
            replay.append(batch)
            state = replay.save(folder / "log")
            (folder / "new").write_bytes(pickle.dumps(state))
            (folder / "new").replace(published)
            replay.prune(folder / "log", [state])
        published.unlink()


for i in range(8):
    folder = Path(sys.argv[1]) / str(i)
    folder.mkdir()
    for _ in range(2):
        child = os.fork()
        if not child:
            save_for_ever(folder)
        while not (folder / "state").exists():
            time.sleep(0.001)
        time.sleep(random.random() * 0.05)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_replay_killed_at_any_moment_has_the_state_that_was_saved_last(make_replay, tmp_path):
    word = "....T_......U_...L....C0.." * 8
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _KILLED, str(tmp_path), word], cwd=REPOSITORY, check=True, timeout=60
    )
    stream, n_loaded = Stream([word, word[1:] + "."], 2), 0
    for folder in sorted(tmp_path.iterdir()):
        if not (folder / "state").exists():
            continue  # killed between two rounds
        state = pickle.loads((folder / "state").read_bytes())
        loaded, twin = (make_replay(stream.spec, 2, size=40) for _ in range(2))
        loaded.load(folder / "log", state)
        for t in range(0, state["head"], 2):
            twin.append(stream.samples(t, t + 2))
        assert_same(twin, loaded)
        n_loaded += 1

    assert n_loaded >= 4
