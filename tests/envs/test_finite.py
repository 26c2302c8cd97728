import numpy as np
import pytest

from rlcli.envs.finite import non_finite


def batch(T=4, B=3):
    """A finite batch with observations of several dtypes and its rewards."""
    obs = {
        "camera": np.zeros((T + 1, B, 2, 2), np.uint8),
        "body": {"joints": np.zeros((T + 1, B, 2), np.float32), "door": np.zeros((T + 1, B), np.int64)},
    }
    return obs, np.zeros((T, B), np.float32)


def test_nothing_is_found_in_a_finite_batch():
    assert non_finite(*batch()) is None


def test_the_largest_finite_numbers_are_finite():
    obs, reward = batch()
    reward[:] = np.finfo(np.float32).max
    obs["body"]["joints"][:] = -np.finfo(np.float32).max

    assert non_finite(obs, reward) is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("row", "position"), [(0, 0), (1, 2), (3, 1)])
def test_a_reward_is_found_at_its_row_and_env(value, row, position):
    obs, reward = batch()
    reward[row, position] = value

    found = non_finite(obs, reward)

    assert (row, position, "reward") == found[:3]
    assert str(found) == f"reward is {value}"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("row", "position"), [(0, 0), (2, 1), (4, 2)])  # row 4 is the one past the batch
@pytest.mark.parametrize("element", [0, 1])
def test_an_observation_is_found_by_its_dotted_path(value, row, position, element):
    obs, reward = batch()
    obs["body"]["joints"][row, position, element] = value

    found = non_finite(obs, reward)

    assert (row, position, "obs.body.joints") == found[:3]
    assert str(found) == f"obs.body.joints is {value}"


def test_an_observation_that_is_no_dict_is_called_obs():
    obs = np.zeros((3, 2, 4), np.float32)
    obs[1, 1, 3] = np.nan

    assert non_finite(obs, np.zeros((2, 2), np.float32))[:3] == (1, 1, "obs")


def test_the_first_row_comes_first_whatever_the_leaf():
    obs, reward = batch()
    obs["body"]["joints"][2, 0] = np.nan
    reward[1, 2] = np.inf

    assert non_finite(obs, reward)[:3] == (1, 2, "reward")


def test_in_one_row_what_was_seen_comes_before_what_it_earned():
    obs, reward = batch()
    obs["body"]["joints"][1, 2] = np.nan
    reward[1, 0] = np.nan

    assert non_finite(obs, reward)[:3] == (1, 2, "obs.body.joints")


def test_in_one_row_the_first_env_comes_first():
    obs = {"a": np.zeros((2, 3), np.float32), "b": np.zeros((2, 3), np.float16)}
    obs["a"][1, 2] = obs["b"][1, 1] = np.nan

    assert non_finite(obs, np.zeros((1, 3), np.float32))[:3] == (1, 1, "obs.b")


def test_a_slice_of_a_larger_batch_counts_its_own_envs():
    obs, reward = batch(B=4)
    reward[2, 3] = np.nan
    whole = {"joints": obs["body"]["joints"]}

    assert non_finite({"joints": whole["joints"][:, 2:]}, reward[:, 2:])[:3] == (2, 1, "reward")
    assert non_finite({"joints": whole["joints"][:, :2]}, reward[:, :2]) is None
