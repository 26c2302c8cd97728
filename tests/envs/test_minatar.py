"""MinAtar's games; what needs the package is skipped where it is not installed."""

import csv
import importlib.util
import subprocess
import sys

import numpy as np
import pytest

import rlcli
from rlcli.core.errors import ConfigError
from rlcli.envs import minatar
from rlcli.envs.config import short_name
from rlcli.envs.minatar_config import GAMES, MinAtarConfig
from rlcli.envs.probe import probe
from rlcli.envs.state import capture, restore
from rlcli.record.stats import MACHINE_COLUMNS

needs_package = pytest.mark.skipif(importlib.util.find_spec("minatar") is None, reason="MinAtar is not installed")


def random_actions(n, n_actions=6, seed=0):
    return np.random.default_rng(seed).integers(n_actions, size=n).tolist()


def play(env, actions):
    """Everything that an environment gives for ``actions``; it is reset where an episode ends."""
    found = []
    for action in actions:
        obs, reward, terminated, truncated, _ = env.step(action)
        found.append((obs.tobytes(), reward, terminated, truncated))
        if terminated:
            found.append(env.reset()[0].tobytes())
    return found


# the games


@needs_package
@pytest.mark.parametrize(("sticky", "ramping"), [(0.1, True), (0.0, False), (0.5, True)])
@pytest.mark.parametrize("game", GAMES)
def test_game_is_that_of_the_package_bit_for_bit(game, sticky, ramping):
    from minatar import Environment

    theirs = Environment(game, sticky_action_prob=sticky, difficulty_ramping=ramping)
    ours = MinAtarConfig(game=game, sticky=sticky, difficulty_ramping=ramping).build()
    theirs.seed(7)
    theirs.reset()
    obs, _ = ours.reset(seed=7)
    n_ends = 0

    for action in random_actions(3_000):
        np.testing.assert_array_equal(theirs.state().transpose(2, 0, 1), obs)
        reward, over = theirs.act(action)
        obs, our_reward, terminated, truncated, _ = ours.step(action)
        assert (reward, over, False) == (our_reward, terminated, truncated)
        assert type(our_reward) is float
        if over:
            n_ends += 1
            theirs.reset()
            obs, _ = ours.reset()

    assert n_ends >= 1


@needs_package
@pytest.mark.parametrize(
    ("game", "n_channels", "moves"),
    [
        ("asterix", 4, "NOOP LEFT UP RIGHT DOWN"),
        ("breakout", 4, "NOOP LEFT RIGHT"),
        ("freeway", 7, "NOOP UP DOWN"),
        ("seaquest", 10, "NOOP LEFT UP RIGHT DOWN FIRE"),
        ("space_invaders", 6, "NOOP LEFT RIGHT FIRE"),
    ],
)
def test_spaces(game, n_channels, moves):
    all_moves, minimal = MinAtarConfig(game=game), MinAtarConfig(game=game, minimal_actions=True)

    spec = probe(all_moves)

    assert (n_channels, 10, 10) == spec.observation_space.shape == spec.example_obs.shape
    assert np.dtype(np.bool_) == spec.observation_space.dtype == spec.example_obs.dtype
    assert () == spec.notes
    assert 6 == spec.n_actions == len(all_moves.build().get_action_meanings())
    assert moves.split() == minimal.build().get_action_meanings()
    assert len(moves.split()) == probe(minimal).n_actions


@needs_package
def test_minimal_actions_are_the_games_own():
    ours, minimal = (MinAtarConfig(sticky=0, minimal_actions=minimal).build() for minimal in (False, True))
    ours.reset(seed=0)
    minimal.reset(seed=0)

    for action in random_actions(200, 3):
        assert play(minimal, [action]) == play(ours, [[0, 1, 3][action]])


@needs_package
def test_an_action_that_there_is_not_is_refused():
    env = MinAtarConfig(minimal_actions=True).build()
    env.reset(seed=0)

    for action in (-1, 3):
        with pytest.raises(ValueError, match=rf"action {action} is not one of 0 .. 2"):
            env.step(action)


@needs_package
def test_seed_decides_and_is_drawn_from_the_system_without_one():
    def first_steps(seed):
        env = MinAtarConfig(game="asterix").build()
        env.reset(seed=seed)
        return play(env, random_actions(200))

    assert first_steps(1) == first_steps(1)
    assert len({str(first_steps(seed)) for seed in (1, 2, None, None)}) == 4


@needs_package
@pytest.mark.parametrize("game", GAMES)
def test_state_put_into_another_environment_goes_on_exactly(game):
    first, second = MinAtarConfig(game=game).build(), MinAtarConfig(game=game).build()
    first.reset(seed=0)
    second.reset(seed=1)
    play(first, random_actions(333))
    play(second, random_actions(50, seed=1))

    state = capture(first)
    expected = play(first, random_actions(1_000, seed=2))
    restore(second, state)

    assert expected == play(second, random_actions(1_000, seed=2))


