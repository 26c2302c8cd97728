"""Cuts: an environment was lost with its worker, and the row before is as good as truncated."""

import numpy as np
import pytest
import torch

# 8 rows, the cut in row 3. Row: (return, discount to the bootstrap row, that row) at discount 0.5:
#   row      0   1   2   3   4   5   6   7
#   reward  -4   1   6   0   5  -1   4  -2
EIGHT = "...C...."
TABLES = {
    1: {0: (-4, 0.5, 1), 1: (1, 0.5, 2), 2: (6, 0.5, 3), 4: (5, 0.5, 5), 5: (-1, 0.5, 6), 6: (4, 0.5, 7)},
    # 0: -4 + 0.5;  1: 1 + 3;  2 is cut off;  4: 5 - 0.5;  5: -1 + 2
    2: {0: (-3.5, 0.25, 2), 1: (4, 0.25, 3), 2: (6, 0.5, 3), 4: (4.5, 0.25, 6), 5: (1, 0.25, 7)},
    # 0: -4 + 0.5 + 1.5;  4: 5 - 0.5 + 1
    3: {0: (-2, 0.125, 3), 1: (4, 0.25, 3), 2: (6, 0.5, 3), 4: (5.5, 0.125, 7)},
    4: {0: (-2, 0.125, 3), 1: (4, 0.25, 3), 2: (6, 0.5, 3)},
}


def filled(make_stream, make_replay, words, batch_T, size=200, frame_stack=1, **settings):
    stream = make_stream(words, frame_stack)
    replay = make_replay(stream.spec, len(words), size=size, **settings)
    for start, stop in stream.batches(batch_T):
        replay.append(stream.samples(start, stop))
    return stream, replay


def drawable(replay):
    row, env = replay.eligible()
    batch = replay.batch_at(row, env)
    return {
        (r, b): (batch.return_[i].item(), batch.discount_n[i].item(), int(batch.next_obs[i, 0]))
        for i, (r, b) in enumerate(zip(row.tolist(), env.tolist(), strict=True))
    }


# The cut and the row before it: one batch, two batches (cut first), two batches (cut last), one batch a row.
@pytest.mark.parametrize("batch_T", [8, 3, 4, 1])
@pytest.mark.parametrize("n", TABLES)
def test_row_before_a_cut_bootstraps_from_the_cut(make_stream, make_replay, n, batch_T):
    _, replay = filled(make_stream, make_replay, [EIGHT], batch_T, n_step=n, discount=0.5)

    assert {(row, 0): window for row, window in TABLES[n].items()} == drawable(replay)


def test_row_before_a_cut_bootstraps_from_the_cut_on_disk(make_stream, make_replay, tmp_path):
    _, replay = filled(make_stream, make_replay, [EIGHT], 3, n_step=3, discount=0.5, memory_map_dir=str(tmp_path))

    assert {(row, 0): window for row, window in TABLES[3].items()} == drawable(replay)


def test_cut_concerns_its_own_environment_only(make_stream, make_replay):
    _, replay = filled(make_stream, make_replay, ["........", EIGHT, "........"], 3, n_step=4, discount=0.5)
    _, whole = filled(make_stream, make_replay, ["........"] * 3, 3, n_step=4, discount=0.5)

    expected = {place: window for place, window in drawable(whole).items() if place[1] != 1}
    assert expected
    assert expected == {place: window for place, window in drawable(replay).items() if place[1] != 1}


