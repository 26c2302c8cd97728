import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlcli.core.errors import ConfigError
from rlcli.envs.config import AtariConfig, GymConfig, evaluation_config
from rlcli.envs.previous import PreviousActionReward, PreviousConfig, action_encoder, with_previous
from rlcli.envs.probe import probe
from rlcli.envs.state import capture, restore
from rlcli.models.config import AutoModelConfig
from tests.probes import ACTION_SPACES, COMPOSITE, IndexConfig

LSTM = AutoModelConfig(recurrent="lstm")


def test_previous_action_and_reward_follow_a_step_and_are_zero_after_a_reset():
    env = PreviousConfig(IndexConfig([4])).build()  # its reward is t

    first, _ = env.reset(seed=0)
    env.step(1)
    second, *_ = env.step(2)
    again, _ = env.reset()

    assert ([0, 0, 0], [0]) == (first["previous_action"].tolist(), first["previous_reward"].tolist())
    assert ([0, 0, 1], [2]) == (second["previous_action"].tolist(), second["previous_reward"].tolist())
    assert [0, 2] == second["obs"].tolist()
    assert ([0, 0, 0], [0]) == (again["previous_action"].tolist(), again["previous_reward"].tolist())


@pytest.mark.parametrize(
    ("expected", "space", "action"),
    [
        ([0, 1, 0], ACTION_SPACES["discrete"], 6),
        ([0, 1, 1, 0, 0], ACTION_SPACES["multi_discrete"], np.array([2, -1])),
        ([1, 0, 1], ACTION_SPACES["multi_binary"], np.int8([1, 0, 1])),
        ([0.5, -2], ACTION_SPACES["float64"], np.array([0.5, -2])),
        ([0.25], ACTION_SPACES["scalar"], np.float32(0.25)),
        ([1, -1, 0, 0, 1], COMPOSITE["dict"], {"turn": 7, "push": np.float32([1, -1])}),
        ([1, 0, 0, 0, 1, 0, 1, 1, 0], COMPOSITE["tuple"], (np.array([1, 1]), 1, np.int8([1, 0]))),
    ],
)
def test_actions_become_vectors(expected, space, action):
    encode, n = action_encoder(space)

    assert expected == encode(action).tolist()
    assert len(expected) == n


@pytest.mark.parametrize(
    ("expected", "model"),
    [
        (True, LSTM),
        (False, AutoModelConfig()),
        (True, AutoModelConfig(observe_previous=True)),
        (False, AutoModelConfig(recurrent="gru", observe_previous=False)),
        pytest.param(False, object(), id="another model"),
    ],
    ids=str,
)
def test_they_are_added_where_the_model_asks(expected, model):
    env = GymConfig("CartPole-v1")

    assert expected == isinstance(with_previous(env, model), PreviousConfig)
    assert expected or with_previous(env, model) is env


def test_a_native_vector_env_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"^env\.backend: ale cannot add .*env\.backend=python or model\.observe_pre"):
        with_previous(AtariConfig(backend="ale"), LSTM)


def test_spec_holds_the_parts_in_order():
    spec = probe(with_previous(GymConfig("Pendulum-v1"), LSTM))

    assert ["obs", "previous_action", "previous_reward"] == list(spec.example_obs)
    assert ((3,), (1,)) == (spec.example_obs["obs"].shape, spec.example_obs["previous_action"].shape)
    assert isinstance(spec.action_space, spaces.Box)


class RewardEnv(gymnasium.Env):
    observation_space, action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), -7.0, False, False, {}


def test_an_evaluation_shows_clipped_rewards_where_training_clips_them():
    config = evaluation_config(with_previous(AtariConfig(), LSTM))
    env = PreviousActionReward(RewardEnv(), sign=config.sign)

    obs, reward, *_ = env.step(0)

    assert config.sign
    assert not config.env.clip_reward
    assert ([-1.0], -7.0) == (obs["previous_reward"].tolist(), reward)
    assert not with_previous(GymConfig("CartPole-v1"), LSTM).sign


def test_its_state_can_be_saved_exactly():
    first, second = (with_previous(GymConfig("CartPole-v1"), LSTM).build() for _ in range(2))
    first.reset(seed=1)
    first.step(1)
    state = capture(first)
    second.reset(seed=2)

    restore(second, state)

    for action in (0, 1, 1):
        a, b = first.step(action)[0], second.step(action)[0]
        assert all(np.array_equal(a[key], b[key]) for key in a)
