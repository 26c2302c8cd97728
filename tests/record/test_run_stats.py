import math
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

import rlcli
from rlcli.core.samples import Collected, Episode, Evaluation, Game
from rlcli.record.stats import MACHINE_COLUMNS, SUFFIXES, RunStats, five, resident_mb
from rlcli.record.tree_file import read_tree, write_tree


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def make(clock=None, *, window=100, metrics=("loss",), scalars=("epsilon",), evaluation=False, policy_lag=False):
    watch = {"clock": clock or Clock(), "memory": lambda: 123.5}
    return RunStats(window, metrics, scalars, evaluation, policy_lag=policy_lag, **watch)


def row_of(stats, *, itr=1, step=10, n_updates=0, n_consumed=0, scalars=None):
    return stats.row(itr=itr, step=step, n_updates=n_updates, n_consumed=n_consumed, scalars=scalars or {})


def episode(return_=1.0, length=4, discounted=0.5, nonzero=2):
    return Episode(
        row=0, env_id=0, length=length, return_=return_, discounted_return=discounted, nonzero_rewards=nonzero
    )


def game(score, length=9):
    return Game(row=0, env_id=0, length=length, score=score)


def collected(episodes=(), games=(), longest=0):
    return Collected(None, 10, list(episodes), list(games), longest)


def stats_of(row, name):
    return [row[name + suffix] for suffix in SUFFIXES]


def test_five_numbers_of_a_series():
    # mean 6 / 4; deviations from it 0.5, 0.5, 1.5, 1.5: variance (0.25 + 0.25 + 2.25 + 2.25) / 4 = 1.25
    expected = {"xAverage": 1.5, "xStd": 1.25**0.5, "xMedian": 1.5, "xMin": 0.0, "xMax": 3.0}

    assert five("x", [3.0, 0.0, 1.0, 2.0]) == pytest.approx(expected, rel=1e-12)


def test_one_value_has_no_spread():
    assert list(five("x", [2.0]).values()) == [2.0, 0.0, 2.0, 2.0, 2.0]


@pytest.mark.parametrize("values", [[], [math.nan, 1.0]])
def test_empty_and_nan_series_are_nan_without_a_warning(values):
    assert all(math.isnan(number) for number in five("x", values).values())


def test_infinite_value_reaches_the_file_without_a_warning():
    assert five("x", [1.0, math.inf])["xAverage"] == math.inf


def test_row_has_exactly_the_columns_fixed_at_the_start():
    stats = make(metrics=("loss", "q"), scalars=("epsilon", "learning_rate"), evaluation=True)
    columns = stats.columns
    stats.add_evaluation(Evaluation([game(1)], [episode()], 9, []), 1.0)

    assert tuple(row_of(stats)) == columns
    assert tuple(row_of(stats)) == columns


def test_run_without_evaluation_has_no_columns_for_it():
    assert not [name for name in make().columns if "Eval" in name]


def test_metric_that_takes_a_fixed_name_is_refused():
    with pytest.raises(ValueError, match="ReturnAverage"):
        make(metrics=("Return",))


def test_episode_statistics_run_over_the_last_window_of_episodes():
    stats = make(window=2)
    stats.add(collected([episode(100.0, length=50), episode(1.0, length=3, discounted=0.25, nonzero=1)]))
    stats.add(collected([episode(3.0, length=5, discounted=0.75, nonzero=3)]))
    row = row_of(stats)

    assert stats_of(row, "Return") == [2.0, 1.0, 2.0, 1.0, 3.0]
    assert stats_of(row, "Length") == [4.0, 1.0, 4.0, 3.0, 5.0]
    assert stats_of(row, "DiscountedReturn") == [0.5, 0.25, 0.5, 0.25, 0.75]
    assert stats_of(row, "NonzeroRewards") == [2.0, 1.0, 2.0, 1.0, 3.0]
    assert row["StepsInTrajWindow"] == 8


def test_game_statistics_are_kept_apart_from_those_of_episodes():
    stats = make(window=2)
    stats.add(collected([episode(1.0)] * 3, [game(900), game(10, 20), game(30, 40)]))
    row = row_of(stats)

    assert stats_of(row, "GameScore") == [20.0, 10.0, 20.0, 10.0, 30.0]
    assert row["GameLengthAverage"] == 30.0
    assert row["ReturnAverage"] == 1.0


