"""Sequences, compared row by row with the stream that went in."""

from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlcli.core.errors import ConfigError
from rlcli.core.options import range_problems
from rlcli.replay.config import SequenceReplayConfig, UniformReplayConfig
from rlcli.replay.sequences import mixed_priority
from tests.replay.conftest import FILLERS, INITIAL, action, reward, state
from tests.replay.test_replay_streams import words
from tests.tables import assert_table

EPS = 2.0**-20


@pytest.fixture
def make_sequences(make_replay):
    def build(spec, n_envs, size=60, **settings):
        return make_replay(spec, n_envs, size, kind=SequenceReplayConfig, **{"priority_eps": EPS} | settings)

    return build


def valid(stream, row, env):
    return stream.words[env][row] not in FILLERS


def starts(stream, head, capacity, burn_in_T, train_T, n_step, every):
    """{(row, env)} that may be drawn after ``head`` rows, by the definition."""
    oldest, found = max(0, head - capacity), set()
    for row in range(oldest, head):
        for env in range(stream.n_envs):
            trained = range(row + burn_in_T, row + burn_in_T + train_T)
            whole = row + burn_in_T + train_T + n_step < head and stream.stack_is_stored(row, env, oldest)
            if row % every == 0 and whole and any(valid(stream, t, env) for t in trained):
                found.add((row, env))
    return found


def check_batch(stream, batch, n_rows, with_states=True):
    """Every row of every sequence is what the stream had there."""
    assert batch.reward.shape[0] == n_rows
    for i, (start, env) in enumerate(zip(batch.row.tolist(), batch.env.tolist(), strict=True)):
        word = stream.words[env] + "."
        for t, row in enumerate(range(start, start + n_rows)):
            assert batch.valid[t, i].item() == valid(stream, row, env)
            assert batch.action[t, i].item() == action(row, env)
            assert batch.reward[t, i].item() == reward(row, env)
            assert batch.terminated[t, i].item() == (word[row] in "TBL")
            cut = word[row] == "." and word[row + 1] == "C"
            assert batch.truncated[t, i].item() == (word[row] in "UB" or cut)
            if valid(stream, row, env):
                np.testing.assert_array_equal(stream.obs(row, env), batch.obs[t, i])
                np.testing.assert_array_equal(stream.obs(row + 1, env), batch.obs[t + 1, i])
        expected = state(start, env) if with_states else {key: leaf[0].tolist() for key, leaf in INITIAL.items()}
        assert expected == {key: leaf[i].tolist() for key, leaf in batch.state.items()}


