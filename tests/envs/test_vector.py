import numpy as np
import pytest

from rlcli.core.errors import ConfigError, EnvError
from rlcli.core.pulse import Pulse
from rlcli.core.rng import Purpose
from rlcli.envs.config import AtariConfig, GymConfig
from rlcli.envs.probe import probe
from rlcli.envs.vector import InProcessVectorEnv
from tests.envs.rolling import FIELDS, roll
from tests.probes import (
    IndexConfig,
    IndexEnv,
    LivesConfig,
    NoiseConfig,
    empty_obs,
)


def test_one_filler_row_follows_each_end_and_holds_the_next_first_observation():
    env = InProcessVectorEnv(IndexConfig([3, 5]), [0], seed=0)

    obs, step = roll(env, 11)

    # after row t comes obs[t + 1]: steps 1 2 3, filler, steps 1 .. 5, filler, step 1
    assert (obs[:, 0].tolist()) == [
        [0, 0],
        [0, 1],
        [0, 2],
        [0, 3],
        [1, 0],
        [1, 1],
        [1, 2],
        [1, 3],
        [1, 4],
        [1, 5],
        [2, 0],
        [2, 1],
    ]
    assert step["reward"][:, 0].tolist() == [1, 2, 3, 0, 1, 2, 3, 4, 5, 0, 1]
    assert np.flatnonzero(~step["valid"][:, 0]).tolist() == [3, 9]
    assert np.flatnonzero(step["terminated"][:, 0]).tolist() == [2, 8]
    assert np.flatnonzero(step["ended"][:, 0]).tolist() == [2, 8]
    assert not step["truncated"].any()


def test_truncation_is_told_apart_from_termination():
    env = InProcessVectorEnv(IndexConfig([3], truncate=True), [0], seed=0)

    _, step = roll(env, 4)

    assert step["truncated"][:, 0].tolist() == [False, False, True, False]
    assert step["ended"][:, 0].tolist() == [False, False, True, False]
    assert not step["terminated"].any()


def test_envs_end_independently():
    env = InProcessVectorEnv(NoiseConfig(), range(6), seed=0)

    _, step = roll(env, 60)

    ended, valid = step["ended"], step["valid"]
    assert len({column.tobytes() for column in ended.T}) == 6
    assert valid[0].all()
    np.testing.assert_array_equal(~valid[1:], ended[:-1])


def test_both_ends_at_once_are_both_recorded():
    class Both:
        def build(self):
            env = IndexConfig([2]).build()
            step = env.step
            env.step = lambda action: (*step(action)[:2], env.t == 2, env.t == 2, {})
            return env

    _, step = roll(InProcessVectorEnv(Both(), [0], seed=0), 2)

    assert (step["terminated"][1, 0], step["truncated"][1, 0]) == (True, True)


def test_a_lost_life_terminates_for_learning_without_a_filler_row():
    env = InProcessVectorEnv(LivesConfig(), [0], seed=0)

    _, step = roll(env, 13)

    assert np.flatnonzero(step["terminated"][:, 0]).tolist() == [3, 7, 11]
    assert np.flatnonzero(step["ended"][:, 0]).tolist() == [11]
    assert np.flatnonzero(~step["valid"][:, 0]).tolist() == [12]


def test_raw_score_of_three_lives_of_five_points_is_15():
    env = InProcessVectorEnv(LivesConfig(), [0], seed=0)

    _, step = roll(env, 13)

    assert step["raw_reward"].sum() == 15
    assert step["reward"].sum() == 12


def test_episode_of_an_atari_game_with_lives_keeps_the_score():
    config = AtariConfig(game="breakout", image_size=8, frame_stack=1)
    env = InProcessVectorEnv(config, [0], seed=0)
    actions = np.random.default_rng(0).integers(0, 4, (400, 1))

    _, step = roll(env, 400, actions)

    end = int(np.flatnonzero(step["ended"])[0])
    assert step["terminated"][: end + 1].sum() == 5
    assert step["valid"][: end + 1].all()
    assert not step["valid"][end + 1, 0]
    assert step["raw_reward"][: end + 1].sum() >= step["reward"][: end + 1].sum() > 0