def test_episode_statistics_outlive_the_interval():
    stats = make()
    stats.add(collected([episode(7.0)]))
    row_of(stats)

    assert row_of(stats)["ReturnAverage"] == 7.0


def test_episodes_are_counted_in_all_and_since_the_last_row():
    stats = make(window=1)
    stats.add(collected([episode()] * 3))
    first = row_of(stats)
    stats.add(collected([episode()] * 2))
    second = row_of(stats)

    assert (first["CumCompletedTrajs"], first["NewCompletedTrajs"]) == (3, 3)
    assert (second["CumCompletedTrajs"], second["NewCompletedTrajs"]) == (5, 2)


def test_metrics_run_over_the_updates_since_the_last_row():
    stats = make()
    stats.add_metrics({"loss": [100.0]})
    row_of(stats)
    stats.add_metrics({"loss": [1.0, 2.0]})
    stats.add_metrics({"loss": [6.0]})

    assert stats_of(row_of(stats), "loss")[0::2] == [3.0, 2.0, 6.0]


def test_metric_without_updates_is_nan():
    stats = make()
    stats.add_metrics({"loss": [1.0]})
    row_of(stats)

    assert all(math.isnan(number) for number in stats_of(row_of(stats), "loss"))


def test_undeclared_metric_is_refused_by_name():
    with pytest.raises(KeyError, match="metric 'los' is not declared; did you mean 'loss'"):
        make().add_metrics({"los": [1.0]})


def test_scalars_are_taken_as_they_are():
    assert row_of(make(), scalars={"epsilon": 0.25})["epsilon"] == 0.25


def test_undeclared_scalar_is_refused_by_name():
    with pytest.raises(KeyError, match="scalar 'epsilo' is not declared"):
        row_of(make(), scalars={"epsilo": 0.25})


def test_speeds_are_those_of_the_interval(clock):
    stats = make(clock)
    clock.now += 100
    row_of(stats, step=1000, n_updates=10)
    clock.now += 4
    row = row_of(stats, itr=2, step=1200, n_updates=30)

    assert row["CumTime (s)"] == 104
    assert row["StepsPerSecond"] == 50
    assert row["UpdatesPerSecond"] == 5


def test_speeds_leave_out_evaluation_but_the_clock_does_not(clock):
    stats = make(clock, evaluation=True)
    clock.now += 10
    stats.add_evaluation(Evaluation([], [], 0, []), 6.0)
    row = row_of(stats, step=200, n_updates=8)

    assert row["StepsPerSecond"] == 50
    assert row["UpdatesPerSecond"] == 2
    assert row["CumTime (s)"] == 10


def test_replay_ratio_is_samples_consumed_per_step_of_the_interval():
    stats = make()
    row_of(stats, step=100, n_consumed=0)
    row = row_of(stats, step=200, n_updates=25, n_consumed=800)

    assert row["ReplayRatio"] == 8
    assert row["CumReplayRatio"] == 4


def test_ratios_without_steps_or_time_are_nan():
    row = row_of(make(), itr=0, step=0)

    names = ("StepsPerSecond", "UpdatesPerSecond", "ReplayRatio", "CumReplayRatio")
    assert all(math.isnan(row[name]) for name in names)


def test_times_add_up_over_the_interval_and_begin_anew():
    stats = make()
    stats.add_time(1.0, 2.0)
    stats.add_time(0.5, 0.25)
    first = row_of(stats)
    second = row_of(stats)

    assert (first["SampleTime (s)"], first["LearnTime (s)"]) == (1.5, 2.25)
    assert (second["SampleTime (s)"], second["LearnTime (s)"]) == (0.0, 0.0)


def test_evaluation_is_on_its_own_row_only():
    stats = make(evaluation=True)
    stats.add_evaluation(Evaluation([game(2, 5), game(4, 7)], [episode(20.0), episode(40.0)], 15, [1.0]), 3.0)
    first = row_of(stats)
    second = row_of(stats)
    evaluated = [name for name in stats.columns if name.startswith("Eval")]

    assert stats_of(first, "EvalReturn") == [30.0, 10.0, 30.0, 20.0, 40.0]
    assert stats_of(first, "EvalGameScore") == [3.0, 1.0, 3.0, 2.0, 4.0]
    assert stats_of(first, "EvalLength") == [6.0, 1.0, 6.0, 5.0, 7.0]
    assert [first[n] for n in ("EvalEpisodes", "EvalEpisodesCut", "EvalSteps", "EvalTime (s)")] == [2, 1, 15, 3.0]
    assert all(math.isnan(second[name]) for name in evaluated)
    assert second["CumEvalTime (s)"] == 3.0


