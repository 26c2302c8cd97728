"""How transitions are drawn, and what the batches are made of."""

import numpy as np
import pytest
import torch


def filled(make_stream, make_replay, words, frame_stack=1, size=40, n_step=2, seed=0):
    stream = make_stream(words, frame_stack)
    replay = make_replay(stream.spec, len(words), size=size, n_step=n_step, seed=seed)
    for start, stop in stream.batches(5):
        replay.append(stream.samples(start, stop))
    return stream, replay


def counts(replay, n_draws):
    places = {place: i for i, place in enumerate(zip(*(x.tolist() for x in replay.eligible()), strict=True))}
    batch = replay.sample(n_draws)
    drawn = [places[place] for place in zip(batch.row.tolist(), batch.env.tolist(), strict=True)]
    return np.bincount(drawn, minlength=len(places))


# chi-square: the statistic has mean dof and standard deviation sqrt(2 dof); 5 deviations are never met by chance
@pytest.mark.parametrize(
    "words",
    [
        ["....T_......U_....L.....", ".......L......T_........"],
        [".T" + "_" * 400 + "...", "..T" + "_" * 400 + ".."],
        ["....C.......C0000.......", ".......C......TC........"],
    ],
    ids=["mostly_eligible", "hardly_any_eligible", "with_cuts"],
)
def test_every_eligible_transition_is_drawn_as_often(make_stream, make_replay, words):
    _, replay = filled(make_stream, make_replay, words, size=1000, n_step=1)

    observed = counts(replay, 20_000)

    mean = 20_000 / len(observed)
    chi_square, dof = ((observed - mean) ** 2 / mean).sum(), len(observed) - 1
    assert dof > 3
    assert abs(chi_square - dof) < 5 * np.sqrt(2 * dof)


def test_only_eligible_transitions_are_drawn_at_every_moment(make_stream, make_replay):
    words = ["....T_......U__...L.....", "T_....L......T____......", "....C.........C0000..C.."]
    stream = make_stream(words, frame_stack=3)
    replay = make_replay(stream.spec, 3, size=24, n_step=3)
    for start, stop in stream.batches(1):
        replay.append(stream.samples(start, stop))
        if replay.can_sample(1):
            stream.check_batch(replay.sample(64), stream.expected(stop, 8 + 2, 3, 0.5))


def test_nothing_unwritten_is_returned(make_stream, make_replay):
    stream = make_stream([".T_...L."], frame_stack=3)
    replay = make_replay(stream.spec, 1, size=1000, n_step=3)
    poison = replay._ring._data
    for name, leaf in poison.items():
        leaf[:] = 255 if name in ("obs", "n_earlier") else np.nan if leaf.dtype == np.float32 else 1
    replay.append(stream.samples(0, 8))

    stream.check_batch(replay.sample(500), stream.expected(8, 1002, 3, 0.5))
    assert stream.check(replay, 8, 1002, 3, 0.5)


@pytest.mark.parametrize("words", [[], ["___"], ["."]])
def test_drawing_from_a_replay_without_transitions_is_refused(make_stream, make_replay, words):
    stream = make_stream(words or ["."])
    replay = make_replay(stream.spec, 1, size=10)
    if words:
        replay.append(stream.samples(0, len(words[0])))

    assert not replay.can_sample(1)
    with pytest.raises(LookupError, match="nothing to sample"):
        replay.sample(1)


def test_same_seed_draws_the_same_and_another_seed_does_not(make_stream, make_replay):
    words = ["....T_......U_....L.....", ".......L......T_........"]
    drawn = [filled(make_stream, make_replay, words, seed=s)[1].sample(32).row.tolist() for s in (0, 0, 1)]

    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


@pytest.mark.parametrize("frame_stack", [1, 3])
def test_sampled_memory_is_the_callers_own(make_stream, make_replay, frame_stack):
    stream, replay = filled(make_stream, make_replay, ["....T_......U_....L....."], frame_stack)
    batch = replay.sample(16)
    for leaf in (batch.obs, batch.next_obs, batch.action, batch.return_, batch.discount_n):
        leaf.zero_()

    assert stream.check(replay, stream.n_rows, 40 + frame_stack - 1, 2, 0.5)


