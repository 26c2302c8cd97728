"""What a replay gives back, compared row by row with the stream that went in."""

from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlcli.core.spec import EnvSpec
from rlcli.replay.config import SequenceReplayConfig
from rlcli.replay.views import n_step_window
from tests.tables import assert_table

NAN = np.nan


@pytest.mark.parametrize(
    ("word", "reward", "return_", "discount", "n_used"),
    [
        ("...", [1, 2, 4], 1 + 1 + 1, 0.125, 3),
        (".T.", [1, 2, NAN], 1 + 1, 0.0, 2),
        (".U.", [1, 2, NAN], 1 + 1, 0.25, 2),
        (".B.", [1, 2, NAN], 1 + 1, 0.0, 2),
        ("U.T", [1, NAN, NAN], 1, 0.5, 1),  # what lies behind the first end changes nothing
        ("T.U", [1, NAN, NAN], 1, 0.0, 1),
        ("..T", [1, 2, 4], 1 + 1 + 1, 0.0, 3),
        (".", [7], 7, 0.5, 1),
    ],
)
def test_a_window_is_the_table_worked_out_by_hand(word, reward, return_, discount, n_used):
    terminated, truncated = (np.array([[letter in which for letter in word]]) for which in ("TB", "UB"))

    window = n_step_window(np.array([reward], np.float64), terminated, truncated, 0.5)

    assert_table([[return_, discount]], np.stack([window.return_, window.discount], axis=1))
    assert [n_used] == window.n_used.tolist()


# 12 rows; the game ends at 4 (terminated) and 9 (truncated), with the filler rows 5 and 10 behind them
TWELVE = "....T_...U_."

# With capacity 8 the rows 4 to 11 are stored after all 12. Row: (return, discount to the bootstrap row, that row) at
# discount 0.5 and reward (5 row) mod 11 - 4:
#   row      4   5   6   7   8   9  10  11
#   reward   5  -1   4  -2   3  -3   2  -4
TABLES = {
    1: {4: (5, 0, 5), 6: (4, 0.5, 7), 7: (-2, 0.5, 8), 8: (3, 0.5, 9), 9: (-3, 0.5, 10)},
    # 6: 4 - 1;  7: -2 + 1.5;  8: 3 - 1.5;  9 ends at once
    2: {4: (5, 0, 5), 6: (3, 0.25, 8), 7: (-0.5, 0.25, 9), 8: (1.5, 0.25, 10), 9: (-3, 0.5, 10)},
    # 6: 4 - 1 + 0.75;  7: -2 + 1.5 - 0.75;  8 ends after 2
    3: {4: (5, 0, 5), 6: (3.75, 0.125, 9), 7: (-1.25, 0.125, 10), 8: (1.5, 0.25, 10), 9: (-3, 0.5, 10)},
    # 6: 4 - 1 + 0.75 - 0.375
    4: {4: (5, 0, 5), 6: (3.375, 0.0625, 10), 7: (-1.25, 0.125, 10), 8: (1.5, 0.25, 10), 9: (-3, 0.5, 10)},
    5: {4: (5, 0, 5), 6: (3.375, 0.0625, 10), 7: (-1.25, 0.125, 10), 8: (1.5, 0.25, 10), 9: (-3, 0.5, 10)},
}


@pytest.mark.parametrize("n", TABLES)
@pytest.mark.parametrize("batch_T", [1, 5, 12])
def test_twelve_steps_with_two_ends_give_the_table_worked_out_by_hand(make_stream, make_replay, n, batch_T):
    stream = make_stream([TWELVE])
    replay = make_replay(stream.spec, 1, size=8, n_step=n, discount=0.5)
    for start, stop in stream.batches(batch_T):
        replay.append(stream.samples(start, stop))

    row, env = replay.eligible()
    batch = replay.batch_at(row, env)

    got = {
        r: (batch.return_[i].item(), batch.discount_n[i].item(), int(batch.next_obs[i, 0]))
        for i, r in enumerate(row.tolist())
    }
    assert TABLES[n] == got


def test_filler_row_before_the_first_stored_step_is_not_drawn(make_stream, make_replay):
    stream = make_stream(["__..."])
    replay = make_replay(stream.spec, 1, size=8)
    replay.append(stream.samples(0, 5))

    assert [3, 2] == replay.eligible()[0].tolist()


