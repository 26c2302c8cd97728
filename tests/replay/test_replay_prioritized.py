"""What is drawn how often, with which weight, and from when to when."""

from itertools import cycle

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlcli.core.errors import ConfigError
from rlcli.core.options import range_problems
from rlcli.replay.config import PrioritizedReplayConfig, UniformReplayConfig
from rlcli.replay.prioritized import strata
from tests.replay.test_replay_streams import words
from tests.tables import assert_table

EPS = 2.0**-20


@pytest.fixture
def make_prioritized(make_replay):
    def build(spec, n_envs, size=40, **settings):
        return make_replay(spec, n_envs, size, kind=PrioritizedReplayConfig, **{"priority_eps": EPS} | settings)

    return build


@pytest.fixture
def four_steps(make_stream, make_prioritized):
    """A replay whose rows 0 to 3 of one environment can be drawn."""

    def build(priorities=None, **settings):
        stream = make_stream(["....."])
        replay = make_prioritized(stream.spec, 1, **settings)
        replay.append(stream.samples(0, 5))
        if priorities is not None:
            update(replay, dict(enumerate(priorities)))
        return replay

    return build


class GivenUniforms:
    """A generator whose uniforms are given."""

    def __init__(self, *uniforms):
        self.uniforms = list(uniforms)

    def random(self, n):
        taken, self.uniforms = self.uniforms[:n], self.uniforms[n:]
        return np.array(taken)


def update(replay, priorities, env=0):
    """Priorities so that, with eps, they are exactly the given ones; {row: priority}."""
    row = torch.tensor(list(priorities))
    exact = torch.tensor(list(priorities.values()), dtype=torch.float64) - EPS
    replay.update_priorities(row, torch.full_like(row, env), exact)


def tree_of(replay):
    """{(row, env): leaf} of everything that can be drawn."""
    selector, ring = replay._selector, replay._ring
    leaves = selector._tree.leaves().reshape(ring.n_rows, ring.n_envs)
    stored = {
        (row, env): leaves[row % ring.n_rows, env]
        for row in range(ring.oldest, ring.head)
        for env in range(ring.n_envs)
    }
    assert sum(value > 0 for value in stored.values()) == (leaves > 0).sum(), "a leaf without a stored row"
    return {place: value for place, value in stored.items() if value > 0}


# ---- draws


def test_strata_are_equal_parts_with_one_number_each():
    assert_table([0.125, 0.25, 0.5, 0.9375], strata(np.array([0.5, 0.0, 0.0, 0.75])))
    assert_table([0.75], strata(np.array([0.75])))


def test_given_uniforms_draw_the_rows_worked_out_by_hand(four_steps):
    # priorities^0.5: 1, 3, 2, 4, so that the rows cover [0, 1), [1, 4), [4, 6), [6, 10)
    # strata of 10 / 5 = 2:   [0, 2)   [2, 4)   [4, 6)   [6, 8)   [8, 10)
    # uniform                 0.75     0        0.5      0        0.75
    # target                  1.5      2        5        6        9.5
    replay = four_steps([1, 9, 4, 16], alpha=0.5)
    replay._selector._rng = GivenUniforms(0.75, 0, 0.5, 0, 0.75)

    assert [1, 1, 2, 3, 3] == replay.sample(5).row.tolist()


