from dataclasses import replace

import ale_py
import cv2
import numpy as np
import pytest
from ale_py import Action
from ale_py.vector_env import AtariVectorEnv

from rlcli.core.errors import ConfigError
from rlcli.envs.config import AtariConfig
from rlcli.envs.start_noops import StartNoops

PLAIN = AtariConfig(noop_max=0, fire_reset=False, episodic_life=False, clip_reward=False)
"""Nothing happens but emulator frames and screens."""


def play(env, actions, seed):
    """Observations, rewards and (terminated, truncated) of a run that resets after each end."""
    obs = [env.reset(seed=seed)[0]]
    rewards, ends = [], []
    for action in actions:
        if ends and any(ends[-1]):
            obs.append(env.reset()[0])
            rewards.append(0.0)
            ends.append((False, False))
            continue
        o, reward, terminated, truncated, _ = env.step(action)
        obs.append(o)
        rewards.append(reward)
        ends.append((terminated, truncated))
    return np.stack(obs), np.array(rewards), np.array(ends)


def emulator(rom):
    """A bare emulator that never repeats actions (ALE's default is 0.25)."""
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(ale_py.roms.get_rom_path(rom))
    return ale


def random_actions(env, n, seed=0):
    return np.random.default_rng(seed).integers(0, env.action_space.n, n)


@pytest.mark.parametrize(
    ("game", "sticky", "max_frames", "n_steps", "n_games"),
    [
        ("breakout", 0.0, 108_000, 500, 2),
        ("breakout", 0.25, 108_000, 500, 2),
        ("freeway", 0.25, 201, 160, 3),  # without a FIRE button; the last step of a game is cut short
        ("pong", 0.25, 200, 160, 3),
        ("seaquest", 0.0, 108_000, 150, 0),
    ],
)
def test_equals_ale_vector_env_bit_for_bit(game, sticky, max_frames, n_steps, n_games):
    config = AtariConfig(game=game, sticky=sticky, max_frames=max_frames, episodic_life=False, clip_reward=False)
    env = config.build()
    vector = AtariVectorEnv(
        game,
        1,
        num_threads=1,
        noop_max=config.noop_max + 1,
        max_num_frames_per_episode=max_frames,
        reward_clipping=False,
        repeat_action_probability=sticky,
    )
    actions = random_actions(env, n_steps)
    expected_obs = [vector.reset(seed=7)[0][0]]
    expected_rewards, expected_ends = [], []
    for action in actions:
        obs, reward, terminated, truncated, _ = vector.step(np.array([action]))
        expected_obs.append(obs[0])
        expected_rewards.append(reward[0])
        expected_ends.append((terminated[0], truncated[0]))

    obs, rewards, ends = play(env, actions, seed=7)

    assert ends.sum() >= n_games
    np.testing.assert_array_equal(ends, expected_ends)
    np.testing.assert_array_equal(rewards, expected_rewards)
    np.testing.assert_array_equal(obs, expected_obs)


@pytest.mark.parametrize(("game", "noop_max"), [("breakout", 30), ("freeway", 30), ("pong", 1)])
def test_every_start_lasts_as_many_frames_as_in_ale_vector_env(game, noop_max):
    env = AtariConfig(game=game, noop_max=noop_max).build()
    vector = AtariVectorEnv(game, 1, num_threads=1, noop_max=noop_max + 1)
    expected, frames = [], []
    for seed in (3, None, None, None, None, 2**31 - 1, None):
        expected.append(vector.reset(seed=seed)[1]["episode_frame_number"][0])
        env.reset(seed=seed)
        frames.append(env.ale.getEpisodeFrameNumber())

    assert frames == expected


def test_start_noops_are_the_bounded_draws_of_libstdcxx():
    # mt19937(5489) begins 3499211612, 581869302; the first times 3 * 2**30 is 0 modulo 2**32, below 2**32 % (3 * 2**30)
    assert StartNoops(5489).draw(3 * 2**30 - 1) == 581869302 * 3 // 4


