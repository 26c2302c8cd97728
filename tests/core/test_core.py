import pickle

import numpy as np
import pytest
import torch

from rlcli.core.clock import Every
from rlcli.core.errors import ConfigError, EnvError, WorkerError
from rlcli.core.rng import Purpose, UniformStreams, integer_seed
from rlcli.core.schedules import Constant, Exponential, Linear, Piecewise
from rlcli.core.tree import flatten_leading, index, leaves, map_tree, write


@pytest.mark.parametrize(
    ("schedule", "table"),
    [
        (Constant(0.3), {0: 0.3, 10**9: 0.3}),
        (Linear(1.0, 0.0, 100, 200), {0: 1.0, 100: 1.0, 150: 0.5, 175: 0.25, 200: 0.0, 10**6: 0.0}),
        (Linear(1.0, 0.1, 0, 0), {0: 0.1, 1: 0.1}),
        (Linear(1.0, 0.1, 50, 50), {0: 1.0, 49: 1.0, 50: 0.1}),
        (Exponential(1.0, 0.01, 0, 100), {0: 1.0, 50: 0.1, 75: 10**-1.5, 100: 0.01, 200: 0.01}),
        (Piecewise([0, 10, 30], [1.0, 0.5, 0.1]), {0: 1.0, 5: 0.75, 10: 0.5, 20: 0.3, 30: 0.1, 99: 0.1}),
        (Piecewise([7], [2.0]), {0: 2.0, 7: 2.0, 8: 2.0}),
    ],
)
def test_schedule_values(schedule, table):
    assert pytest.approx(list(table.values())) == [schedule(step) for step in table]


def test_piecewise_points_must_rise_and_match():
    assert Piecewise([0, 0], [1.0, 2.0]).problems() != []
    assert Piecewise([0, 1], [1.0]).problems() != []
    assert Piecewise([], []).problems() != []
    assert Piecewise([0, 1], [1.0, 2.0]).problems() == []


def test_every_fires_once_for_each_interval_even_when_steps_jump():
    every = Every(10)

    assert [False, True, False, True, True, False] == [every(s) for s in (9, 10, 19, 45, 50, 59)]


def test_every_of_zero_never_fires():
    assert not any(Every(0)(s) for s in (0, 1, 10**9))


def test_uniforms_do_not_depend_on_the_cutting_into_blocks():
    whole = UniformStreams(3, Purpose.EXPLORE, [0, 1], 2).block(7)
    streams = UniformStreams(3, Purpose.EXPLORE, [0, 1], 2)

    np.testing.assert_array_equal(whole, np.concatenate([streams.block(3), streams.block(4)]))


def test_uniforms_do_not_depend_on_the_slice_of_envs():
    whole = UniformStreams(3, Purpose.EXPLORE, range(5), 2).block(4)
    part = UniformStreams(3, Purpose.EXPLORE, [3, 4], 2).block(4)

    np.testing.assert_array_equal(whole[:, 3:], part)


def test_env_seeds_of_neighbouring_runs_and_purposes_are_disjoint():
    seeds = [integer_seed(s, p, i) for s in range(20) for p in (Purpose.ENV, Purpose.EVAL_ENV) for i in range(50)]

    assert len(seeds) == len(set(seeds))
    assert all(0 <= s < 2**31 for s in seeds)


def test_tree_functions_walk_nested_dicts():
    tree = {"a": torch.zeros(2, 3), "b": {"c": torch.ones(2, 3, 4)}, "none": None}

    write(tree, 0, {"a": 5.0, "b": {"c": 6.0}, "none": None})

    assert ["a", "b.c"] == [path for path, _ in leaves(tree)]
    assert [5.0, 5.0, 5.0] == index(tree, 0)["a"].tolist()
    assert (6, 4) == tuple(flatten_leading(tree)["b"]["c"].shape)
    assert map_tree(lambda x: x.sum().item(), tree)["none"] is None


@pytest.mark.parametrize(
    "error",
    [ConfigError(["a: b", "c: d"]), EnvError("boom", 3, 50, True), WorkerError(1, [4, 5], "died", "Traceback ...")],
)
def test_errors_cross_process_borders(error):
    copy = pickle.loads(pickle.dumps(error))

    assert type(error) is type(copy)
    assert str(error) == str(copy)
    assert vars(error) == vars(copy)


def test_worker_error_names_rank_and_envs():
    assert "worker 2 (envs 4-6): died" in str(WorkerError(2, [4, 5, 6], "died"))