@pytest.mark.parametrize("cuts", [(2,), (1, 4), (1, 2, 3, 4)])
@pytest.mark.parametrize("max_steps", [0, 9])
def test_slices_give_the_same_bytes_as_the_whole(cuts, max_steps):
    actions = np.random.default_rng(1).integers(0, 4, (80, 5))

    def run(ids):
        env = InProcessVectorEnv(NoiseConfig(), ids, seed=3)
        obs = empty_obs(env.spec, len(ids))
        env.reset(obs)
        env.decorrelate(obs, max_steps, seed=3)
        out = [obs.copy()]
        for t in range(80):
            env.send(actions[t, list(ids)])
            step = env.recv(obs)
            out += [obs.copy(), *(getattr(step, name).copy() for name in FIELDS)]
        return out

    whole = run(range(5))
    slices = [run(range(lo, hi)) for lo, hi in zip((0, *cuts), (*cuts, 5), strict=True)]

    joined = [np.concatenate(parts) for parts in zip(*slices, strict=True)]
    assert [w.tobytes() for w in whole] == [j.tobytes() for j in joined]


def test_atari_slices_give_the_same_bytes_as_the_whole():
    config = AtariConfig(game="breakout", sticky=0.25, image_size=20)
    actions = np.random.default_rng(1).integers(0, 4, (30, 2))
    spec = probe(config)
    whole, left, right = (
        roll(InProcessVectorEnv(config, ids, 0, spec=spec), 30, actions[:, ids])[0] for ids in ([0, 1], [0], [1])
    )

    np.testing.assert_array_equal(whole, np.concatenate([left, right], 1))


def test_streams_of_two_run_seeds_share_nothing():
    # seed + env id would make env 1 of seed 0 and env 0 of seed 1 the same
    seen = [roll(InProcessVectorEnv(NoiseConfig(), range(16), seed), 1)[0][0] for seed in (0, 1)]

    rows = {row.tobytes() for block in seen for row in block}
    assert len(rows) == 32


def test_evaluation_has_streams_of_its_own():
    train, _ = roll(InProcessVectorEnv(NoiseConfig(), range(4), 0), 1)
    evaluation, _ = roll(InProcessVectorEnv(NoiseConfig(), range(4), 0, Purpose.EVAL_ENV), 1)

    assert not np.isin(train[0], evaluation[0]).any()


def test_a_reset_with_a_seed_starts_all_streams_anew_and_abandons_what_runs():
    env = InProcessVectorEnv(NoiseConfig(), range(3), seed=0)
    fresh, _ = roll(InProcessVectorEnv(NoiseConfig(), range(3), seed=8), 20)
    roll(env, 7)

    again, step = roll(env, 20, seed=8)

    np.testing.assert_array_equal(again, fresh)
    assert step["valid"][0].all()


def test_a_reset_without_a_seed_goes_on_in_the_stream():
    env = InProcessVectorEnv(NoiseConfig(), [0], seed=0)
    first, _ = roll(env, 1)

    second, _ = roll(env, 1)

    assert (first[0] != second[0]).all()


def test_an_ended_env_without_autoreset_idles_on_its_last_observation():
    env = InProcessVectorEnv(IndexConfig([2]), [0], seed=0)

    obs, step = roll(env, 5, autoreset=False)

    assert obs[:, 0].tolist() == [[0, 0], [0, 1], [0, 2], [0, 2], [0, 2], [0, 2]]
    assert step["valid"][:, 0].tolist() == [True, True, False, False, False]
    assert step["reward"][2:, 0].tolist() == [0, 0, 0]
    assert step["ended"][:, 0].tolist() == [False, True, False, False, False]