def test_colour_equals_ale_vector_env_with_channels_first():
    env = replace(PLAIN, game="breakout", grayscale=False, frame_stack=2, image_size=64).build()
    vector = AtariVectorEnv(
        "breakout",
        1,
        num_threads=1,
        noop_max=0,
        use_fire_reset=False,
        grayscale=False,
        stack_num=2,
        img_height=64,
        img_width=64,
    )
    actions = random_actions(env, 40)
    expected = [vector.reset(seed=3)[0][0], *(vector.step(np.array([a]))[0][0] for a in actions)]

    obs, _, _ = play(env, actions, seed=3)

    assert obs.shape == (41, 6, 64, 64)
    np.testing.assert_array_equal(obs.reshape(41, 2, 3, 64, 64), np.stack(expected).transpose(0, 1, 4, 2, 3))


# frogger shows 0 lives for a while before its game is over: that is one end, not two
@pytest.mark.parametrize(("game", "n_lives", "n_steps_at_zero"), [("breakout", 5, 0), ("frogger", 4, 5)])
def test_life_losses_are_those_of_ale_vector_env(game, n_lives, n_steps_at_zero):
    env = replace(PLAIN, game=game, episodic_life=True).build()
    vector = AtariVectorEnv(game, 1, num_threads=1, noop_max=0, use_fire_reset=False, life_loss_info=True)
    vector.reset(seed=7)
    env.reset(seed=7)
    expected, told, at_zero = [], [], 0
    for action in random_actions(env, 500):
        expected.append(vector.step(np.array([action]))[2][0])
        _, _, over, _, info = env.step(action)
        told.append(over or info["rlcli.life_lost"])
        if over:
            break
        at_zero += env.ale.lives() == 0

    assert over
    assert at_zero >= n_steps_at_zero
    assert sum(told) == n_lives
    assert told == expected


@pytest.mark.parametrize(
    ("game", "frame_skip"),
    [
        ("pong", 4),
        ("ALE/Pong-v5", 4),
        ("PongNoFrameskip-v4", 4),
        ("PongNoFrameskip-v0", 4),
        ("PongDeterministic-v4", 4),
        ("ALE/Pong-v5", 1),
        ("ALE/Pong-v5", 3),
        ("PongNoFrameskip-v4", 1),
        ("PongDeterministic-v4", 3),
    ],
)
def test_a_step_lasts_frame_skip_emulator_frames_in_every_id_style(game, frame_skip):
    env = replace(PLAIN, game=game, frame_skip=frame_skip).build()
    env.reset(seed=0)
    start, episode_start = env.ale.getFrameNumber(), env.ale.getEpisodeFrameNumber()

    for _ in range(5):
        env.step(2)

    assert env.ale.getFrameNumber() - start == 5 * frame_skip
    assert env.ale.getEpisodeFrameNumber() - episode_start == 5 * frame_skip


def test_observation_is_the_maximum_over_the_last_two_frames_of_the_skip():
    env = replace(PLAIN, game="space_invaders", frame_skip=3).build()
    env.reset(seed=0)
    for _ in range(60):
        env.step(1)
    twin = emulator("space_invaders")
    twin.restoreState(env.ale.cloneState())
    screens = []
    for _ in range(3):
        twin.act(Action.FIRE)
        screens.append(twin.getScreenGrayscale())
    expected = cv2.resize(np.maximum(screens[1], screens[2]), (84, 84), interpolation=cv2.INTER_AREA)

    obs = env.step(1)[0]

    assert (screens[1] != screens[2]).any()
    np.testing.assert_array_equal(obs[-1], expected)


def test_without_frame_skip_the_maximum_is_over_this_frame_and_the_one_before():
    env = replace(PLAIN, game="space_invaders", frame_skip=1).build()
    env.reset(seed=0)
    for _ in range(200):
        env.step(1)
    before = env.ale.getScreenGrayscale()

    obs = env.step(1)[0]

    after = env.ale.getScreenGrayscale()
    assert (before != after).any()
    expected = cv2.resize(np.maximum(before, after), (84, 84), interpolation=cv2.INTER_AREA)
    np.testing.assert_array_equal(obs[-1], expected)


def test_stack_is_oldest_first_with_zeros_before_the_first_screen():
    env = replace(PLAIN, frame_stack=3).build()

    first = env.reset(seed=0)[0]
    second = env.step(2)[0]

    assert (first.shape, first.dtype) == ((3, 84, 84), np.uint8)
    assert first[:2].max() == 0
    assert first[2].max() > 0
    np.testing.assert_array_equal(second[:2], first[1:])


def test_observations_are_arrays_of_their_own():
    env = PLAIN.build()
    first = env.reset(seed=0)[0]
    kept = first.copy()

    env.step(2)

    np.testing.assert_array_equal(first, kept)