def test_evaluation_that_only_cut_games_has_counts_but_no_return():
    stats = make(evaluation=True)
    stats.add_evaluation(Evaluation([], [], 100, [1.0, 2.0]), 1.0)
    row = row_of(stats)

    assert math.isnan(row["EvalReturnAverage"])
    assert (row["EvalEpisodes"], row["EvalEpisodesCut"]) == (0, 2)


def test_evaluation_of_a_run_declared_without_is_refused():
    with pytest.raises(ValueError, match="declared to have none"):
        make().add_evaluation(Evaluation([], [], 0, []), 1.0)


def test_hint_tells_once_why_the_returns_are_empty():
    stats = make()
    stats.add(collected(longest=4211))
    row_of(stats, step=10_000)

    assert stats.hint() == "no episode finished in 10,000 steps; the longest has run 4,211 steps"
    assert stats.hint() is None
    row_of(stats, step=20_000)
    assert stats.hint() is None


def test_no_hint_once_an_episode_has_finished():
    stats = make()
    stats.add(collected([episode()]))
    row_of(stats, step=10_000)

    assert stats.hint() is None


def test_no_hint_before_the_first_step():
    stats = make()
    row_of(stats, itr=0, step=0)
    assert stats.hint() is None
    row_of(stats, step=10)
    assert stats.hint() is not None


def test_only_machine_columns_differ_between_a_fast_and_a_slow_machine():
    def rows(speed, memory):
        clock = Clock()
        stats = RunStats(2, ["loss"], ["epsilon"], True, policy_lag=True, clock=clock, memory=lambda: memory)
        for itr in (1, 2):
            clock.now += 10 / speed
            stats.add(replace(collected([episode(itr)], [game(itr)], itr), policy_lag=speed))
            stats.add_time(3 / speed, 4 / speed)
            stats.add_metrics({"loss": [0.1, 0.2]})
            stats.add_evaluation(Evaluation([game(1)], [episode()], 9, []), 1 / speed)
            yield row_of(stats, itr=itr, step=10 * itr, n_updates=2 * itr, n_consumed=64 * itr)

    differing = set()
    for slow, fast in zip(rows(1, 100.0), rows(3, 200.0), strict=True):
        differing |= {name for name in slow if slow[name] != fast[name] and not math.isnan(slow[name])}

    assert differing == set(MACHINE_COLUMNS)


def test_memory_counts_this_process_and_its_children(start_python):
    own = int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{os.getpid()}/status").read_text())[1]) * 1024 / 1e6
    child = start_python("b = bytearray(300_000_000); print('ready', flush=True); input()")
    child.stdout.readline()

    assert resident_mb() > own + 250


def test_every_column_and_no_other_is_explained_in_the_docs():
    text = (Path(rlcli.__file__).parent.parent / "docs" / "columns.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| `")]
    explained = set()
    machine = set()
    for names, *rest in rows:
        for name in re.findall(r"`([^`]+)`", names):
            expanded = [name[:-3] + s for s in SUFFIXES] if name.endswith("{5}") else [name]
            explained |= set(expanded)
            machine |= set(expanded) if rest[-1] == "yes" else set()
    columns = make(metrics=(), scalars=(), evaluation=True, policy_lag=True).columns

    assert explained == set(columns)
    assert machine == set(MACHINE_COLUMNS)


def test_policy_lag_is_the_mean_over_the_batches_of_the_interval_and_only_async_has_it():
    stats = make(metrics=(), scalars=(), policy_lag=True)
    for lag in (1, 2):
        stats.add(Collected(None, 10, policy_lag=lag))
    first = stats.row(itr=2, step=20, n_updates=0, n_consumed=0, scalars={})
    second = stats.row(itr=2, step=20, n_updates=0, n_consumed=0, scalars={})

    assert 1.5 == first["PolicyLag"]
    assert math.isnan(second["PolicyLag"])
    assert "PolicyLag" not in make(metrics=(), scalars=()).columns