def tree_of(replay):
    """{(row, env): leaf} of everything that can be drawn."""
    selector, ring = replay._selector, replay._ring
    leaves, every = selector._tree.leaves().reshape(-1, ring.n_envs), selector.every
    rows = range(-(-ring.oldest // every) * every, ring.head, every)
    stored = {(row, env): leaves[row // every % len(leaves), env] for row in rows for env in range(ring.n_envs)}
    assert sum(value > 0 for value in stored.values()) == (leaves > 0).sum(), "a leaf without a stored row"
    return {place: value for place, value in stored.items() if value > 0}


# ---- contents


def test_one_sequence_is_the_table_worked_out_by_hand(make_stream, make_sequences):
    stream = make_stream(["....T_.......", "............."])
    replay = make_sequences(stream.spec, 2, burn_in_T=1, train_T=3, n_step=2, state_interval=3)
    replay.append(stream.samples(0, 13))

    # L = 6: rows 0 to 6, 3 to 9 and 6 to 12 are stored
    assert {(s, b) for s in (0, 3, 6) for b in (0, 1)} == set(
        zip(*(x.tolist() for x in replay.eligible()), strict=True)
    )
    batch = replay.batch_at(np.array([3]), np.array([0]))
    assert [[3, 0], [4, 0], [5, 0], [6, 0], [7, 0], [8, 0], [9, 0]] == batch.obs[:, 0].tolist()
    assert [30, 40, 50, 60, 70, 80] == batch.action[:, 0].tolist()
    # (5 row) mod 11 - 4
    assert [0, 5, -1, 4, -2, 3] == batch.reward[:, 0].tolist()
    assert [False, True, False, False, False, False] == batch.terminated[:, 0].tolist()
    assert [True, True, False, True, True, True] == batch.valid[:, 0].tolist()
    assert {"h": [[3, 0, 0.5]], "c": [[[300]]]} == {key: leaf.tolist() for key, leaf in batch.state.items()}
    assert [1] == batch.weight.tolist()


def test_newest_start_waits_until_its_last_observation_is_stored(make_stream, make_sequences):
    stream = make_stream(["." * 12])
    replay = make_sequences(stream.spec, 1, burn_in_T=1, train_T=2, n_step=1, state_interval=2)
    for stop, drawable in [(4, []), (5, [0]), (6, [0]), (7, [2, 0])]:
        replay.append(stream.samples(max(0, len(replay)), stop))
        assert drawable == replay.eligible()[0].tolist()
        assert sorted(drawable) == [row for row, _ in tree_of(replay)]


# rlpyt rounds starts down to the interval after it left out the rows around the write cursor (bug B-15)
@pytest.mark.parametrize("prioritized", [False, True])
def test_no_sequence_runs_across_the_write_cursor(make_stream, make_sequences, prioritized):
    stream = make_stream(["." * 200])
    replay = make_sequences(
        stream.spec, 1, 37, burn_in_T=3, train_T=6, n_step=2, state_interval=8, prioritized=prioritized
    )
    for start, stop in stream.batches(6):
        replay.append(stream.samples(start, stop))
        if replay.can_sample(1):
            batch = replay.sample(32)
            assert {(row, 0) for row in batch.row.tolist()} <= starts(stream, stop, 37, 3, 6, 2, 8)
            check_batch(stream, batch, 11)


def test_sequence_without_a_valid_training_row_is_not_drawn(make_stream, make_sequences):
    stream = make_stream(["..T_____.....", "............."])
    replay = make_sequences(stream.spec, 2, burn_in_T=2, train_T=3, n_step=1, state_interval=1)
    replay.append(stream.samples(0, 13))

    # training rows of start s: s + 2 to s + 4; rows 3 to 7 are filler
    assert [0, 4, 5, 6] == sorted(replay.eligible()[0][replay.eligible()[1] == 0].tolist())
    assert [0, 1, 2, 3, 4, 5, 6] == sorted(replay.eligible()[0][replay.eligible()[1] == 1].tolist())


def test_interval_of_0_stores_no_state_and_begins_anywhere(make_stream, make_sequences):
    stream = make_stream(["....T_......."], frame_stack=2)
    replay = make_sequences(stream.spec, 1, burn_in_T=1, train_T=2, n_step=1, state_interval=0)
    replay.append(replace(stream.samples(0, 13), record=None, state=None))

    assert [1, 2, 3, 4, 5, 6, 7, 8] == sorted(replay.eligible()[0].tolist())  # of row 0 a frame was not seen
    check_batch(stream, replay.sample(16), 4, with_states=False)


def test_agent_without_state_gives_sequences_without_state(make_stream):
    stream = make_stream(["." * 12])
    config = SequenceReplayConfig(size=12, burn_in_T=1, train_T=2, state_interval=3)
    replay = config.build(stream.spec, 1, seed=0, discount=0.9, n_step=1, n_steps=9)
    replay.append(replace(stream.samples(0, 12), record=None, state=None))
    batch = replay.sample(8)
    replay.close()

    assert batch.state is None
    assert set(batch.row.tolist()) == {0, 3, 6}


def test_dict_observations_come_back_whole(make_sequences, dict_case):
    replay = make_sequences(dict_case.spec, 2, burn_in_T=0, train_T=2, n_step=1, state_interval=0)
    replay.append(dict_case.samples)
    batch = replay.batch_at(np.array([0]), np.array([1]))

    # numbers count 2 a row, so environment 1 has 1, 3, 5, 7
    assert [1, 3, 5, 7] == batch.obs["camera"][:, 0, 1, 2].tolist()
    assert [[1, 1], [3, 3], [5, 5]] == batch.action[:, 0].tolist()
    assert batch.obs["inner"]["x"].shape == (4, 1, 3)


# ---- states


@pytest.mark.parametrize("interval", [1, 3, 4, 7])
@pytest.mark.parametrize("batch_T", [1, 4, 5, 30])
def test_state_is_that_before_the_first_row_whatever_the_batches(make_stream, make_sequences, interval, batch_T):
    stream = make_stream(["....T_......U_....L.....C......", "." * 31])
    replay = make_sequences(stream.spec, 2, 2 * 14, burn_in_T=1, train_T=3, n_step=1, state_interval=interval)
    for start, stop in stream.batches(batch_T):
        replay.append(stream.samples(start, stop))
        if replay.can_sample(1):
            check_batch(stream, replay.sample(16), 5)


def test_batches_that_begin_on_the_interval_need_no_noted_states(make_stream, make_sequences):
    stream = make_stream(["." * 12])
    replay = make_sequences(stream.spec, 1, burn_in_T=1, train_T=3, n_step=1, state_interval=3)
    for start, stop in stream.batches(3):
        replay.append(replace(stream.samples(start, stop), record=None))

    check_batch(stream, replay.sample(16), 5)


@pytest.mark.parametrize("record", [None, {}, {"value": torch.zeros(4, 1)}])
def test_state_that_is_needed_inside_a_batch_but_was_not_noted_is_named_before_anything_is_stored(
    make_stream, make_sequences, record
):
    stream = make_stream(["." * 12])
    replay = make_sequences(stream.spec, 1, burn_in_T=1, train_T=3, n_step=1, state_interval=3)

    with pytest.raises(ValueError, match=r"record\.state: the agent must note the state before each row, row 3 needs"):
        replay.append(replace(stream.samples(0, 4), record=record))
    assert not len(replay)
    with pytest.raises(ValueError, match="state: the samples have no recurrent state"):
        replay.append(replace(stream.samples(0, 3), state=None))


def test_states_are_copies(make_stream, make_sequences):
    stream = make_stream(["." * 12])
    replay = make_sequences(stream.spec, 1, burn_in_T=1, train_T=3, n_step=1, state_interval=3)
    for start, stop in stream.batches(4):
        samples = stream.samples(start, stop)
        replay.append(samples)
        for tree in (samples.state, samples.record["state"]):
            for leaf in tree.values():
                leaf.fill_(77)
    replay.sample(8).state["h"].zero_()

    check_batch(stream, replay.sample(16), 5)


# ---- priorities


def test_priority_of_a_sequence_is_the_table_worked_out_by_hand():
    error = torch.tensor([[1.0, 4, 9, 9], [-3, 4, 2, 9], [2, 4, torch.nan, 9]], dtype=torch.float64)
    known = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 0]], dtype=torch.bool)

    # 0.9 * 3 + 0.1 * 2;  all the same;  the one that is known;  none
    got = mixed_priority(error, known, 0.9)
    assert_table([2.9, 4.0, 2.0], got[:3])
    assert got[3].isnan()
    assert_table([2.0, 4.0, 2.0], mixed_priority(error, known, 0.0)[:3])
    assert_table([3.0, 4.0, 2.0], mixed_priority(error, known, 1.0)[:3])
    assert_table([2.9], mixed_priority(error[:, :1], known[:, :1], 0.9))


def said_of(stream, start, stop, errors):
    """[T, B] priorities, nan but for those given {(row, env): size}."""
    return torch.tensor([[errors.get((t, b), torch.nan) for b in range(stream.n_envs)] for t in range(start, stop)])


def test_new_sequence_begins_with_what_the_learner_said_of_its_training_rows(make_stream, make_sequences):
    stream = make_stream(["...T_........"])
    replay = make_sequences(stream.spec, 1, burn_in_T=2, train_T=3, n_step=1, state_interval=3, alpha=0.5, eta=0.75)
    # start 0 trains on rows 2, 3 and the filler 4; start 3 on 5, 6, 7, of which 6 is unknown; start 6 on unknown ones
    errors = {(0, 0): 90.0, (2, 0): 2.0, (3, 0): 6.0, (4, 0): 80.0, (5, 0): 15.0, (7, 0): 17.0}
    for start, stop in stream.batches(5):
        replay.append(stream.samples(start, stop), said_of(stream, start, stop, errors))

    # 0.75 * 6 + 0.25 * 4 = 5.5;  0.75 * 17 + 0.25 * 16 = 16.75;  the highest so far; each to the 0.5, once
    got = tree_of(replay)
    assert {(0, 0): 5.5**0.5, (3, 0): 16.75**0.5, (6, 0): 16.75**0.5} == pytest.approx(got, rel=1e-6)


def test_new_sequence_of_which_nothing_was_said_begins_with_the_highest_priority_so_far(make_stream, make_sequences):
    stream = make_stream(["." * 14])
    replay = make_sequences(stream.spec, 1, burn_in_T=0, train_T=3, n_step=1, state_interval=3, alpha=0.5)
    replay.append(stream.samples(0, 8))
    assert {(0, 0): 1, (3, 0): 1} == tree_of(replay)

    replay.update_priorities(torch.tensor([0]), torch.tensor([0]), torch.tensor([9.0 - EPS], dtype=torch.float64))
    replay.append(stream.samples(8, 14))
    assert {(0, 0): 3, (3, 0): 1, (6, 0): 3, (9, 0): 3} == tree_of(replay)


# rlpyt applies alpha to updates but not to the priorities of new sequences: 16 against 4 (bug B-7)
def test_alpha_is_applied_once_to_new_priorities_and_to_updates_alike(make_stream, make_sequences):
    stream = make_stream(["." * 12])
    replay = make_sequences(stream.spec, 1, burn_in_T=0, train_T=3, n_step=1, state_interval=3, alpha=0.5)
    replay.append(stream.samples(0, 12), torch.full((12, 1), 16.0 - EPS, dtype=torch.float64))
    assert [4, 4, 4] == pytest.approx(list(tree_of(replay).values()), rel=1e-6)

    replay.update_priorities(torch.tensor([3]), torch.tensor([0]), torch.tensor([9.0 - EPS], dtype=torch.float64))
    assert [4, 3, 4] == pytest.approx(list(tree_of(replay).values()), rel=1e-6)


def test_priorities_of_new_rows_count_also_where_batches_are_shorter_than_sequences(make_stream, make_sequences):
    stream = make_stream(["." * 40])
    replays = [
        make_sequences(stream.spec, 1, burn_in_T=2, train_T=5, n_step=2, state_interval=4, eta=0.5) for _ in range(3)
    ]
    errors = {(t, 0): float(t * t % 13) for t in range(40)}
    for replay, batch_T in zip(replays, (1, 7, 40), strict=True):
        for start, stop in stream.batches(batch_T):
            replay.append(stream.samples(start, stop), said_of(stream, start, stop, errors))

    assert tree_of(replays[0]) == tree_of(replays[1]) == tree_of(replays[2])
    assert len(set(tree_of(replays[0]).values())) > 4


@pytest.mark.parametrize(
    ("priority", "message"),
    [
        (torch.full((6, 1), -1.0), r"priority: -1\.0 is not a finite number >= 0, nor nan"),
        (torch.full((6, 1), torch.inf), "priority: inf is not a finite number"),
        (torch.ones(6), r"priority: expected \(6, 1\), got \(6,\)"),
    ],
)
def test_priorities_that_are_none_are_refused_before_anything_is_stored(make_stream, make_sequences, priority, message):
    stream = make_stream(["." * 6])
    replay = make_sequences(stream.spec, 1, 200)

    with pytest.raises(ValueError, match=message):
        replay.append(stream.samples(0, 6), priority)
    assert not len(replay)


def test_priorities_that_nobody_takes_notice_of_are_refused(make_stream, make_sequences, make_replay):
    stream = make_stream(["." * 6])
    for replay in (make_sequences(stream.spec, 1, 200, prioritized=False), make_replay(stream.spec, 1, 9)):
        with pytest.raises(ValueError, match="priority: "):
            replay.append(stream.samples(0, 6), torch.ones(6, 1))


def test_sequences_are_drawn_in_proportion_to_priority_to_the_alpha_and_weighted_for_it(make_stream, make_sequences):
    stream = make_stream(["." * 40] * 3)
    replay = make_sequences(
        stream.spec, 3, 120, burn_in_T=1, train_T=3, n_step=1, state_interval=4, alpha=0.9, beta=0.6
    )
    replay.append(stream.samples(0, 40))
    row, env = (torch.from_numpy(x) for x in replay.eligible())
    priority = torch.rand(len(row), dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + 0.1
    replay.update_priorities(row, env, priority)
    share = ((priority + EPS) ** 0.9 / ((priority + EPS) ** 0.9).sum()).numpy()

    batch, n = replay.sample(4000), 4000
    observed = np.array([((batch.row == r) & (batch.env == e)).sum() for r, e in zip(row, env, strict=True)])
    chi_square, dof = ((observed - n * share) ** 2 / (n * share)).sum(), len(row) - 1
    assert dof == 26
    assert chi_square < dof + 5 * np.sqrt(2 * dof)
    weight = (len(row) * share) ** -0.6
    for i, (r, e) in enumerate(zip(row, env, strict=True)):
        got = batch.weight[(batch.row == r) & (batch.env == e)]
        assert got.tolist() == pytest.approx([weight[i] / weight.max()] * len(got), rel=1e-5)


@pytest.mark.parametrize("words", [["....T_......U_....L.....C......" * 8, "." * 248]])
def test_uniform_sequences_are_drawn_as_often_each(make_stream, make_sequences, words):
    stream = make_stream(words)
    replay = make_sequences(stream.spec, 2, 500, burn_in_T=1, train_T=3, n_step=1, state_interval=7, prioritized=False)
    replay.append(stream.samples(0, 248))
    row, env = replay.eligible()
    batch = replay.sample(20_000)
    observed = np.array([((batch.row == r) & (batch.env == e)).sum() for r, e in zip(row, env, strict=True)])

    mean, dof = 20_000 / len(row), len(row) - 1
    assert observed.sum() == 20_000
    assert abs(((observed - mean) ** 2 / mean).sum() - dof) < 5 * np.sqrt(2 * dof)
    assert batch.weight.unique().tolist() == [1]


# ---- any stream


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_stream_gives_the_sequences_and_priorities_that_the_slow_reference_says(make_stream, make_sequences, data):
    draw = data.draw
    burn, train, n_step = draw(st.integers(0, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    interval, k, n_envs = draw(st.integers(0, 6)), draw(st.sampled_from([1, 2, 4])), draw(st.integers(1, 3))
    every, n_rows = max(1, interval), burn + train + n_step
    stream = make_stream(words(draw, draw(st.integers(1, 60)), n_envs), k)
    rows, prioritized = draw(st.integers(n_rows + every, n_rows + every + 12)), draw(st.booleans())
    eta = draw(st.sampled_from([0.0, 0.5, 1.0]))
    replay = make_sequences(
        stream.spec, n_envs, rows * n_envs, burn_in_T=burn, train_T=train, n_step=n_step, state_interval=interval,
        prioritized=prioritized, alpha=0.5, eta=eta,
    )  # fmt: skip
    lengths = cycle(draw(st.lists(st.integers(1, 20), min_size=1, max_size=4)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    said, reference, highest, drawn, start = {}, {}, 1.0, [], 0
    while start < stream.n_rows:
        stop = min(start + next(lengths), stream.n_rows)
        said |= {
            (t, b): float(rng.integers(0, 9)) for t in range(start, stop) for b in range(n_envs) if rng.random() < 0.7
        }
        replay.append(stream.samples(start, stop), said_of(stream, start, stop, said) if prioritized else None)
        start = stop
        eligible = starts(stream, stop, rows + k - 1, burn, train, n_step, every)
        row, env = replay.eligible()
        assert eligible == set(zip(row.tolist(), env.tolist(), strict=True))
        assert replay.can_sample(len(eligible))
        assert not replay.can_sample(len(eligible) + 1)
        if eligible:
            check_batch(stream, replay.sample(8), n_rows, with_states=interval > 0)
        if not prioritized:
            continue
        new = {}
        for place in eligible - reference.keys():
            known = [said[t, place[1]] for t in range(place[0] + burn, place[0] + burn + train)
                     if (t, place[1]) in said and valid(stream, t, place[1])]  # fmt: skip
            new[place] = eta * max(known) + (1 - eta) * sum(known) / len(known) + EPS if known else None
        highest = max([highest, *(p for p in new.values() if p is not None)])
        reference = {
            p: reference[p] if p in reference else (highest if new[p] is None else new[p]) ** 0.5 for p in eligible
        }
        assert reference == pytest.approx(tree_of(replay), rel=1e-6)
        drawn = (drawn + list(eligible))[-12:]  # among them some that are overwritten by now
        for place in drawn[:: int(rng.integers(1, 4))]:
            priority = float(rng.integers(1, 8))
            replay.update_priorities(*(torch.tensor([x]) for x in (*place, priority)))
            if place in eligible:
                reference[place] = (priority + EPS) ** 0.5
                highest = max(highest, priority + EPS)
        assert reference == pytest.approx(tree_of(replay), rel=1e-6)


# ---- settings


@pytest.mark.parametrize(
    ("n_envs", "interval", "least"),
    # L = 2 + 4 + 3 = 9 rows and one more observation; up to interval - 1 rows may lie before the first start
    [(1, 1, 10), (1, 0, 10), (1, 5, 14), (3, 5, 13 * 3 + 1)],
)
def test_size_that_holds_no_sequence_is_refused_with_the_least_that_does(make_stream, n_envs, interval, least):
    stream = make_stream(["." * 60] * n_envs)
    settings = {"burn_in_T": 2, "train_T": 4, "state_interval": interval}

    def build(size):
        config = SequenceReplayConfig(size=size, **settings)
        return config.build(stream.spec, n_envs, seed=0, discount=0.9, n_step=3, n_steps=9, state=INITIAL)

    with pytest.raises(ConfigError, match=rf"replay\.size: .* holds no 9-row sequence .* must be >= {least}$"):
        build(least - 1)
    replay = build(least)
    for row in range(60):
        replay.append(stream.samples(row, row + 1))
        assert row < 20 or replay.can_sample(1)
    replay.close()


@pytest.mark.parametrize("prioritized", [False, True])
def test_estimate_is_what_is_allocated_but_for_the_states(make_sequences, atari_spec, prioritized):
    config = SequenceReplayConfig(size=20_000, prioritized=prioritized)
    replay = make_sequences(atari_spec, 10, size=20_000, prioritized=prioritized)
    states = replay._store.states.n_bytes

    assert states == -(-2003 // 40) * 10 * 4 * 4
    assert replay.n_bytes - states == pytest.approx(config.memory_bytes(atari_spec, 10), rel=0.001)
    uniform = UniformReplayConfig(size=20_000).memory_bytes(atari_spec, 10)
    assert config.memory_bytes(atari_spec, 10) == uniform + prioritized * 2003 * 10 * (4 + 1)


def test_states_that_do_not_fit_are_refused_when_the_agent_is_known(make_stream, monkeypatch):
    monkeypatch.setattr("rlcli.core.machine.available_memory", lambda: 10**6)
    spec = make_stream(["."]).spec
    config = SequenceReplayConfig(size=5000, train_T=10, burn_in_T=0, state_interval=1, prioritized=False)
    assert config.memory_problems(spec, 1) == []

    with pytest.raises(ConfigError, match=r"replay\.size: 5_000 transitions need .* the largest size that fits is"):
        config.build(spec, 1, seed=0, discount=0.9, n_step=1, state={"h": torch.zeros(1, 512)})


@pytest.mark.parametrize(
    ("field", "value"), [("train_T", 0), ("burn_in_T", -1), ("state_interval", -1), ("eta", 1.5), ("alpha", -1.0)]
)
def test_settings_out_of_range_are_named(field, value):
    (line,) = range_problems(SequenceReplayConfig(**{field: value}))

    assert line.startswith(f"{field}: {value} is not allowed")


def test_defaults_are_those_of_the_paper():
    config = SequenceReplayConfig()

    assert (40, 80, 40) == (config.burn_in_T, config.train_T, config.state_interval)
    assert (0.9, 0.6, 0.9) == (config.alpha, config.beta, config.eta)