def test_stack_goes_on_over_a_lost_life_and_starts_anew_with_a_game():
    env = replace(PLAIN, game="breakout", episodic_life=True).build()
    obs = env.reset(seed=0)[0]
    lost = over = False
    while not over:
        before = obs
        obs, _, over, _, info = env.step(1 if lost or not env.ale.getEpisodeFrameNumber() % 3 else 0)
        np.testing.assert_array_equal(obs[:-1], before[1:])
        lost = lost or info["rlcli.life_lost"]

    assert lost
    assert env.reset()[0][:-1].max() == 0


def test_without_sticky_a_seed_repeats_exactly():
    env = replace(PLAIN, sticky=0.0).build()
    actions = random_actions(env, 100)

    np.testing.assert_array_equal(play(env, actions, 5)[0], play(env, actions, 5)[0])


def test_sticky_streams_of_two_seeds_differ_and_one_seed_repeats():
    env = replace(PLAIN, game="breakout", sticky=0.25).build()
    actions = random_actions(env, 80)
    first, again, other = (play(env, actions, seed)[0] for seed in (5, 5, 6))

    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_two_unseeded_envs_differ():
    config = replace(PLAIN, game="breakout", sticky=0.5)
    a, b = config.build(), config.build()
    actions = random_actions(a, 60)
    a, b = (play(env, actions, None)[0] for env in (a, b))

    assert (a != b).any()


@pytest.mark.parametrize("sticky", [0.0, 0.25])
def test_sticky_repeats_the_last_action_that_often(sticky):
    # LEFT and RIGHT in turn; what ran is seen by playing both from the same state on a second emulator
    env = replace(PLAIN, game="breakout", frame_skip=1, sticky=sticky).build()
    twin = emulator("breakout")
    env.reset(seed=0)
    left, right = (env.get_action_meanings().index(name) for name in ("LEFT", "RIGHT"))
    executed, n_repeated, n = Action.NOOP, 0, 1200 if sticky else 100
    for _ in range(n):
        wanted = Action.RIGHT if executed == Action.LEFT else Action.LEFT
        state = env.ale.cloneState()
        rams = {}
        for action in (wanted, executed):
            twin.restoreState(state)
            twin.act(action)
            rams[action] = twin.getRAM().tobytes()
        assert rams[wanted] != rams[executed]
        env.step(right if wanted == Action.RIGHT else left)
        ran = next(action for action, ram in rams.items() if ram == env.ale.getRAM().tobytes())
        n_repeated += ran == executed
        executed = ran

    # four standard errors of 1200 draws at 0.25 are 0.05
    assert n_repeated / n == pytest.approx(sticky, abs=0.05 if sticky else 0)


@pytest.mark.parametrize(("fire_reset", "expected"), [(False, {0, 1, 2, 3, 4}), (True, {1, 2, 3, 4})])
def test_a_game_starts_with_up_to_noop_max_frames_with_fire_among_them(fire_reset, expected):
    env = replace(PLAIN, noop_max=4, fire_reset=fire_reset).build()
    env.reset(seed=0)
    frames = set()
    for _ in range(40):
        env.reset()
        frames.add(env.ale.getEpisodeFrameNumber())

    assert frames == expected


def test_noops_come_from_the_seed():
    env = replace(PLAIN, noop_max=30).build()

    def starts(seed):
        frames = []
        for k in range(4):
            env.reset(seed=seed if k == 0 else None)
            frames.append(env.ale.getEpisodeFrameNumber())
        return frames

    first, again, other = starts(3), starts(3), starts(4)

    assert first == again
    assert first != other


@pytest.mark.parametrize(("game", "n_frames"), [("breakout", 1), ("freeway", 0)])
def test_fire_is_pressed_once_where_the_game_has_the_button(game, n_frames):
    env = replace(PLAIN, game=game, fire_reset=True).build()
    env.reset(seed=0)

    assert env.ale.getEpisodeFrameNumber() == n_frames
    if n_frames:
        twin = replace(PLAIN, game=game).build()
        twin.reset(seed=0)
        twin.ale.act(Action.FIRE)
        np.testing.assert_array_equal(env.ale.getRAM(), twin.ale.getRAM())