# going on after a checkpoint


def work(stats, clock, itr):
    """One iteration."""
    clock.now += 10
    stats.add(replace(collected([episode(itr)] * (itr % 3), [game(itr)] * (itr % 2), itr), policy_lag=itr))
    stats.add_time(3.0, 4.0)
    stats.add_metrics({"loss": [0.1 * itr, 0.2]})


def full(clock, window=3, **changes):
    return make(clock, window=window, **{"evaluation": True, "policy_lag": True, **changes})


def rows_of(stats, clock, first, last, going_on_at=None):
    """The rows of some iterations, one each third; what goes on does so in new statistics, at another clock."""
    rows = []
    for itr in range(first, last):
        work(stats, clock, itr)
        if itr % 3 == 0:
            rows.append(row_of(stats, itr=itr, step=10 * itr, n_updates=2 * itr, n_consumed=64 * itr))
        if itr == 2:
            stats.add_evaluation(Evaluation([game(1)], [episode()], 9, []), 1.0)
        if itr == going_on_at:
            state, clock = stats.state(), Clock()
            clock.now = 5.0
            stats = full(clock)
            clock.now = 77.0
            stats.load_state(state)
    return rows


@pytest.mark.parametrize("going_on_at", [1, 3, 4, 5, 6, 7, 10])
def test_statistics_that_go_on_at_any_iteration_give_the_rows_of_those_that_never_stopped(going_on_at):
    whole, halves = (rows_of(full(clock), clock, 1, 14, at) for clock, at in ((Clock(), None), (Clock(), going_on_at)))

    assert 4 == len(whole)
    for expected, got in zip(whole, halves, strict=True):
        assert pytest.approx(expected, nan_ok=True, rel=1e-12) == got


def test_the_hint_is_not_told_again_and_its_numbers_go_on():
    stats = make()
    stats.add(collected(longest=500))
    row_of(stats, step=1000)
    assert stats.hint() is not None
    told, untold = make(), make()
    told.load_state(stats.state())
    waiting = make()
    waiting.add(collected(longest=700))
    untold.load_state(waiting.state())

    for each in (told, untold):
        row_of(each, step=2000)

    assert told.hint() is None
    assert "no episode finished in 2,000 steps; the longest has run 700 steps" == untold.hint()


@pytest.mark.parametrize(("window", "expected"), [(1, [5.0]), (3, [3.0, 4.0, 5.0]), (10, [3.0, 4.0, 5.0])])
def test_a_smaller_window_keeps_the_last_episodes_and_a_larger_one_all_there_are(window, expected):
    stats = make(window=3)
    stats.add(collected([episode(float(i)) for i in (1, 2, 3, 4, 5)], [game(float(i)) for i in (1, 2, 3, 4, 5)]))
    other = make(window=window)
    other.load_state(stats.state())
    row = row_of(other)

    assert five("Return", expected).items() <= row.items()
    assert five("GameScore", expected).items() <= row.items()


def test_a_metric_that_is_new_begins_empty_and_one_that_is_gone_is_left_out():
    stats = make(metrics=("loss", "old"))
    stats.add_metrics({"loss": [1.0], "old": [2.0]})
    other = make(metrics=("loss", "new"))
    other.load_state(stats.state())
    row = row_of(other)

    assert 1.0 == row["lossAverage"]
    assert math.isnan(row["newAverage"])
    assert "oldAverage" not in row


@pytest.mark.parametrize(("before", "after", "expected"), [(True, False, None), (False, True, 4.0)])
def test_another_sampler_may_have_a_policy_lag_or_none(before, after, expected):
    stats = make(policy_lag=before)
    stats.add(Collected(None, 10, policy_lag=2))
    other = make(policy_lag=after)
    other.load_state(stats.state())
    other.add(Collected(None, 10, policy_lag=4))

    assert expected == row_of(other).get("PolicyLag")


def test_a_state_is_a_plain_copy_that_later_rows_do_not_reach(tmp_path):
    clock = Clock()
    stats = full(clock)
    work(stats, clock, 5)
    state = stats.state()
    write_tree(tmp_path / "before.tree", state)
    row_of(stats)
    work(stats, clock, 6)

    assert read_tree(tmp_path / "before.tree") == state
