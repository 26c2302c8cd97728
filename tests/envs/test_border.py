import pickle
import re
import sys

import numpy as np
import pytest

from rlcli.core.errors import EnvError
from rlcli.core.stop import Stopped
from rlcli.envs.probe import probe
from rlcli.envs.vector import InProcessVectorEnv
from tests.envs.rolling import roll
from tests.probes import (
    RESET_FAULTS,
    STEP_FAULTS,
    DictConfig,
    FaultyConfig,
    IndexConfig,
    InfoConfig,
    RaisingConfig,
    ReuseConfig,
    TupleConfig,
)

IMAGE = np.zeros((1, 4, 4), np.uint8)


def test_infos_of_any_kind_do_not_matter():
    plain, _ = roll(InProcessVectorEnv(IndexConfig([10]), [0], seed=0), 25)

    odd, step = roll(InProcessVectorEnv(InfoConfig(), [0], seed=0), 25)

    np.testing.assert_array_equal(odd, plain)
    np.testing.assert_array_equal(step["raw_reward"], step["reward"])


def test_envs_may_reuse_their_arrays():
    obs, _ = roll(InProcessVectorEnv(ReuseConfig(), [0], seed=0), 4, autoreset=False)

    assert obs[:, 0].tolist() == [[0, 0], [0, 1], [0, 2], [0, 3], [0, 3]]


def test_envs_may_reuse_their_info():
    env = InProcessVectorEnv(IndexConfig([9]), [0, 1], seed=0)
    info = {}
    for i, single in enumerate(env._envs):
        step, scale = single.step, 10 * (i + 1)
        single.step = lambda action, step=step, scale=scale: (
            *(got := step(action))[:4],
            info.update({"rlcli.raw_reward": scale * got[1]}) or info,
        )

    _, step = roll(env, 3)

    assert step["raw_reward"].tolist() == [[10, 20], [20, 40], [30, 60]]


def test_envs_may_share_one_array():
    env = InProcessVectorEnv(ReuseConfig(), [0, 1], seed=0)
    env._envs[1].array = env._envs[0].array
    obs = np.zeros((2, 2), np.float32)
    env.reset(obs)
    env._envs[1].lengths = [9]

    for _ in range(5):
        env.send(np.zeros(2, np.int64), autoreset=False)
        env.recv(obs)

    assert obs.tolist() == [[0, 3], [0, 5]]


def test_dict_observations_and_box_actions():
    env = InProcessVectorEnv(DictConfig(), [0, 1], seed=0)
    actions = np.ones((8, 2, 2), np.float32)
    actions[:, 1] = -1

    rows, step = roll(env, 8, actions)

    assert actions[:, 0].min() == 1  # the env wrote into its own copy
    assert rows[3]["image"].dtype == np.uint8
    assert rows[3]["image"][1].tolist() == [[[3] * 4] * 4]
    assert rows[6]["body"]["joints"].tolist() == [[6, 6], [-6, -6]]
    assert rows[6]["body"]["joints"].dtype == np.float32
    assert rows[7]["body"]["step"].tolist() == [0, 0]
    assert np.flatnonzero(step["terminated"][:, 0]).tolist() == [5]


def test_an_idle_dict_observation_is_kept_whole():
    env = InProcessVectorEnv(DictConfig(), [0], seed=0)

    rows, _ = roll(env, 8, np.ones((8, 1, 2), np.float32), autoreset=False)

    assert rows[8]["image"].max() == 6
    assert rows[8]["body"]["joints"].tolist() == [[6, 6]]


def test_tuple_observations_arrive_under_their_places():
    env = InProcessVectorEnv(TupleConfig(), [0, 1], seed=0)

    rows, step = roll(env, 8)

    assert rows[3]["0"][1].tolist() == [[[3] * 4] * 4]
    assert rows[3]["1"]["pair"]["0"].tolist() == [[-3, -3], [-3, -3]]
    assert rows[3]["1"]["pair"]["1"].tolist() == [3, 3]
    assert rows[7]["1"]["pair"]["1"].tolist() == [0, 0]
    assert np.flatnonzero(step["terminated"][:, 0]).tolist() == [5]


def test_an_idle_tuple_observation_is_kept_whole():
    rows, _ = roll(InProcessVectorEnv(TupleConfig(), [0], seed=0), 8, autoreset=False)

    assert rows[8]["0"].max() == 6
    assert rows[8]["1"]["pair"]["0"].tolist() == [[-6, -6]]