def test_idle_rows_are_written_into_whatever_memory_is_given():
    env = InProcessVectorEnv(IndexConfig([1]), [0], seed=0)
    obs = np.zeros((1, 2), np.float32)
    env.reset(obs)
    env.send(np.zeros(1, np.int64))
    env.recv(obs)
    elsewhere = np.full((1, 2), -1, np.float32)

    env.send(np.zeros(1, np.int64), autoreset=False)
    env.recv(elsewhere)

    assert elsewhere.tolist() == [[0, 1]]


def test_autoreset_can_differ_by_env():
    env = InProcessVectorEnv(IndexConfig([1]), [0, 1], seed=0)

    obs, step = roll(env, 2, autoreset=np.array([True, False]))

    assert obs[2].tolist() == [[1, 0], [0, 1]]
    assert not step["valid"][1].any()


def test_reset_idle_resets_only_envs_that_have_had_a_filler_row():
    env = InProcessVectorEnv(IndexConfig([1, 2, 9]), [0, 1], seed=0)
    obs = np.zeros((2, 2), np.float32)
    env.reset(obs)
    env._envs[1].episode = 1  # env 1 is in its episode of two steps
    for _ in range(2):
        env.send(np.zeros(2, np.int64), autoreset=False)
        env.recv(obs)
    untouched = np.full((2, 2), -1, np.float32)

    env.reset_idle(untouched)  # env 0 idled in row 1; env 1 ended in row 1

    assert untouched.tolist() == [[1, 0], [-1, -1]]
    env.send(np.zeros(2, np.int64), autoreset=False)
    step = env.recv(obs)
    assert step.valid.tolist() == [True, False]
    assert obs.tolist() == [[1, 1], [1, 2]]


def test_another_incarnation_has_streams_of_its_own():
    def after(incarnation):
        env = InProcessVectorEnv(NoiseConfig(), range(8), seed=0, incarnation=incarnation)
        return roll(env, 1)[0][0]

    seen = [row.tobytes() for incarnation in range(3) for row in after(incarnation)]
    assert len(set(seen)) == 24


def test_incarnation_0_is_what_it_was():
    expected, _ = roll(InProcessVectorEnv(NoiseConfig(), range(3), seed=0), 5)

    again, _ = roll(InProcessVectorEnv(NoiseConfig(), range(3), seed=0, incarnation=0), 5)

    np.testing.assert_array_equal(again, expected)


def test_another_incarnation_decorrelates_otherwise():
    def after(incarnation):
        env = InProcessVectorEnv(IndexConfig([1000]), range(8), seed=0, incarnation=incarnation)
        obs = np.zeros((8, 2), np.float32)
        env.reset(obs)
        env.decorrelate(obs, 100, seed=0)
        return obs[:, 1].tolist()

    assert after(0) == after(0)
    assert after(0) != after(1)


class SpyEnv(IndexEnv):
    """Writes down what the pulse says while it is called."""

    pulse: Pulse
    heard: list

    def __init__(self):
        super().__init__([2], False)
        self.heard.append(self.pulse.describe())

    def reset(self, *, seed=None, options=None):
        self.heard.append(self.pulse.describe())
        return super().reset(seed=seed)

    def step(self, action):
        self.heard.append(self.pulse.describe())
        return super().step(action)


@pytest.fixture
def spied():
    """An environment of ids 4 and 7 with a pulse, and the list of what its parts heard."""

    class Config:
        def build(self):
            return SpyEnv()

    SpyEnv.pulse, SpyEnv.heard = Pulse(), []
    env = InProcessVectorEnv(Config(), [4, 7], seed=0, spec=probe(IndexConfig()), pulse=SpyEnv.pulse)
    return env, SpyEnv.heard


