"""The sum tree against sums worked out by hand and by brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcli.replay.sum_tree import SumTree
from tests.tables import assert_table


def tree_of(values):
    tree = SumTree(len(values))
    tree.set(np.arange(len(values)), np.array(values, float))
    return tree


def assert_levels(expected, tree):
    for level, values in zip(expected, tree._levels, strict=True):
        assert_table(level, values)


def find(tree, *targets):
    return tree.find(np.array(targets, float)).tolist()


def test_nodes_are_the_sums_worked_out_by_hand():
    #          13
    #      8         5
    #   3    5     5   (0)
    #  3 0  1 4   0 5
    tree = tree_of([3, 0, 1, 4, 0, 5])

    assert_levels([[3, 0, 1, 4, 0, 5], [3, 5, 5, 0], [8, 5], [13]], tree)
    assert tree.total == 13


def test_each_target_finds_the_place_worked_out_by_hand():
    # the leaves cover [0, 3), nothing, [3, 4), [4, 8), nothing, [8, 13)
    tree = tree_of([3, 0, 1, 4, 0, 5])

    assert [0, 0, 2, 2, 3, 3, 5, 5] == find(tree, 0, 2.999, 3, 3.999, 4, 7.999, 8, 12.999)


def test_new_values_replace_the_old_ones_all_the_way_up():
    tree = tree_of([3, 0, 1, 4, 0, 5])
    tree.set(np.array([3, 1]), np.array([0.5, 2.0]))

    assert_levels([[3, 2, 1, 0.5, 0, 5], [5, 1.5, 5, 0], [6.5, 5], [11.5]], tree)


def test_of_a_place_that_comes_twice_the_last_value_counts():
    tree = tree_of([1, 1, 1])
    tree.set(np.array([1, 2, 1]), np.array([5.0, 3.0, 7.0]))

    assert_table([1, 7, 3], tree.leaves())
    assert tree.total == 11


def test_single_leaf_is_its_own_root():
    tree = tree_of([2.5])

    assert tree.total == 2.5
    assert [0, 0] == find(tree, 0, 2.4)


def test_small_leaf_beside_large_ones_counts():
    # float32 has no number between 2**25 and 2**25 + 4
    tree = tree_of([2.0**25, 1, 0, 1])

    assert tree.total == 2**25 + 2
    assert [1, 3] == find(tree, 2**25 + 0.5, 2**25 + 1.5)


@pytest.mark.parametrize("n", [2, 3, 7, 64, 1000])
def test_leaf_of_zero_is_not_found_even_where_rounding_oversteps_the_total(n):
    values = np.full(n, 0.1)
    values[n // 2 :] = 0
    tree = tree_of(values)
    targets = [tree.total, np.nextafter(tree.total, 9), 2 * tree.total]

    assert all(place < n // 2 for place in find(tree, *targets))
    mirrored = tree_of(values[::-1])
    assert all(place >= n - n // 2 for place in find(mirrored, 0, 0.05, *targets))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 1000, 4097])
def test_size_is_what_it_says_up_to_a_few_bytes_a_level(n):
    assert abs(SumTree(n).n_bytes - SumTree.bytes_for(n)) <= 8 * 2 * 14


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_changes_at_any_capacity_give_the_sums_and_places_of_brute_force(data):
    draw = data.draw
    n = draw(st.integers(1, 70))
    tree, values = SumTree(n), np.zeros(n)
    for _ in range(draw(st.integers(1, 5))):
        m = draw(st.integers(1, 20))
        place = np.array(draw(st.lists(st.integers(0, n - 1), min_size=m, max_size=m)))
        new = np.array(draw(st.lists(st.integers(0, 9), min_size=m, max_size=m)), float)
        tree.set(place, new)
        for at, value in zip(place, new, strict=True):
            values[at] = value
        np.testing.assert_array_equal(values, tree.leaves())
        assert tree.total == values.sum()
        targets = np.arange(0, values.sum(), 0.25)  # whole numbers: sums and comparisons are exact
        np.testing.assert_array_equal(np.searchsorted(values.cumsum(), targets, side="right"), tree.find(targets))


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_tree_is_a_function_of_its_leaves_to_the_last_bit(n, seed):
    rng = np.random.default_rng(seed)
    tree, loaded = SumTree(n), SumTree(n)
    for _ in range(5):
        place = rng.integers(0, n, 17)
        tree.set(place, rng.random(17) ** 0.6)
    loaded.set(np.arange(n), rng.random(n))
    loaded.load_leaves(tree.leaves())

    for mine, yours in zip(tree._levels, loaded._levels, strict=True):
        np.testing.assert_array_equal(mine, yours)