@pytest.mark.parametrize(
    ("obs", "line"),
    [
        ((0, {"pair": (1, 2)}, 3), r"obs: expected a tuple of 2, got 3 values \(int, dict, int\)"),
        ((np.zeros((1, 4, 4)), {"pair": (1, 2)}), r"obs\.0: expected uint8 \(1, 4, 4\), got float64 \(1, 4, 4\)"),
        ((IMAGE, {"other": 1}), r"obs\.1: expected the keys \['pair'\], got the keys \['other'\]"),
        ((IMAGE, {"pair": [np.zeros(2), 0.5]}), r"obs\.1\.pair\.1: expected int64 \(\), got float64 \(\)"),
    ],
)
def test_a_wrong_part_of_a_tuple_at_a_later_step_is_named_by_its_place(obs, line):
    env = InProcessVectorEnv(TupleConfig(), [3], seed=0)
    env._envs[0].step = lambda action: (obs, 1.0, False, False, {})

    with pytest.raises(EnvError, match=f"^env 3, step 1: {line}$"):
        roll(env, 1)


def test_a_wrong_shape_is_never_broadcast():
    env = InProcessVectorEnv(FaultyConfig("shape", n=4), [5], seed=0)

    with pytest.raises(EnvError) as caught:
        roll(env, 10)

    assert str(caught.value) == "env 5, step 4: obs: expected float32 (2,), got float32 (1,)"


LATER_FAULTS = [fault for fault in STEP_FAULTS if fault not in ("bounds", "float64")]


@pytest.mark.parametrize("fault", LATER_FAULTS)
def test_a_fault_at_a_later_step_names_env_and_step_in_one_line(fault):
    env = InProcessVectorEnv(FaultyConfig(fault, n=3), [7], seed=0)

    with pytest.raises(EnvError, match=r"^env 7, step 3: [^\n]*$"):
        roll(env, 10)


@pytest.mark.parametrize("fault", RESET_FAULTS)
def test_a_fault_in_reset_names_the_env(fault):
    env = InProcessVectorEnv(FaultyConfig(fault), [7], seed=0, spec=probe(IndexConfig()))

    with pytest.raises(EnvError, match=r"^env 7, step 0: reset\(\) must return \(observation, info\), it returned "):
        roll(env, 1)


@pytest.mark.parametrize("fault", ["float64", "float64 space"])
def test_float64_on_either_side_gives_the_same_rows_as_float32(fault):
    expected, _ = roll(InProcessVectorEnv(IndexConfig([100]), [0], seed=0), 5)

    obs, _ = roll(InProcessVectorEnv(FaultyConfig(fault, n=2), [0], seed=0), 5)

    assert obs.dtype == np.float32
    np.testing.assert_array_equal(obs, expected)


@pytest.mark.parametrize("flag", [1, np.True_, np.array([True]), np.float64(1)])
def test_other_ways_to_write_true_end_an_episode(flag):
    env = InProcessVectorEnv(IndexConfig([9]), [0], seed=0)
    env._envs[0].step = lambda action: (np.zeros(2, np.float32), 1.0, flag, False, {})

    _, step = roll(env, 2)

    assert step["terminated"][:, 0].tolist() == [True, False]
    assert step["valid"][:, 0].tolist() == [True, False]


def test_an_exception_of_env_3_names_it_and_is_the_cause():
    spec = probe(IndexConfig())
    env = InProcessVectorEnv(RaisingConfig("step", n=5), [3], seed=0, spec=spec)

    with pytest.raises(EnvError) as caught:
        roll(env, 10)

    assert (caught.value.env_id, caught.value.env_step) == (3, 5)
    assert str(caught.value) == "env 3, step 5: step() raised ValueError: marker-7"
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(("where", "n", "line"), [("build", 1, "building it"), ("reset", 2, r"reset\(\)")])
def test_exceptions_in_constructor_and_reset_name_the_env(where, n, line):
    spec = probe(IndexConfig())

    with pytest.raises(EnvError, match=rf"^env 4, step \d: {line} raised ValueError: marker-7$"):
        roll(InProcessVectorEnv(RaisingConfig(where, n), [4], seed=0, spec=spec), 10)


def test_nan_rewards_pass():
    class Nan:
        def build(self):
            env = IndexConfig([9]).build()
            step = env.step
            env.step = lambda action: (step(action)[0], np.float64("nan"), False, False, {})
            return env

    _, step = roll(InProcessVectorEnv(Nan(), [0], seed=0), 2)

    assert np.isnan(step["reward"]).all()
    assert step["reward"].dtype == np.float32