def test_newest_row_waits_for_its_successor(make_stream, make_replay):
    stream = make_stream(["...."])
    replay = make_replay(stream.spec, 1, size=8, n_step=2)
    replay.append(stream.samples(0, 3))

    assert [0] == replay.eligible()[0].tolist()
    replay.append(stream.samples(3, 4))
    assert [1, 0] == replay.eligible()[0].tolist()


@pytest.mark.parametrize("frame_stack", [1, 2, 4])
@pytest.mark.parametrize("batch_T", [1, 3, 7, 50])
@pytest.mark.parametrize("size", [21, 22, 39])
def test_every_drawable_row_comes_back_through_three_wrap_arounds(make_stream, make_replay, frame_stack, batch_T, size):
    pieces = {"..T_.....U_": 0, "....L...L.B_.L.T_": 1, ".......": 2}
    words = [(piece * 6)[:42] for piece in pieces]
    stream = make_stream(words, frame_stack)
    replay = make_replay(stream.spec, 3, size=size, n_step=3, discount=0.9)
    capacity = -(-size // 3) + frame_stack - 1
    n_checked = 0
    for start, stop in stream.batches(batch_T):
        replay.append(stream.samples(start, stop))
        n_checked += stream.check(replay, stop, capacity, 3, 0.9)

    assert stream.n_rows >= 3 * 13
    assert n_checked


@pytest.mark.parametrize("n", [1, 3])
def test_idle_rows_between_batches_are_neither_drawn_nor_stacked(make_stream, make_replay, n):
    # batches of 6; an environment that ends idles to the end of its batch, or all of the next one
    stream = make_stream(["..T___....U_.....T______", ".....U______...L.....B__"], frame_stack=3)
    replay = make_replay(stream.spec, 2, size=26, n_step=n)
    for start, stop in stream.batches(6):
        replay.append(stream.samples(start, stop))
        assert stream.check(replay, stop, 13 + 2, n, 0.5)


def test_life_loss_ends_the_window_but_not_the_frame_stack(make_stream, make_replay):
    stream = make_stream(["......L....."], frame_stack=4)
    replay = make_replay(stream.spec, 1, size=20, n_step=3)
    replay.append(stream.samples(0, 12))

    batch = replay.batch_at(np.array([7]), np.array([0]))

    assert batch.obs[0, ::2, 0, 0].tolist() == [stream.obs(t, 0)[-2, 0, 0] for t in (4, 5, 6, 7)]
    assert stream.check(replay, 12, 23, 3, 0.5)


def test_first_rows_ever_are_not_drawn_because_their_earlier_frames_were_not_seen(make_stream, make_replay):
    stream = make_stream(["......", ".T_..."], frame_stack=4)
    replay = make_replay(stream.spec, 2, size=20)
    replay.append(stream.samples(0, 6))

    assert {(3, 0), (4, 0), (3, 1), (4, 1)} == set(zip(*(x.tolist() for x in replay.eligible()), strict=True))


def test_batch_longer_than_the_ring_leaves_its_newest_rows(make_stream, make_replay):
    stream = make_stream(["...T_.......U_....."], frame_stack=2)
    replay = make_replay(stream.spec, 1, size=5)
    replay.append(stream.samples(0, 19))

    assert stream.check(replay, 19, 6, 1, 0.5)
    assert len(replay) == 6 - 1  # rows 13 to 18, of which 13 is filler


def words(draw, n_rows, n_envs):
    """Legal words: each end but a lost life is followed by 1 to 4 filler rows; cuts come anywhere."""
    made = []
    for _ in range(n_envs):
        word = draw(st.sampled_from(["", "_", "__", "C", "C0"]))
        while len(word) < n_rows:
            end = draw(st.sampled_from(["T", "U", "B", "L", "L", "", ""]))
            filler = "" if end == "L" else draw(st.sampled_from("_C" if end else "C"))
            word += "." * draw(st.integers(0, 9)) + end + filler
            word += draw(st.text("_C0", max_size=3)) if filler else ""
        made.append(word[:n_rows])
    return made


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_stream_comes_back_as_the_slow_reference_says(make_stream, make_replay, data):
    draw = data.draw
    n, k, n_envs = draw(st.integers(1, 5)), draw(st.sampled_from([1, 2, 3, 5])), draw(st.integers(1, 3))
    stream = make_stream(words(draw, draw(st.integers(1, 40)), n_envs), k)
    rows = draw(st.integers(n + 1, 14))
    replay = make_replay(stream.spec, n_envs, size=rows * n_envs, n_step=n, discount=0.9)
    lengths = cycle(draw(st.lists(st.integers(1, 20), min_size=1, max_size=4)))
    start = 0
    while start < stream.n_rows:
        stop = min(start + next(lengths), stream.n_rows)
        replay.append(stream.samples(start, stop))
        start = stop
        n_valid = sum(w[t] in ".TUBL" for w in stream.words for t in range(max(0, stop - rows - k + 1), stop))
        assert len(replay) == n_valid
        n_drawable = stream.check(replay, stop, rows + k - 1, n, 0.9)
        assert replay.can_sample(n_drawable)
        assert not replay.can_sample(n_drawable + 1)


# ---- a stack of frames beside other observations


@pytest.fixture
def dict_stream(make_stream):
    """Builds (spec, samples(start, stop)) of a stream whose stack lies beside the row's number."""

    def build(words, k):
        stream = make_stream(words, k)
        space = Dict({"camera": stream.spec.observation_space, "number": Box(-1e6, 1e6, (2,))})
        example = {"camera": stream.spec.example_obs, "number": np.zeros(2, np.float32)}
        spec = EnvSpec(space, stream.spec.action_space, example, stream.spec.example_action, k, "camera")

        def samples(start, stop):
            numbers = [[[t, b] for b in range(len(words))] for t in range(start, stop + 1)]
            plain = stream.samples(start, stop)
            return replace(plain, obs={"number": torch.tensor(numbers, dtype=torch.float32), "camera": plain.obs})

        return stream, spec, samples

    return build


def test_stack_in_a_dict_is_stored_one_frame_a_row_and_comes_back_whole(dict_stream, make_replay):
    words = ["....T_......U_....L.....", ".......L......C0........"]
    stream, spec, samples = dict_stream(words, 4)
    replay = make_replay(spec, 2, size=24, n_step=2)
    n_checked = 0
    for start, stop in stream.batches(5):
        replay.append(samples(start, stop))
        row, env = replay.eligible()
        assert set(stream.expected(stop, 12 + 3, 2, 0.5)) == set(zip(row.tolist(), env.tolist(), strict=True))
        batch = replay.batch_at(row, env)
        assert {"camera", "number"} == set(batch.obs) == set(batch.next_obs)
        stream.check_batch(replace(batch, obs=batch.obs["camera"], next_obs=batch.next_obs["camera"]),
                           stream.expected(stop, 12 + 3, 2, 0.5))  # fmt: skip
        np.testing.assert_array_equal(np.stack([row, env], 1), batch.obs["number"])
        n_checked += len(row)

    # 2 * 3 * 3 of the frame, 8 of the number, 8 action, 4 reward, 3 flags, 1 stack depth
    assert replay.n_bytes == (12 + 3) * 2 * (18 + 8 + 8 + 4 + 3 + 1)
    assert n_checked > 50


def test_stack_in_a_dict_comes_back_in_sequences_too(dict_stream, make_replay):
    stream, spec, samples = dict_stream(["....T_......U_....L.....", ".......L......C0........"], 4)
    settings = {"kind": SequenceReplayConfig, "burn_in_T": 1, "train_T": 3, "state_interval": 2}
    replay = make_replay(spec, 2, size=30, n_step=2, **settings)
    for start, stop in stream.batches(5):
        replay.append(samples(start, stop))
    batch = replay.sample(32)
    for i, (row, env) in enumerate(zip(batch.row.tolist(), batch.env.tolist(), strict=True)):
        for t in range(6):
            assert [row + t, env] == batch.obs["number"][t, i].tolist()
            if batch.valid[t, i]:
                np.testing.assert_array_equal(stream.obs(row + t, env), batch.obs["camera"][t, i])
                np.testing.assert_array_equal(stream.obs(row + t + 1, env), batch.obs["camera"][t + 1, i])


def test_stack_in_a_dict_of_another_number_of_frames_is_named(dict_stream, make_replay):
    _, spec, _ = dict_stream(["...."], 4)

    with pytest.raises(ValueError, match=r"obs\.camera: shape \(8, 3, 3\) holds no 3 frames along its first axis"):
        make_replay(replace(spec, frame_stack=3), 1, size=9)