@needs_package
def test_picture_shows_each_cell_in_the_colour_of_its_last_channel():
    env = MinAtarConfig().build()
    env.reset(seed=0)
    env.step(0)
    obs, *_ = env.step(0)  # the ball has left the bricks behind, and its trail too

    picture = env.render()

    assert ((160, 160, 3), np.uint8) == (picture.shape, picture.dtype)
    cells = picture[8::16, 8::16]
    np.testing.assert_array_equal(picture, cells.repeat(16, axis=0).repeat(16, axis=1))
    np.testing.assert_array_equal(cells.any(axis=-1), obs.any(axis=0))  # what is empty is black
    assert 5 == len(np.unique(cells.reshape(-1, 3), axis=0))  # nothing, paddle, ball, trail, bricks


@needs_package
def test_neither_the_package_nor_its_plots_are_loaded():
    code = (
        "import sys; from rlcli.envs.minatar_config import MinAtarConfig; MinAtarConfig().build().reset(seed=0); "
        "print([m for m in ('minatar', 'matplotlib', 'seaborn', 'pandas', 'torch') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)

    assert ("[]\n", "") == (done.stdout, done.stderr)


# names, and what is missing


@pytest.mark.parametrize("name", ["space_invaders", "SpaceInvaders", "spaceinvaders", "SPACE_INVADERS"])
def test_game_is_known_in_every_spelling(name):
    config = MinAtarConfig(game=name)

    assert [] == config.problems()
    assert ("space_invaders", "minatar_space_invaders") == (config.module, short_name(config))


def test_game_that_there_is_not_is_refused_with_the_nearest():
    with pytest.raises(ConfigError) as error:
        MinAtarConfig(game="brekout").build()

    games = "asterix, breakout, freeway, seaquest, space_invaders"
    told = f"env.game: no MinAtar game 'brekout', must be one of {games}; did you mean 'breakout'?"
    assert [told] == error.value.problems


@pytest.mark.parametrize("there", ["nothing", "a folder of that name"])
def test_missing_package_is_told_in_one_line(monkeypatch, tmp_path, there):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    if there != "nothing":
        (tmp_path / "minatar").mkdir()
    monkeypatch.delitem(sys.modules, "minatar", raising=False)
    minatar.game_class.cache_clear()

    with pytest.raises(ConfigError) as error:
        minatar.game_class("breakout")

    assert ["env: MinAtar is not installed; pip install 'rlcli[minatar]'"] == error.value.problems


def test_missing_package_ends_the_command_with_exit_code_2(monkeypatch, tmp_path, capsys):
    from rlcli.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    minatar.game_class.cache_clear()

    code = main(["train", "env=minatar", "algo=dqn", "n_steps=10"])

    assert 2 == code
    assert "rlcli train: env: MinAtar is not installed; pip install 'rlcli[minatar]'\n" == capsys.readouterr().err
    assert [] == list(tmp_path.iterdir())


# from the command line

SMALL = [
    *("env=minatar", "algo=dqn", "algo.min_steps_learn=60", "algo.replay_ratio=4", "algo.batch_size=8"),
    *("algo.target_update_interval=10", "replay.size=120", "sampler.batch_B=2", "device=cpu", "torch_threads=1"),
    *("log_interval_steps=50", "logger.ui=quiet"),
]


def rows(run):
    """progress.csv but for what measures the machine."""
    with (run / "progress.csv").open(newline="") as file:
        return [{k: v for k, v in row.items() if k not in MACHINE_COLUMNS} for row in csv.DictReader(file)]


@needs_package
@pytest.mark.parametrize("game", GAMES)
def test_half_and_resume_equal_the_whole(tmp_path, game):
    words = [*SMALL, f"env.game={game}", "model.conv_hidden=8"]
    whole = rlcli.train([*words, "n_steps=300", f"run_dir={tmp_path / 'whole'}"])
    halves = rlcli.train([*words, "n_steps=150", f"run_dir={tmp_path / 'halves'}"])

    rlcli.resume(halves, ["n_steps=300"])

    assert rows(whole) == rows(halves)
    assert len({row["WeightsHash"] for row in rows(whole)}) > 3
    assert "hold the environments exactly" in (halves / "debug.log").read_text()


@needs_package
def test_replay_keeps_a_byte_for_each_cell(tmp_path):
    run = rlcli.train([*SMALL, "n_steps=20", f"run_dir={tmp_path / 'run'}"])

    # 4 x 10 x 10 bools; action 8, reward 4, and a byte each for terminated, truncated, valid and n_earlier
    assert "120 transitions x 416 B" in (run / "debug.log").read_text()