def test_appended_memory_may_be_reused_by_the_sampler(make_stream, make_replay):
    stream = make_stream(["....T_..U_L."], frame_stack=2)
    replay = make_replay(stream.spec, 1, size=20)
    for start, stop in stream.batches(2):
        samples = stream.samples(start, stop)
        replay.append(samples)
        for leaf in (samples.obs, samples.action, samples.reward, samples.terminated, samples.truncated, samples.valid):
            leaf.fill_(1)

    assert stream.check(replay, 12, 21, 1, 0.5)


def test_batch_has_the_documented_dtypes_and_shapes(make_stream, make_replay):
    _, replay = filled(make_stream, make_replay, ["....T_......U_....L....."], frame_stack=3)
    batch = replay.sample(7)

    assert ((7, 6, 3, 3), torch.uint8) == (batch.obs.shape, batch.obs.dtype)
    assert ((7, 6, 3, 3), torch.uint8) == (batch.next_obs.shape, batch.next_obs.dtype)
    for name, dtype in [("action", torch.int64), ("row", torch.int64), ("env", torch.int64)]:
        assert ((7,), dtype) == (getattr(batch, name).shape, getattr(batch, name).dtype)
    for name in ("return_", "discount_n"):
        assert ((7,), torch.float32) == (getattr(batch, name).shape, getattr(batch, name).dtype)
    assert batch.obs.is_contiguous()
    assert batch.next_obs.is_contiguous()


def test_dict_observations_and_box_actions_are_stored_whole(make_replay, dict_case):
    replay = make_replay(dict_case.spec, dict_case.n_envs, size=20)
    replay.append(dict_case.samples)
    batch = replay.batch_at(np.array([1, 2]), np.array([1, 0]))

    # numbers count 2 a row: (1, 1) is 3, (2, 0) is 4, their successors 5 and 6
    assert [3, 4] == batch.obs["camera"][:, 1, 2].tolist()
    assert [5, 6] == batch.next_obs["inner"]["x"][:, 2].tolist()
    assert [[3, 3], [4, 4]] == batch.action.tolist()
    assert batch.obs["camera"].dtype == torch.uint8


@pytest.mark.parametrize(
    ("field", "change", "message"),
    [
        ("reward", lambda x: x.double(), r"reward: expected float32 \(9, 1\), got float64"),
        ("action", lambda x: x[..., None], r"action: expected int64 \(9, 1\), got int64 \(9, 1, 1\)"),
        ("obs", lambda x: x.float(), r"obs: expected uint8 \(9, 1, 2, 3, 3\), got float32"),
    ],
)
def test_leaf_of_another_shape_or_dtype_is_named(make_stream, make_replay, field, change, message):
    stream = make_stream(["....T_..."], frame_stack=2)
    replay = make_replay(stream.spec, 1, size=20)
    samples = stream.samples(0, 9)
    fields = {name: getattr(samples, name) for name in samples.__slots__}

    with pytest.raises(ValueError, match=message):
        replay.append(type(samples)(**(fields | {field: change(fields[field])})))


@pytest.mark.parametrize("cut", [1, 4, 9])
def test_filler_row_behind_a_row_that_did_not_end_is_refused(make_stream, make_replay, cut):
    stream = make_stream(["...._...."])
    replay = make_replay(stream.spec, 1, size=20)

    def append_all():
        for start, stop in stream.batches(cut):
            replay.append(stream.samples(start, stop))

    with pytest.raises(ValueError, match="a filler row follows a valid row that was neither"):
        append_all()


def test_stack_that_remembers_the_last_game_is_refused(make_stream, make_replay):
    stream = make_stream(["..T_..."], frame_stack=2)
    replay = make_replay(stream.spec, 1, size=20)
    samples = stream.samples(0, 7)
    samples.obs[4, 0, 0] = 9

    with pytest.raises(ValueError, match="obs: the stack at a game's start has frames other than zeros"):
        replay.append(samples)
