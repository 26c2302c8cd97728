import numpy as np
import pytest
from gymnasium.spaces import Box

from rlcli.core.errors import EnvError
from rlcli.envs.gym import action_converter, random_action
from rlcli.envs.vector import InProcessVectorEnv
from tests.envs.rolling import roll
from tests.probes import (
    ACTION_SPACES,
    ActionConfig,
    DictConfig,
    IndexConfig,
    StartConfig,
    empty_obs,
)


def test_discrete_actions_count_from_0_whatever_the_spaces_start():
    env = InProcessVectorEnv(StartConfig(), [0, 1, 2], seed=0)

    obs, _ = roll(env, 1, actions=np.array([[0, 1, 2]]))

    assert obs[1].tolist() == [5, 6, 7]


@pytest.mark.parametrize(
    ("expected", "kind", "action"),
    [
        (6, "discrete", 1),
        ([1, 1], "multi_discrete", [0, 2]),
        ([[1, 2], [3, 0]], "multi_discrete of two dimensions", [[1, 2], [3, 0]]),
        ([0, 1, 1], "multi_binary", [0, 1, 1]),
        ([0.5, -2], "float64", [0.5, -2]),
        (0.25, "scalar", 0.25),
        ([3, 255], "uint8", [3, 255]),
        ([[-5], [5]], "int64", [[-5], [5]]),
    ],
)
def test_the_env_gets_the_action_in_its_own_counting_and_dtype(expected, kind, action):
    env = InProcessVectorEnv(ActionConfig(kind), [0], seed=0)
    given = np.array([[action]], env.spec.example_action.dtype)

    roll(env, 1, given)

    (seen,) = env._envs[0].seen
    assert seen.tolist() == expected
    assert seen.dtype == env.spec.action_space.dtype
    assert given.tolist() == [[action]]  # the env wrote into a copy


@pytest.mark.parametrize(
    ("kind", "action", "line"),
    [
        ("discrete", 3, r"action is 3, allowed are 0 to 2"),
        ("discrete", -1, r"action is -1, allowed are 0 to 2"),
        ("discrete", 1.5, r"action must be one integer, it is np\.float64\(1\.5\)"),
        ("discrete", [1], r"action must be one integer, it is an array int64 \(1,\)"),
        ("multi_discrete", [1, 3], r"action\[1\] is 3, allowed are 0 to 2"),
        ("multi_discrete", [-1, 0], r"action\[0\] is -1, allowed are 0 to 1"),
        ("multi_discrete", [1], r"action must be integers \(2,\), it is an array int64 \(1,\)"),
        ("multi_discrete of two dimensions", [[1, 2], [4, 0]], r"action\[1, 0\] is 4, allowed are 0 to 3"),
        ("multi_binary", [0, 2, 0], r"action\[1\] is 2, allowed are 0 to 1"),
        ("uint8", [0, 256], r"action\[1\] is 256, allowed are 0 to 255"),
        ("uint8", [0.0, 0.0], r"action must be integers \(2,\), it is an array float64 \(2,\)"),
        ("float32", [0.0, np.nan], r"action\[1\] is nan, it must be finite"),
        ("float64", [-np.inf, 0.0], r"action\[0\] is -inf, it must be finite"),
        ("float32", [0.0], r"action must be floats \(2,\), it is an array float32 \(1,\)"),
        ("scalar", np.nan, r"action is nan, it must be finite"),
    ],
)
def test_an_action_that_the_space_does_not_have_never_reaches_the_env(kind, action, line):
    env = InProcessVectorEnv(ActionConfig(kind), [4], seed=0)
    good = env.spec.example_action
    roll(env, 2, np.stack([[good], [good]]))
    env.send(np.array([action]))

    with pytest.raises(EnvError, match=f"^env 4, step 3: {line}$"):
        env.recv(empty_obs(env.spec, 1))

    assert len(env._envs[0].seen) == 2


def test_the_action_of_a_filler_row_may_be_anything():
    actions = np.array([[0], [0], [-99], [0]])

    _, step = roll(InProcessVectorEnv(IndexConfig([2]), [0], seed=0), 4, actions)

    assert step["valid"][:, 0].tolist() == [True, True, False, True]


def test_values_outside_the_bounds_of_a_float_box_reach_the_env():
    env = InProcessVectorEnv(ActionConfig("float32"), [0], seed=0)
    seen = []
    env._envs[0].step = lambda action: (seen.append(action.tolist()), (np.zeros(1), 0.0, False, False, {}))[1]

    roll(env, 1, np.array([[[7.0, -7.0]]], np.float32))

    assert seen == [[7.0, -7.0]]


@pytest.mark.parametrize("kind", ACTION_SPACES)
def test_random_actions_are_ones_that_the_env_takes(kind):
    env = InProcessVectorEnv(ActionConfig(kind), [0], seed=0)
    env.reset(np.zeros((1, 1), np.float32))

    env.decorrelate(np.zeros((1, 1), np.float32), 200, seed=0)  # the env insists on its space

    seen = np.stack(env._envs[0].seen).reshape(len(env._envs[0].seen), -1)
    assert len(seen) > 20
    assert all(len(np.unique(column)) > 1 for column in seen.T)


@pytest.mark.parametrize(
    ("expected", "kind"),
    [
        ([{5, 6, 7}], "discrete"),
        ([{1, 2}, {-1, 0, 1}], "multi_discrete"),
        ([{0, 1}, {0, 1}, {0, 1}], "multi_binary"),
        ([set(range(-5, 6)), set(range(-5, 6))], "int64"),
    ],
)
def test_random_actions_reach_every_value_up_to_both_ends(expected, kind):
    rng, convert = np.random.default_rng(0), action_converter(ACTION_SPACES[kind])

    seen = np.stack([convert(random_action(ACTION_SPACES[kind], rng)) for _ in range(400)]).reshape(400, -1)

    assert expected == [set(column.tolist()) for column in seen.T]


def test_random_float_actions_of_a_seed_stay_what_they_were():
    box = Box(-2, 2, (2,), np.float32)

    # 4 * uniform - 2 of the first two uniforms of default_rng(0): 0.636961..., 0.269786...
    np.testing.assert_allclose(random_action(box, np.random.default_rng(0)), [0.547847, -0.920853], rtol=1e-5)


def test_actions_are_copied_when_sent():
    env = InProcessVectorEnv(StartConfig(), [0], seed=0)
    obs = np.zeros(1, np.int64)
    env.reset(obs)
    action = np.array([2])
    env.send(action)
    action[0] = 0

    env.recv(obs)

    assert obs.tolist() == [7]


def test_random_box_actions_stay_within_bounds():
    env = InProcessVectorEnv(DictConfig(), [0], seed=0)
    obs = empty_obs(env.spec, 1)
    env.reset(obs)
    seen = []
    step = env._envs[0].step
    env._envs[0].step = lambda action: (seen.append(action.copy()), step(action))[1]

    env.decorrelate(obs, 200, seed=0)

    assert np.abs(seen).max() <= 2
    assert len(np.unique(seen)) > len(seen)


def test_a_wrong_number_of_actions_is_refused():
    env = InProcessVectorEnv(IndexConfig(), [0, 1], seed=0)

    with pytest.raises(ValueError, match="expected 2 actions, got 3"):
        env.send(np.zeros(3, np.int64))
