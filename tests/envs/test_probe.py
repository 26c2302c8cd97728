import gymnasium
import numpy as np
import pytest

from rlcli.core.errors import ConfigError, EnvError
from rlcli.envs.config import AtariConfig, GymConfig
from rlcli.envs.probe import probe
from tests.probes import DictConfig, FaultyConfig, FaultyEnv, IndexConfig, RaisingConfig, StartConfig


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


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("old step", r"^step\(\) must return .*, it returned 4 values, the old API of gym$"),
        ("reset without info", r"^reset\(\) must return \(observation, info\), it returned an array float32 \(2,\)$"),
        ("shape", r"^obs: the space declares float32 \(2,\), got float32 \(1,\)$"),
        ("uint8 space", r"^obs: the space declares uint8 \(2,\), got float32 \(2,\)$"),
        ("none obs", r"^obs: the space declares float32 \(2,\), got object \(\)$"),
        ("text reward", r"^reward must be one number, got 'much'$"),
        ("no space", r"^observation_space must be a gymnasium space, it is None$"),
    ],
)
def test_an_env_that_breaks_its_rules_is_named_in_one_line(fault, line):
    with pytest.raises(EnvError, match=line):
        probe(FaultyConfig(fault))


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("tuple space", r"^env: obs is a Tuple space, which is not supported"),
        ("text space", r"^env: obs\.note is a Text space, which is not supported"),
        ("int keys", r"^env: obs has the key 1, the keys of a Dict space must be strings$"),
        ("tuple action", r"^env: actions of Tuple\(.*\) are not supported, only Discrete and Box"),
    ],
)
def test_unsupported_spaces_are_refused_by_name(fault, line):
    with pytest.raises(ConfigError, match=line):
        probe(FaultyConfig(fault))


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