@pytest.mark.parametrize(
    ("plain", "with_cuts"),
    [
        ("..T_....", "..TC...."),
        ("..U_....", "..UC...."),
        ("..B_....", "..BC...."),
        ("..L_....", "..LC...."),
        ("..T__...", "..T_C..."),
        ("..T___..", "..TCCC.."),
        ("_.......", "C......."),
        ("__......", "CC......"),
    ],
)
@pytest.mark.parametrize("batch_T", [1, 3, 8])
def test_cut_that_cuts_nothing_off_is_a_plain_filler(make_stream, make_replay, plain, with_cuts, batch_T):
    expected = drawable(filled(make_stream, make_replay, [plain], batch_T, n_step=3)[1])

    assert expected
    assert expected == drawable(filled(make_stream, make_replay, [with_cuts], batch_T, n_step=3)[1])


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("frame_stack", [1, 3])
def test_lost_slice_is_neither_drawn_nor_stacked(make_stream, make_replay, n, frame_stack):
    # batches of 6; what a worker held is lost for a whole batch, in the third environment twice in a row; the fourth
    # is lost for single rows, the last of a batch among them
    words = [
        "....U_C00000......T_....",
        "......C00000............",
        "...T__C00000C00000......",
        ".....C.....C....C.......",
    ]
    stream = make_stream(words, frame_stack)
    replay = make_replay(stream.spec, 4, size=60, n_step=n)
    for start, stop in stream.batches(6):
        replay.append(stream.samples(start, stop))

        assert stream.check(replay, stop, 15 + frame_stack - 1, n, 0.5)


def test_batch_that_is_lost_whole_adds_nothing_but_the_last_row_before_it(make_stream, make_replay):
    stream = make_stream(["....C000", "....C000"])
    replay = make_replay(stream.spec, 2, size=20)
    replay.append(stream.samples(0, 4))
    before = drawable(replay)
    replay.append(stream.samples(4, 8))

    assert {(3, 0), (3, 1)} == set(drawable(replay)) - set(before)
    assert before.items() <= drawable(replay).items()
    assert 8 == len(replay)


def test_stack_of_a_cut_is_the_last_observation_of_its_game(make_stream, make_replay):
    stream, replay = filled(make_stream, make_replay, ["......C....."], 6, frame_stack=4)

    batch = replay.batch_at(np.array([5]), np.array([0]))

    assert batch.next_obs[0, ::2, 0, 0].tolist() == [stream.obs(t, 0)[-2, 0, 0] for t in (3, 4, 5, 6)]


def test_stack_of_the_game_after_a_cut_begins_with_zeros(make_stream, make_replay):
    stream, replay = filled(make_stream, make_replay, ["......C....."], 6, frame_stack=4)

    batch = replay.batch_at(np.array([8]), np.array([0]))

    assert batch.obs[0, ::2, 0, 0].tolist() == [0, 0, *(stream.obs(t, 0)[-2, 0, 0] for t in (7, 8))]


@pytest.mark.parametrize("cut", [5, 6, 12, 17, 18])
def test_cut_in_a_batch_longer_than_the_ring_finds_the_row_before_it(make_stream, make_replay, cut):
    # the ring has 6 rows, so the batch goes in as 0-5, 6-11, 12-17, 18
    word = "." * cut + "C" + "." * (18 - cut)
    stream, replay = filled(make_stream, make_replay, [word], 19, size=5, frame_stack=2, n_step=2)

    assert stream.check(replay, 19, 6, 2, 0.5)


def test_cut_leaves_the_samplers_memory_as_it_was(make_stream, make_replay):
    stream = make_stream([EIGHT])
    replay = make_replay(stream.spec, 1, size=20)
    for start, stop in stream.batches(4):
        samples = stream.samples(start, stop)
        replay.append(samples)

        assert torch.equal(stream.samples(start, stop).truncated, samples.truncated)


@pytest.mark.parametrize("batch_T", [1, 3, 8])
def test_stored_filler_rows_carry_no_end(make_stream, make_replay, batch_T):
    _, replay = filled(make_stream, make_replay, ["..C..TCC"], batch_T)

    row = np.array([2, 6, 7])
    assert not replay._ring.take("truncated", row, np.zeros_like(row)).any()


@pytest.mark.parametrize("batch_T", [1, 3, 8])
def test_cut_in_one_environment_does_not_excuse_a_filler_in_another(make_stream, make_replay, batch_T):
    stream = make_stream([EIGHT, "..._...."])
    replay = make_replay(stream.spec, 2, size=20)

    def append_all():
        for start, stop in stream.batches(batch_T):
            replay.append(stream.samples(start, stop))

    with pytest.raises(ValueError, match="a filler row follows a valid row that was neither"):
        append_all()
