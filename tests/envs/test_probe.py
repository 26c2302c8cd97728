import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple

from rlcli.core.errors import ConfigError, EnvError
from rlcli.envs.config import AtariConfig, GymConfig
from rlcli.envs.probe import entering_space, probe
from tests.probes import (
    ActionConfig,
    DictConfig,
    FaultyConfig,
    FaultyEnv,
    IndexConfig,
    RaisingConfig,
    StartConfig,
    TupleConfig,
)

IMAGE = np.zeros((1, 4, 4), np.uint8)


def test_box_observation_and_discrete_action():
    spec = probe(IndexConfig())

    np.testing.assert_array_equal(spec.example_obs, np.zeros(2, np.float32))
    assert (spec.example_obs.dtype, spec.example_action.dtype, spec.example_action.shape) == (np.float32, np.int64, ())
    assert (spec.frame_stack, spec.notes) == (1, ())


def test_discrete_observation_is_an_int64_scalar():
    spec = probe(StartConfig())

    assert (spec.example_obs.dtype, spec.example_obs.shape) == (np.int64, ())


@pytest.mark.parametrize("seed", range(8))
def test_example_action_of_a_shifted_discrete_space_counts_from_0(seed):
    assert 0 <= probe(StartConfig(), seed).example_action < 3


def test_dict_observation_keeps_its_keys_and_dtypes_and_float64_is_cast_with_a_note():
    spec = probe(DictConfig())

    image, body = spec.example_obs["image"], spec.example_obs["body"]
    assert (image.dtype, image.shape) == (np.uint8, (1, 4, 4))
    assert (body["joints"].dtype, body["joints"].shape) == (np.float32, (2,))
    assert (body["step"].dtype, body["step"].shape) == (np.int64, ())
    assert (spec.example_action.dtype, spec.example_action.shape) == (np.float32, (2,))
    assert spec.notes == ("obs.body.joints: float64 is cast to float32",)


def test_atari_tells_its_frame_stack():
    spec = probe(AtariConfig(frame_stack=3))

    assert (spec.frame_stack, spec.example_obs.shape, spec.example_obs.dtype) == (3, (3, 84, 84), np.uint8)


def test_example_is_a_copy_of_its_own():
    first, second = probe(IndexConfig()), probe(IndexConfig())
    first.example_obs[:] = 9

    assert second.example_obs.max() == 0


def test_example_action_survives_an_env_that_writes_into_its_action():
    assert probe(DictConfig()).example_action.all()


def test_tuple_observation_becomes_a_dict_with_the_places_as_keys():
    spec = probe(TupleConfig())

    image, pair = spec.example_obs["0"], spec.example_obs["1"]["pair"]
    assert (image.dtype, image.shape) == (np.uint8, (1, 4, 4))
    assert (pair["0"].dtype, pair["0"].shape, pair["1"].dtype) == (np.float32, (2,), np.int64)


def test_space_of_a_tuple_is_the_dict_that_its_observations_become():
    space = probe(TupleConfig()).observation_space

    joints, step = Box(-np.inf, np.inf, (2,), np.float32), Discrete(1000)
    expected = Dict({"0": Box(0, 255, (1, 4, 4), np.uint8), "1": Dict({"pair": Dict({"0": joints, "1": step})})})
    assert space == expected


def test_places_of_a_long_tuple_stay_in_order():
    space = entering_space(Tuple([Discrete(n + 1) for n in range(12)]))

    assert list(space) == [str(n) for n in range(12)]
    assert [part.n for part in space.values()] == list(range(1, 13))


@pytest.mark.parametrize("space", [DictConfig().build().observation_space, Box(0, 1, (3,)), MultiBinary(2)])
def test_space_without_tuples_enters_as_it_is(space):
    assert entering_space(space) == space


@pytest.mark.parametrize(
    ("obs", "line"),
    [
        ((0, {"pair": (1, 2)}, 3), r"^obs: expected a tuple of 2, got 3 values \(int, dict, int\)$"),
        ([0], r"^obs: expected a tuple of 2, got \[0\]$"),
        (np.zeros(2), r"^obs: expected a tuple of 2, got an array float64 \(2,\)$"),
        (
            (IMAGE, {"pare": 1}),
            r"^obs\.1: expected the keys \['pair'\], got the keys \['pare'\]$",
        ),
        (
            (IMAGE, {"pair": (1,)}),
            r"^obs\.1\.pair: expected a tuple of 2, got 1 values \(int\)$",
        ),
        ((np.zeros((1, 4), np.uint8), {"pair": 0}), r"^obs\.0: expected uint8 \(1, 4, 4\), got uint8 \(1, 4\)$"),
    ],
)
def test_wrong_part_of_a_tuple_is_named_by_its_place(obs, line):
    class Config:
        def build(self):
            env = TupleConfig().build()
            env._obs = lambda: obs
            return env

    with pytest.raises(EnvError, match=line):
        probe(Config())