def test_pulse_says_which_env_is_built_reset_and_that_envs_step(spied):
    env, heard = spied

    roll(env, 1)

    built = ["constructing env 4", "constructing env 7"]
    assert heard == [*built, "reset of env 4", "reset of env 7", "step", "step"]


def test_pulse_says_which_env_is_reset_between_two_episodes(spied):
    env, heard = spied

    roll(env, 4)

    assert heard[-4:] == ["reset of env 4", "reset of env 7", "step", "step"]


def test_each_step_of_each_env_is_a_beat(spied):
    env, _ = spied
    obs = np.zeros((2, 2), np.float32)
    env.reset(obs)
    before = env._pulse.n_beats

    for _ in range(2):
        env.send(np.zeros(2, np.int64))
        env.recv(obs)

    assert env._pulse.n_beats == before + 4


def test_random_steps_before_the_first_batch_are_beats(spied):
    env, heard = spied
    env.reset(np.zeros((2, 2), np.float32))
    before, n_heard = env._pulse.n_beats, len(heard)

    env.decorrelate(np.zeros((2, 2), np.float32), 30, seed=0)

    assert env._pulse.n_beats - before >= len(heard) - n_heard > 2


def test_a_config_error_stays_one():
    spec = probe(IndexConfig())

    with pytest.raises(ConfigError):
        InProcessVectorEnv(GymConfig(id="CartPol-v1"), [0], 0, spec=spec)


def test_decorrelate_takes_up_to_max_steps_and_leaves_live_observations():
    env = InProcessVectorEnv(IndexConfig([1000]), range(40), seed=0)
    obs = np.zeros((40, 2), np.float32)
    env.reset(obs)

    env.decorrelate(obs, 5, seed=0)

    assert set(obs[:, 1]) == {1, 2, 3, 4, 5}
    env.send(np.zeros(40, np.int64))
    after = np.zeros_like(obs)
    assert env.recv(after).valid.all()
    np.testing.assert_array_equal(after[:, 1], obs[:, 1] + 1)


def test_decorrelate_resets_over_ends_without_filler_rows():
    env = InProcessVectorEnv(IndexConfig([2]), range(40), seed=0)
    obs = np.zeros((40, 2), np.float32)
    env.reset(obs)

    env.decorrelate(obs, 9, seed=0)

    assert set(obs[:, 1]) == {0, 1}
    env.send(np.zeros(40, np.int64))
    assert env.recv(obs).valid.all()


def test_decorrelate_by_zero_steps_does_nothing():
    env = InProcessVectorEnv(IndexConfig([9]), [0], seed=0)
    obs = np.zeros((1, 2), np.float32)
    env.reset(obs)
    obs[:] = -1

    env.decorrelate(obs, 0, seed=0)

    assert obs.tolist() == [[-1, -1]]


def test_decorrelation_depends_on_the_seed():
    def after(seed):
        env = InProcessVectorEnv(IndexConfig([1000]), range(8), seed=0)
        obs = np.zeros((8, 2), np.float32)
        env.reset(obs)
        env.decorrelate(obs, 100, seed)
        return obs[:, 1].tolist()

    assert after(0) == after(0)
    assert after(0) != after(1)


def test_close_twice_is_fine_and_closes_every_env():
    env = InProcessVectorEnv(IndexConfig(), [0, 1], seed=0)
    closed = []
    for i, single in enumerate(env._envs):
        single.close = lambda i=i: closed.append(i)

    env.close()
    env.close()

    assert closed == [0, 1]


def test_an_env_that_fails_to_close_does_not_keep_the_others_open():
    env = InProcessVectorEnv(IndexConfig(), [0, 1], seed=0)
    closed = []

    def fail():
        raise RuntimeError("marker-7")

    env._envs[0].close, env._envs[1].close = fail, lambda: closed.append(1)

    with pytest.raises(EnvError, match=r"^env 0: close\(\) raised RuntimeError: marker-7"):
        env.close()

    assert closed == [1]
