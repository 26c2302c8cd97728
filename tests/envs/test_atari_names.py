import subprocess
import sys

import pytest

from rlcli.core.errors import ConfigError
from rlcli.core.options import range_problems
from rlcli.envs.atari_names import rom_id, rom_ids
from rlcli.envs.config import AtariConfig


@pytest.mark.parametrize(
    ("game", "rom"),
    [
        ("pong", "pong"),
        ("Pong", "pong"),
        ("ms_pacman", "ms_pacman"),
        ("MsPacman", "ms_pacman"),
        ("ALE/Pong-v5", "pong"),
        ("ALE/MsPacman-v5", "ms_pacman"),
        ("PongNoFrameskip-v4", "pong"),
        ("PongNoFrameskip-v0", "pong"),
        ("PongDeterministic-v4", "pong"),
        ("UpNDownNoFrameskip-v4", "up_n_down"),
        ("ALE/TicTacToe3D-v5", "tic_tac_toe_3d"),
        ("pitfall2", "pitfall2"),
    ],
)
def test_every_id_style_means_its_rom(game, rom):
    assert rom_id(game) == rom


@pytest.mark.parametrize("game", ["Pong-v0", "Pong-v4", "MsPacman-v4"])
def test_random_skip_ids_are_refused_with_the_reason_and_what_to_write(game):
    with pytest.raises(ConfigError, match=r"^game: .*random frame skip \(2 to 4 .*write '(pong|ms_pacman)' or 'ALE/"):
        rom_id(game)


@pytest.mark.parametrize(
    ("game", "line"),
    [
        ("pongg", "game: no Atari game 'pongg'; did you mean 'pong'?"),
        ("MsPackman", "game: no Atari game 'MsPackman'; did you mean 'ms_pacman' or 'pacman'?"),
        ("combat", "game: 'combat' can only be played by two"),
        ("Pong-v5", "game: there is no version 'Pong-v5', write 'pong'"),
        ("ALE/Pong-v4", "game: there is no version 'ALE/Pong-v4', write 'pong'"),
        ("PongNoFrameskip-v5", "game: there is no version 'PongNoFrameskip-v5', write 'pong'"),
        ("Pong-ram-v4", "game: 'Pong-ram-v4' is no Atari id"),
        ("", "game: '' is no Atari id"),
    ],
)
def test_unknown_games_are_refused_in_one_line(game, line):
    assert [line] == AtariConfig(game=game).problems()


def test_every_bundled_single_player_game_is_accepted():
    assert len(rom_ids()) == 104
    assert [rom_id(rom) for rom in rom_ids()] == list(rom_ids())


def test_build_refuses_with_the_full_key():
    with pytest.raises(ConfigError, match=r"^env\.game: no Atari game 'pongg'"):
        AtariConfig(game="pongg").build()


def test_label_is_the_rom():
    assert AtariConfig(game="ALE/MsPacman-v5").label == "ms_pacman"


@pytest.mark.parametrize(
    ("changes", "key"),
    [({"frame_skip": 0}, "frame_skip"), ({"sticky": 1.0}, "sticky"), ({"noop_max": -1}, "noop_max")],
)
def test_values_out_of_range_are_named(changes, key):
    assert [line.partition(":")[0] for line in range_problems(AtariConfig(**changes), "env.")] == [f"env.{key}"]


def test_config_module_imports_nothing_heavy():
    code = (
        "import sys, rlcli.envs.config; print([m for m in ('torch', 'gymnasium', 'ale_py', 'cv2') if m in sys.modules])"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_envs_run_without_torch_and_without_the_emulators_banner():
    code = (
        "import sys, rlcli.envs.config as c, rlcli.envs.vector as v;"
        "v.InProcessVectorEnv(c.AtariConfig(), [0], 0).close(); v.probe(c.GymConfig('ALE/Pong-v5'));"
        "print('torch' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert (done.stdout, done.stderr, done.returncode) == ("False\n", "", 0)