@pytest.mark.parametrize(
    ("expected", "kind"),
    [
        ((np.int64, ()), "discrete"),
        ((np.int64, (2,)), "multi_discrete"),
        ((np.int64, (2, 2)), "multi_discrete of two dimensions"),
        ((np.int8, (3,)), "multi_binary"),
        ((np.float32, (2,)), "float32"),
        ((np.float32, (2,)), "float64"),
        ((np.float32, (2,)), "float16"),
        ((np.float32, ()), "scalar"),
        ((np.int64, (2,)), "uint8"),
        ((np.int64, (2, 1)), "int64"),
    ],
)
def test_example_action_has_the_dtype_and_shape_that_agents_give(expected, kind):
    action = probe(ActionConfig(kind)).example_action

    assert expected == (action.dtype, action.shape)


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("old step", r"^step\(\) must return .*, it returned 4 values, the old API of gym$"),
        ("no step", r"^step\(\) must return .*, it returned None$"),
        ("reset without info", r"^reset\(\) must return \(observation, info\), it returned an array float32 \(2,\)$"),
        ("reset with text", r"^reset\(\) must return \(observation, info\), it returned 2 values \(ndarray, str\)$"),
        ("shape", r"^obs: expected float32 \(2,\), got float32 \(1,\)$"),
        ("uint8 space", r"^obs: expected uint8 \(2,\), got float32 \(2,\)$"),
        ("complex", r"^obs: expected float32 \(2,\), got complex64 \(2,\)$"),
        ("ragged", r"^obs: expected float32 \(2,\), got \[\[0\], \[0, 1\]\]$"),
        ("text obs", r"^obs: expected float32 \(2,\), got <U1 \(2,\)$"),
        ("none obs", r"^obs: expected float32 \(2,\), got object \(\)$"),
        ("text reward", r"^reward must be one number, got 'much'$"),
        ("none reward", r"^reward must be one number, got None$"),
        ("two rewards", r"^reward must be one number, got an array float64 \(2,\)$"),
        ("text raw reward", r"^rlcli\.raw_reward must be one number, got 'much'$"),
        ("text flag", r"^terminated must be true or false, got 'no'$"),
        ("half flag", r"^terminated must be true or false, got 0\.5$"),
        ("none flag", r"^truncated must be true or false, got None$"),
        ("two flags", r"^terminated must be true or false, got an array bool \(2,\)$"),
        ("no space", r"^observation_space must be a gymnasium space, it is None$"),
    ],
)
def test_an_env_that_breaks_its_rules_is_named_in_one_line(fault, line):
    with pytest.raises(EnvError, match=line):
        probe(FaultyConfig(fault))


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("graph space", r"^env: obs\.1 is a Graph space, which is not supported; supported are Box, Discrete, Mul"),
        ("sequence space", r"^env: obs is a Sequence space, which is not supported"),
        ("text space", r"^env: obs\.note is a Text space, which is not supported"),
        ("empty space", r"^env: obs\.inner is a space without parts: Tuple\(\)$"),
        ("int keys", r"^env: obs has the key 1, the keys of a Dict space must be strings$"),
        ("text action", r"^env: the actions are a Text space, which is not supported; supported are Discrete, Mul"),
        ("text in a tuple action", r"^env: action\.1\.go is a Text space, which is not supported; supported are"),
        ("empty action", r"^env: the actions are a space without parts: Tuple\(\)$"),
    ],
)
def test_unsupported_spaces_are_refused_by_name(fault, line):
    with pytest.raises(ConfigError, match=line):
        probe(FaultyConfig(fault))


def test_reset_without_a_seed_is_named_as_the_old_api():
    class Old:
        def build(self):
            env = IndexConfig().build()
            env.reset = lambda: env._obs()
            return env

    with pytest.raises(EnvError, match=r"^reset\(\) must take the keyword seed, without it this is the old API"):
        probe(Old())


@pytest.mark.parametrize("fault", ["float64", "float64 space"])
def test_float64_on_either_side_is_cast_to_float32_with_a_note(fault):
    spec = probe(FaultyConfig(fault))

    assert spec.example_obs.dtype == np.float32
    assert spec.notes == ("obs: float64 is cast to float32",)


def test_old_step_behind_a_wrapper_of_gymnasium_is_named_too():
    class Wrapped:
        def build(self):
            return gymnasium.wrappers.TimeLimit(FaultyEnv("old step", 1), 10)

    with pytest.raises(EnvError, match=r"it returned 4 values, the old API of gym$"):
        probe(Wrapped())


def test_values_outside_the_declared_bounds_are_noted():
    assert probe(FaultyConfig("bounds")).notes == ("obs[1]: -1.0 lies outside the declared bounds [0.0, inf]",)


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("build", "building the environment raised ValueError: marker-7"),
        ("reset", "reset() raised ValueError: marker-7"),
        ("step", "step() raised ValueError: marker-7"),
    ],
)
def test_an_exception_of_the_env_is_the_cause_of_ours(where, line):
    with pytest.raises(EnvError) as caught:
        probe(RaisingConfig(where, n=1))

    assert str(caught.value) == line
    assert isinstance(caught.value.__cause__, ValueError)


def test_the_env_is_closed_also_when_it_fails():
    closed = []

    class Config:
        def build(self):
            env = FaultyConfig("old step").build()
            env.close = lambda: closed.append(True)
            return env

    with pytest.raises(EnvError):
        probe(Config())

    assert closed == [True]


def test_a_missing_game_stays_a_config_error():
    with pytest.raises(ConfigError):
        probe(AtariConfig(game="pongg"))


def test_cartpole():
    spec = probe(GymConfig(id="CartPole-v1"))

    assert (spec.example_obs.shape, spec.action_space.n, spec.notes) == ((4,), 2, ())