# chi-square: the statistic has mean dof and standard deviation sqrt(2 dof), less where draws are stratified
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("n", [7, 64])
def test_transitions_are_drawn_in_proportion_to_priority_to_the_alpha(make_stream, make_prioritized, alpha, n):
    stream = make_stream(["....T_......U_....L.....", ".......L......T_........"])
    replay = make_prioritized(stream.spec, 2, size=48, alpha=alpha)
    replay.append(stream.samples(0, 24))
    row, env = replay.eligible()
    priority = np.random.default_rng(5).exponential(size=len(row)) + 0.1
    replay.update_priorities(*(torch.from_numpy(x) for x in (row, env, priority)))
    share = (priority + EPS) ** alpha / ((priority + EPS) ** alpha).sum()

    n_draws = 20_160
    drawn = [replay._selector.select(n, replay._ring, replay._eligible, 0) for _ in range(n_draws // n)]
    places = np.concatenate([d.row * 2 + d.env for d in drawn])
    observed = np.array([(places == r * 2 + e).sum() for r, e in zip(row, env, strict=True)])

    chi_square, dof = ((observed - n_draws * share) ** 2 / (n_draws * share)).sum(), len(row) - 1
    assert observed.sum() == n_draws
    assert dof > 30
    assert chi_square < dof + 5 * np.sqrt(2 * dof)


def test_priority_of_zero_is_drawn_seldom_but_not_never(four_steps):
    replay = four_steps([1, 1, 1, 1], alpha=0.5, priority_eps=1e-4)
    replay.update_priorities(torch.tensor([2]), torch.tensor([0]), torch.zeros(1))

    # sqrt(1e-4) = 0.01 against three of 1 (and a little eps)
    share = (replay.sample(20_000).row == 2).float().mean().item()
    assert share == pytest.approx(0.01 / 3.01, abs=5e-4)


def test_absolute_rows_are_right_after_many_wrap_arounds(make_stream, make_prioritized):
    stream = make_stream(["....T_......U_....L....." * 3, ".......L......T_........" * 3], frame_stack=3)
    replay = make_prioritized(stream.spec, 2, size=18, n_step=2)
    for start, stop in stream.batches(5):
        replay.append(stream.samples(start, stop))
        if replay.can_sample(1):
            stream.check_batch(replay.sample(64), stream.expected(stop, 9 + 2, 2, 0.5))


# ---- weights


# leaves are 1, 2, 4, 1 of 8, N = 4, so N P is 0.5, 1, 2, 0.5; to the -beta, over the largest, which is row 0's
@pytest.mark.parametrize(
    ("beta", "table"),
    [(0.0, {0: 1, 1: 1, 2: 1, 3: 1}), (0.5, {0: 1, 1: 0.5**0.5, 2: 0.5, 3: 1}), (1.0, {0: 1, 1: 0.5, 2: 0.25, 3: 1})],
)
def test_weights_are_the_table_worked_out_by_hand(four_steps, beta, table):
    replay = four_steps([1, 4, 16, 1], alpha=0.5, beta=beta, beta_final=beta)
    batch = replay.sample(64)

    assert set(batch.row.tolist()) == {0, 1, 2, 3}
    assert_table([table[row] for row in batch.row.tolist()], batch.weight.double(), rtol=1e-6)
    assert batch.weight.dtype == torch.float32


def test_weights_are_divided_by_the_largest_of_the_batch_not_of_the_replay(four_steps):
    # only rows 1 and 2 are drawn, N P = 1 and 2: weights 1 and 1 / 2 of it
    replay = four_steps([1, 4, 16, 1], alpha=0.5, beta=1.0)
    replay._selector._rng = GivenUniforms(0.5, 0.5)  # targets 2 and 6 of 8; rows cover [0,1) [1,3) [3,7) [7,8)
    batch = replay.sample(2)

    assert [1, 2] == batch.row.tolist()
    assert_table([1, 0.5], batch.weight.double())


@pytest.mark.parametrize(
    ("settings", "step", "beta"),
    [
        ({"beta": 0.4, "beta_steps": 100}, 0, 0.4),
        ({"beta": 0.4, "beta_steps": 100}, 50, 0.7),
        ({"beta": 0.4, "beta_steps": 100}, 1000, 1.0),
        ({"beta": 0.4, "n_steps": 200}, 50, 0.55),
        ({"beta": 0.9, "beta_final": 0.5, "beta_steps": 10}, 5, 0.7),
        ({"beta": 0.4, "beta_steps": 0}, 0, 1.0),
    ],
)
def test_beta_moves_with_the_env_steps(four_steps, settings, step, beta):
    replay = four_steps([1, 16, 1, 1], alpha=0.5, **settings)
    batch = replay.sample(32, step)

    assert_table([0.25**beta], batch.weight[batch.row == 1].unique().double(), rtol=1e-6)


def test_uniform_replay_has_weights_of_one_and_takes_no_notice_of_priorities(make_stream, make_replay):
    stream = make_stream(["....T_......U_....L.....", ".......L......T_........"], 2)
    one, other = (make_replay(stream.spec, 2, size=40, n_step=2, seed=7) for _ in range(2))
    for replay in (one, other):
        for start, stop in stream.batches(5):
            replay.append(stream.samples(start, stop))
    batch = one.sample(8, 3)
    one.update_priorities(batch.row, batch.env, torch.full((8,), torch.nan))

    assert batch.weight.tolist() == [1] * 8
    assert batch.weight.dtype == torch.float32
    # drawn by rlcli before there were other replays
    assert [9, 7, 10, 18, 14, 6, 7, 4] == batch.row.tolist() == other.sample(8).row.tolist()
    assert [8, 14, 14, 7, 5, 17, 14, 8] == one.sample(8).row.tolist()


# ---- priorities


def test_new_transitions_begin_with_the_highest_priority_so_far(make_stream, make_prioritized):
    stream = make_stream(["." * 12])
    replay = make_prioritized(stream.spec, 1, alpha=0.5)
    replay.append(stream.samples(0, 4))
    assert {(0, 0): 1, (1, 0): 1, (2, 0): 1} == tree_of(replay)  # row 3 waits for its successor

    update(replay, {1: 0.25})
    replay.append(stream.samples(4, 5))
    assert {(0, 0): 1, (1, 0): 0.5, (2, 0): 1, (3, 0): 1} == tree_of(replay)

    update(replay, {2: 9.0})
    update(replay, {2: 4.0})
    replay.append(stream.samples(5, 6))
    assert {(0, 0): 1, (1, 0): 0.5, (2, 0): 2, (3, 0): 1, (4, 0): 3} == tree_of(replay)


def test_window_that_is_not_all_there_has_no_priority_until_it_is(make_stream, make_prioritized):
    stream = make_stream(["......"])
    replay = make_prioritized(stream.spec, 1, n_step=3)
    for stop, drawable in [(1, []), (2, []), (3, []), (4, [0]), (5, [0, 1])]:
        replay.append(stream.samples(stop - 1, stop))
        assert drawable == [row for row, _ in tree_of(replay)]


def test_cut_lets_the_row_before_be_drawn_at_once(make_stream, make_prioritized):
    stream = make_stream(["...C.."])
    replay = make_prioritized(stream.spec, 1, n_step=3)
    replay.append(stream.samples(0, 3))
    assert {} == tree_of(replay)

    replay.append(stream.samples(3, 4))
    assert {(0, 0), (1, 0), (2, 0)} == set(tree_of(replay))


def test_update_of_overwritten_transitions_is_ignored(make_stream, make_prioritized):
    stream = make_stream(["." * 20])
    replay = make_prioritized(stream.spec, 1, size=6, alpha=1.0)
    replay.append(stream.samples(0, 6))
    batch = replay.sample(64)
    assert set(batch.row.tolist()) == {0, 1, 2, 3, 4}
    replay.append(stream.samples(6, 9))  # over the rows 0, 1 and 2

    replay.update_priorities(batch.row, batch.env, torch.full((64,), 7.0))
    new = 7 + EPS
    assert {(3, 0): new, (4, 0): new, (5, 0): 1, (6, 0): 1, (7, 0): 1} == tree_of(replay)


def test_update_of_a_row_whose_frames_are_overwritten_is_ignored(make_stream, make_prioritized):
    stream = make_stream(["." * 20], frame_stack=3)
    replay = make_prioritized(stream.spec, 1, size=6, alpha=1.0)  # 8 rows
    replay.append(stream.samples(0, 8))
    replay.append(stream.samples(8, 9))  # row 1 is the oldest now, and rows 1 and 2 complete stacks only

    update(replay, {1: 5.0, 2: 5.0, 3: 5.0})
    assert {(3, 0): 5} | {(row, 0): 1 for row in (4, 5, 6, 7)} == tree_of(replay)


def test_update_that_is_ignored_does_not_raise_the_highest_priority(make_stream, make_prioritized):
    stream = make_stream(["." * 20])
    replay = make_prioritized(stream.spec, 1, size=6, alpha=1.0)
    replay.append(stream.samples(0, 6))
    replay.append(stream.samples(6, 12))
    update(replay, {0: 50.0, 5: 50.0, 11: 50.0, 100: 50.0})
    replay.append(stream.samples(12, 13))

    assert set(tree_of(replay).values()) == {1}


def test_transition_drawn_twice_takes_its_last_priority(four_steps):
    replay = four_steps(alpha=1.0)
    row = torch.tensor([1, 2, 1])
    replay.update_priorities(row, torch.zeros_like(row), torch.tensor([5.0, 3.0, 2.0]))

    assert {(0, 0): 1, (1, 0): 2 + EPS, (2, 0): 3 + EPS, (3, 0): 1} == tree_of(replay)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -1.0])