def test_rewards_in_arrays_of_one_element_are_numbers():
    class Array:
        def build(self):
            env = IndexConfig([9]).build()
            step = env.step
            env.step = lambda action: (step(action)[0], np.array([2.5]), False, False, {})
            return env

    _, step = roll(InProcessVectorEnv(Array(), [0], seed=0), 1)

    assert step["reward"].tolist() == [[2.5]]


def test_spec_survives_pickling():
    spec = probe(DictConfig())

    copy = pickle.loads(pickle.dumps(spec))

    assert copy.observation_space == spec.observation_space
    assert copy.notes == spec.notes


@pytest.mark.parametrize("code", [0, 3])
def test_an_env_that_exits_the_program_is_a_fault_of_the_run_not_its_end(code):
    env = InProcessVectorEnv(IndexConfig(), [3], seed=0)
    env._envs[0].step = lambda action: sys.exit(code)

    with pytest.raises(EnvError, match=rf"^env 3, step 1: step\(\) raised SystemExit: {code}$"):
        roll(env, 1)


def test_a_stop_that_reaches_an_env_in_its_step_stays_one():
    def step(action):
        raise Stopped

    env = InProcessVectorEnv(IndexConfig(), [3], seed=0)
    env._envs[0].step = step

    with pytest.raises(Stopped):
        roll(env, 1)


def answering(*outcomes):
    """An env whose steps give these outcomes, the last one for ever."""
    env = InProcessVectorEnv(IndexConfig([9]), [3], seed=0)
    env._envs[0].step = lambda action, left=list(outcomes): left.pop(0) if left[1:] else left[0]
    return env


def outcome(obs=(0, 1), reward=1.0, **info):
    return np.array(obs, np.float32), reward, False, False, {f"rlcli.{key}": value for key, value in info.items()}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, np.float32("nan")])
def test_a_raw_reward_must_be_finite(value):
    env = answering(outcome(), outcome(raw_reward=value))

    line = rf"^env 3, step 2: info\['rlcli\.raw_reward'\] is {value}, must be finite$"
    with pytest.raises(EnvError, match=line):
        roll(env, 2)


def test_a_large_raw_reward_is_kept_as_it_is():
    _, step = roll(answering(outcome(raw_reward=1e300)), 1)

    assert step["raw_reward"][0, 0] == 1e300


@pytest.mark.parametrize("value", ["no", None, 2, [True, False]])
def test_a_lost_life_is_told_by_a_flag(value):
    with pytest.raises(EnvError, match=r"^env 3, step 1: rlcli\.life_lost must be true or false, got "):
        roll(answering(outcome(life_lost=value)), 1)


@pytest.mark.parametrize("value", [True, np.True_, 1, np.ones(1)])
def test_a_lost_life_may_be_told_by_any_flag(value):
    _, step = roll(answering(outcome(life_lost=value)), 1)

    assert step["terminated"][0, 0]


@pytest.mark.parametrize("reward", [1e300, -1e300, np.float64(4e38)])
def test_a_reward_beyond_float32_is_named_as_it_is(reward):
    with pytest.raises(
        EnvError, match=re.escape(f"env 3, step 1: reward is {reward}, must be at most 3.4e+38 in size")
    ):
        roll(answering(outcome(reward=reward)), 1)


def test_the_largest_reward_of_float32_passes():
    largest = float(np.finfo(np.float32).max)

    _, step = roll(answering(outcome(reward=-largest)), 1)

    assert step["reward"][0, 0] == -largest


@pytest.mark.parametrize(
    ("bad", "line"),
    [
        (outcome(reward=np.nan), "reward is nan"),
        (outcome(reward=-np.inf), "reward is -inf"),
        (outcome(obs=(0, np.inf)), "obs is inf"),
        (outcome(reward=1e300), "reward is 1e[+]300"),
    ],
)
def test_decorrelation_finds_what_is_not_finite(bad, line):
    env = answering(outcome(), outcome(), bad, outcome())
    obs = np.zeros((1, 2), np.float32)
    env.reset(obs)

    with pytest.raises(EnvError, match=f"^env 3, step 3: {line}, must be"):
        env.decorrelate(obs, 40, seed=0)


def test_decorrelation_finds_a_first_observation_that_is_not_finite():
    env = answering((np.zeros(2, np.float32), 0.0, True, False, {}))
    obs = np.zeros((1, 2), np.float32)
    env.reset(obs)
    env._envs[0].reset = lambda **kwargs: (np.array([np.nan, 0], np.float32), {})

    with pytest.raises(EnvError, match=r"^env 3, step \d+: obs is nan, must be finite$"):
        env.decorrelate(obs, 5, seed=0)