@pytest.mark.parametrize(("max_frames", "n_steps", "n_frames"), [(40, 10, 40), (42, 11, 42), (3, 1, 3)])
def test_a_game_is_truncated_after_max_frames_without_the_start(max_frames, n_steps, n_frames):
    env = replace(PLAIN, max_frames=max_frames, noop_max=30, fire_reset=True).build()
    env.reset(seed=0)
    start = env.ale.getEpisodeFrameNumber()
    ends = []
    while not ends or not any(ends[-1]):
        ends.append(env.step(0)[2:4])

    assert start > 1
    assert ends == [(False, False)] * (n_steps - 1) + [(False, True)]
    assert env.ale.getEpisodeFrameNumber() - start == n_frames


def test_a_truncated_step_shows_all_but_its_last_frame_as_in_ale_vector_env():
    env = replace(PLAIN, game="space_invaders", max_frames=4 * 62).build()
    env.reset(seed=0)
    for _ in range(60):
        env.step(1)
    twin = emulator("space_invaders")
    twin.restoreState(env.ale.cloneState())
    screens = []
    for _ in range(8):
        twin.act(Action.FIRE)
        screens.append(twin.getScreenGrayscale())

    env.step(1)
    obs, _, _, truncated, _ = env.step(1)

    assert truncated
    pooled = np.maximum(np.maximum(screens[2], screens[3]), screens[6])
    assert (pooled != np.maximum(screens[6], screens[7])).any()
    np.testing.assert_array_equal(obs[-1], cv2.resize(pooled, (84, 84), interpolation=cv2.INTER_AREA))


def test_clipped_reward_is_the_sign_and_the_raw_one_is_kept():
    env = replace(PLAIN, game="space_invaders", clip_reward=True).build()
    env.reset(seed=0)
    rewards = set()
    for action in random_actions(env, 300):
        _, reward, over, _, info = env.step(action)
        rewards.add((reward, np.sign(info["rlcli.raw_reward"])))
        if info["rlcli.raw_reward"] > 1 or over:
            break

    assert info["rlcli.raw_reward"] > 1
    assert rewards == {(0.0, 0.0), (1.0, 1.0)}
    assert set(info) == {"rlcli.raw_reward", "rlcli.life_lost"}


def test_lives_are_not_told_unless_asked():
    env = replace(PLAIN, game="breakout").build()
    env.reset(seed=7)
    told = over = False
    while not over:
        _, _, over, _, info = env.step(1)
        told = told or info["rlcli.life_lost"]

    assert not told


def test_mode_and_difficulty_are_set():
    env = replace(PLAIN, game="breakout", mode=4, difficulty=1).build()
    default = replace(PLAIN, game="breakout").build()
    env.reset(seed=0)
    default.reset(seed=0)

    state = env.ale.cloneState()
    assert (state.getCurrentMode(), state.getDifficulty()) == (4, 1)
    assert (env.ale.getRAM() != default.ale.getRAM()).any()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"mode": 9}, "env.mode: 9 is not one of those of pong: 0, 1"),
        ({"difficulty": 7}, "env.difficulty: 7 is not one of those of pong: 0, 1, 2, 3"),
    ],
)
def test_unknown_mode_or_difficulty_is_refused_with_the_known_ones(changes, line):
    with pytest.raises(ConfigError) as caught:
        AtariConfig(**changes).build()

    assert caught.value.problems == [line]


@pytest.mark.parametrize(("full", "n"), [(False, 6), (True, 18)])
def test_action_space_is_the_games_own_or_all_18(full, n):
    env = replace(PLAIN, full_action_space=full).build()

    assert env.action_space.n == n
    assert len(env.get_action_meanings()) == n


def test_an_action_out_of_range_is_refused():
    env = PLAIN.build()
    env.reset(seed=0)

    with pytest.raises(ValueError, match=r"action -1 is not one of 0 \.\. 5"):
        env.step(-1)


def test_render_is_the_emulators_screen_in_colour():
    env = PLAIN.build()
    env.reset(seed=0)

    assert (env.render_mode, env.metadata["render_fps"]) == ("rgb_array", 15)
    np.testing.assert_array_equal(env.render(), env.ale.getScreenRGB())


def test_evaluation_plays_whole_games_for_true_rewards():
    config = AtariConfig(game="breakout", sticky=0.25)

    assert config.for_evaluation() == AtariConfig(game="breakout", sticky=0.25, episodic_life=False, clip_reward=False)