def test_priority_that_is_no_finite_size_is_refused_and_changes_nothing(four_steps, bad):
    replay = four_steps([1, 2, 3, 4])
    before = tree_of(replay)

    with pytest.raises(ValueError, match=r"priority: (nan|inf|-1\.0) is not a finite number >= 0"):
        replay.update_priorities(torch.tensor([0, 1]), torch.tensor([0, 0]), torch.tensor([9.0, bad]))
    assert before == tree_of(replay)


@pytest.mark.parametrize("shape", [(2, 1), (1,), (3,)])
def test_priorities_of_another_shape_are_refused(four_steps, shape):
    with pytest.raises(ValueError, match=r"priority: expected \(2,\), got"):
        four_steps().update_priorities(torch.tensor([0, 1]), torch.tensor([0, 0]), torch.ones(shape))


def test_priorities_may_need_gradients(four_steps):
    replay = four_steps(alpha=1.0)
    replay.update_priorities(torch.tensor([0]), torch.tensor([0]), torch.tensor([2.0], requires_grad=True))

    assert tree_of(replay)[0, 0] == 2 + EPS


# ---- unique


def test_unique_batch_holds_nothing_twice_and_leaves_the_tree_as_it_was(four_steps):
    replay = four_steps([1, 100, 1, 1], unique=True)
    before = [level.copy() for level in replay._selector._tree._levels]
    for _ in range(20):
        assert sorted(set(rows := replay.sample(3).row.tolist())) == sorted(rows)
    assert [0, 1, 2, 3] == sorted(replay.sample(4).row.tolist())
    for was, now in zip(before, replay._selector._tree._levels, strict=True):
        np.testing.assert_array_equal(was, now)


def test_more_unique_draws_than_there_are_is_refused_and_leaves_the_tree_as_it_was(four_steps):
    replay = four_steps([1, 2, 3, 4], unique=True)
    before = tree_of(replay)

    with pytest.raises(LookupError, match="5 different transitions were asked for, 4 can be drawn"):
        replay.sample(5)
    assert before == tree_of(replay)


def test_unique_weights_are_those_of_the_whole_tree(four_steps):
    replay = four_steps([1, 4, 16, 1], alpha=0.5, beta=1.0, unique=True)
    batch = replay.sample(4)

    assert {0: 1, 1: 0.5, 2: 0.25, 3: 1} == dict(zip(batch.row.tolist(), batch.weight.tolist(), strict=True))


# ---- any stream


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_tree_holds_at_every_moment_what_the_slow_reference_says(make_stream, make_prioritized, data):
    draw = data.draw
    n, k, n_envs = draw(st.integers(1, 5)), draw(st.sampled_from([1, 2, 3, 5])), draw(st.integers(1, 3))
    stream = make_stream(words(draw, draw(st.integers(1, 40)), n_envs), k)
    rows = draw(st.integers(n + 1, 14))
    replay = make_prioritized(stream.spec, n_envs, size=rows * n_envs, n_step=n, alpha=0.5)
    lengths = cycle(draw(st.lists(st.integers(1, 20), min_size=1, max_size=4)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    reference, highest, drawn, start = {}, 1.0, [], 0
    while start < stream.n_rows:
        stop = min(start + next(lengths), stream.n_rows)
        replay.append(stream.samples(start, stop))
        start = stop
        eligible = stream.expected(stop, rows + k - 1, n, 0.5)
        reference = {place: reference.get(place, highest**0.5) for place in eligible}
        assert reference == pytest.approx(tree_of(replay), rel=1e-12)
        drawn = (drawn + list(eligible))[-12:]  # among them some that are overwritten by now
        for row, env in drawn[:: int(rng.integers(1, 4))]:
            priority = float(rng.integers(1, 8))
            update(replay, {row: priority}, env)
            if (row, env) in eligible:
                reference[row, env] = priority**0.5
                highest = max(highest, priority)
        assert reference == pytest.approx(tree_of(replay), rel=1e-12)
        if reference:
            batch = replay.sample(16)
            assert set(zip(batch.row.tolist(), batch.env.tolist(), strict=True)) <= reference.keys()


# ---- settings


def test_nothing_can_be_drawn_from_an_empty_replay(make_stream, make_prioritized):
    replay = make_prioritized(make_stream(["."]).spec, 1)

    with pytest.raises(LookupError, match="nothing to sample"):
        replay.sample(1)


def test_beta_without_an_end_is_refused(make_stream):
    spec = make_stream(["."]).spec

    with pytest.raises(ConfigError, match=r"replay\.beta_steps: null means the run's n_steps"):
        PrioritizedReplayConfig().build(spec, 1, seed=0, discount=0.99, n_step=1)
    PrioritizedReplayConfig(beta_steps=9).build(spec, 1, seed=0, discount=0.99, n_step=1).close()


def test_tree_is_counted_in_the_memory_needed(make_prioritized, atari_spec):
    more = PrioritizedReplayConfig(size=1000).memory_bytes(atari_spec, 10)
    replay = make_prioritized(atari_spec, 10, size=1000)

    assert more == UniformReplayConfig(size=1000).memory_bytes(atari_spec, 10) + (100 + 3) * 10 * 16
    assert more <= replay.n_bytes <= more + 8 * 2 * 11


@pytest.mark.parametrize(
    ("field", "value"), [("alpha", -0.1), ("alpha", 1.5), ("beta", 1.1), ("priority_eps", 0.0), ("beta_steps", -1)]
)
def test_settings_out_of_range_are_named(field, value):
    (line,) = range_problems(PrioritizedReplayConfig(**{field: value}))

    assert line.startswith(f"{field}: {value} is not allowed")
