"""rlcli play: videos, windows, and what they show."""

import importlib.util
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

import rlcli
from rlcli.cli import window
from rlcli.cli.main import main
from rlcli.cli.overlay import Bar, Chart, Mark, enlarged, even, with_panel
from rlcli.record.snapshot import read_snapshot, write_snapshot
from tests.cli.saved_probes import CARTPOLE, DQN, of, train

DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("played")


@pytest.fixture(scope="module")
def cartpole(folder):
    return train(folder / "cartpole", *CARTPOLE, *DQN, "epsilon.eval=0")


@pytest.fixture(scope="module")
def shades(folder):
    return train(folder / "shades", *of("Shades"), *DQN, "epsilon.eval=0", "env.kwargs.n_steps=60")


@pytest.fixture(autouse=True)
def no_display(monkeypatch):
    for name in DISPLAYS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def video():
    """Decodes a video: pictures [N, H, W, 3] and pictures per second."""
    exe = pytest.importorskip("imageio_ffmpeg").get_ffmpeg_exe()

    def read(path):
        done = subprocess.run([exe, "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"], capture_output=True)
        width, height, fps = re.search(r"Video:.*?, (\d+)x(\d+).*? ([\d.]+) fps", done.stderr.decode()).groups()
        return np.frombuffer(done.stdout, np.uint8).reshape(-1, int(height), int(width), 3), float(fps)

    return read


def test_a_video_has_a_picture_for_each_step_and_one_of_the_start(shades, tmp_path, video, capsys):
    file = tmp_path / "out.mp4"

    assert 0 == main(["play", str(shades), "--video", str(file), "--scale", "2"])

    pictures, fps = video(file)
    assert 20.0 == fps
    assert (61, (156, 2 * 30 + 260, 3)) == (len(pictures), pictures[0].shape)  # 7 lines of 20 and two margins
    assert "1 games, 60 steps" in capsys.readouterr().out
    for step in (0, 30, 60):  # the env's pictures have the shade of their step; H.264 is not exact
        assert abs(pictures[step][5:70, 5:50].mean() - step) < 6
    assert [file] == list(tmp_path.iterdir())


def test_the_panel_of_the_video_shows_the_values(shades, tmp_path, video):
    snapshot = read_snapshot(shades / "params.pkl")
    bias = next(name for name in snapshot["agent_state_dict"]["model"] if name.endswith("advantage.bias"))
    snapshot["agent_state_dict"]["model"][bias] += torch.tensor([0.0, 0.0, 50.0])
    write_snapshot(tmp_path / "other.pkl", snapshot)
    panels = []
    for i, source in enumerate((shades / "params.pkl", shades / "params.pkl", tmp_path / "other.pkl")):
        rlcli.play(source, video=tmp_path / f"{i}.mp4", max_steps=2, scale=1)
        panels.append(video(tmp_path / f"{i}.mp4")[0][1][:, 30:].astype(int))

    assert np.array_equal(panels[0], panels[1])
    assert np.abs(panels[0] - panels[2]).max() > 100


def test_without_the_overlay_the_picture_is_the_envs(shades, tmp_path, video):
    assert 0 == main(
        ["play", str(shades), "--video", f"{tmp_path}/a.mp4", "--no-overlay", "--scale", "3", "--fps", "7"]
    )

    pictures, fps = video(tmp_path / "a.mp4")
    assert (7.0, (120, 90, 3)) == (fps, pictures[0].shape)


def test_a_classic_control_env_is_drawn_without_a_display_and_its_game_is_that_of_the_evaluation(
    cartpole, tmp_path, video, capsys
):
    pytest.importorskip("pygame")
    score = rlcli.evaluate(cartpole, episodes=1, overrides=["eval.n_envs=1"]).mean

    played = rlcli.play(cartpole, video=tmp_path / "a.mp4")

    assert [score] == played.scores
    pictures, _ = video(tmp_path / "a.mp4")
    assert (score + 1, (400, 860, 3)) == (len(pictures), pictures[0].shape)
    assert not any(name in window.os.environ for name in DISPLAYS)


def test_several_episodes_are_cut_where_max_steps_says(shades, tmp_path, video):
    played = rlcli.play(shades, video=tmp_path / "a.mp4", episodes=3, max_steps=4)

    assert (3, 12, 15) == (len(played.scores), played.n_steps, played.n_pictures)
    assert 15 == len(video(tmp_path / "a.mp4")[0])


def test_an_atari_game_is_shown_in_colour_with_the_names_of_its_actions(folder, tmp_path, video, monkeypatch):
    small = ("env.image_size=36", "model.conv_hidden=8", "env.backend=ale", "n_steps=16", "algo=a2c")
    pong = train(folder / "pong", "env=pong", *small)
    names = []

    def spy(picture, rows):
        names.append([row.name for row in rows if isinstance(row, Bar)])
        return with_panel(picture, rows)

    monkeypatch.setattr("rlcli.cli.overlay.with_panel", spy)

    rlcli.play(pong, video=tmp_path / "a.mp4", max_steps=3)

    assert ["NOOP", "FIRE", "RIGHT", "LEFT", "RIGHTFIRE", "LEFTFIRE"] == names[0]
    assert (420, 320 + 260, 3) == video(tmp_path / "a.mp4")[0][0].shape


def test_a_window_shows_the_game(shades, monkeypatch, capsys):
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")

    assert 0 == main(["play", str(shades), "--fps", "1000", "--max-steps", "5"])

    assert "1 games, 5 steps" in capsys.readouterr().out


def test_the_windows_closing_button_ends_the_play(shades, monkeypatch):
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    flip, shown = pygame.display.flip, []

    def close_after_three():
        flip()
        shown.append(pygame.display.get_surface().get_size())
        if len(shown) == 3:
            pygame.event.post(pygame.event.Event(pygame.QUIT))

    monkeypatch.setattr(pygame.display, "flip", close_after_three)
    played = rlcli.play(shades, fps=1000, scale=2)

    assert (3, {(320, 156)}) == (played.n_pictures, set(shown))


def test_without_a_display_a_window_is_refused_in_a_line_that_suggests_a_video(shades, monkeypatch, capsys):
    monkeypatch.setattr(window.sys, "platform", "linux")

    assert 2 == main(["play", str(shades)])

    message = "rlcli play: there is no display to open a window on; write a video: --video out.mp4\n"
    assert message == capsys.readouterr().err


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("imageio-ffmpeg", ["--video", "a.mp4"], "rlcli[video]"),
        ("pygame", [], "rlcli[play]"),
    ],
)
def test_a_missing_extra_is_one_line_that_names_it(package, words, extra, shades, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package.replace("-", "_") else find(name)
    )

    assert 2 == main(["play", str(shades), *words])

    (line,) = capsys.readouterr().err.splitlines()
    assert package in line
    assert f"pip install '{extra}'" in line
    assert [] == list(tmp_path.iterdir())


def test_an_env_that_draws_with_a_missing_package_names_the_extra_and_leaves_nothing(
    cartpole, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "pygame", None)

    assert 2 == main(["play", str(cartpole), "--video", str(tmp_path / "a.mp4")])

    assert "pip install 'rlcli[play]'" in capsys.readouterr().err
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["Endless", "Parity"])
def test_an_env_without_pictures_is_refused_in_a_line(name, folder, tmp_path, capsys):
    run = train(folder / name, *of(name), "algo=a2c", "n_steps=20")

    assert 2 == main(["play", str(run), "--video", str(tmp_path / "a.mp4")])

    assert "cannot be shown" in capsys.readouterr().err.splitlines()[-1]
    assert [] == list(tmp_path.iterdir())


def test_a_failure_in_the_middle_leaves_the_video_that_was_there(shades, tmp_path, monkeypatch, capsys):
    file = tmp_path / "a.mp4"
    file.write_bytes(b"older")
    monkeypatch.setattr("tests.cli.saved_probes.ShadesEnv.render", fail_after(3))

    assert 1 == main(["play", str(shades), "--video", str(file)])

    assert "render() raised ValueError: marker" in capsys.readouterr().err
    assert (b"older", [file]) == (file.read_bytes(), list(tmp_path.iterdir()))


def test_ctrl_c_leaves_no_video(shades, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "tests.cli.saved_probes.ShadesEnv.get_action_meanings", lambda env: setattr(env, "interrupt_at", 5) or []
    )

    assert 130 == main(["play", str(shades), "--video", str(tmp_path / "a.mp4")])

    assert "rlcli play: interrupted\n" == capsys.readouterr().err
    assert [] == list(tmp_path.iterdir())


def fail_after(n):
    calls = []

    def render(env):
        calls.append(env)
        if len(calls) > n:
            raise ValueError("marker")
        return np.zeros((40, 30, 3), np.uint8)

    return render


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--video", "a.gif"], "--video: 'a.gif' is not allowed, must end with .mp4"),
        (["--video", "nowhere/a.mp4"], "--video: there is no folder"),
        (["--video", "a.mp4", "env.a=1"], "env.a=1: play takes no keys"),
        (["--video", "a.mp4", "--fps", "0"], "--fps: 0 is not allowed, must be >= 0.1"),
        (["--vide", "a.mp4"], "--vide: unknown flag; did you mean '--video'"),
        (["--no-overlay=1"], "--no-overlay: takes no value"),
    ],
)
def test_a_request_that_cannot_be_met_is_a_line(words, message, shades, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    assert 2 == main(["play", str(shades), *words])

    assert capsys.readouterr().err.startswith(f"rlcli play: {message}")
    assert [] == list(tmp_path.iterdir())


ORANGE, BLUE = (240, 170, 50), (70, 110, 160)


def panel(*rows):
    return with_panel(np.zeros((100, 10, 3), np.uint8), rows)[:, 10:]


def columns(line, *colours):
    """Where a line of the panel has one of the colours."""
    return [int(x) for x in np.flatnonzero([tuple(pixel) in colours for pixel in line.tolist()])]


def test_bars_are_as_long_as_they_should_be_and_the_chosen_one_has_its_own_colour():
    picture = panel("title", Bar("a", "1", 0.0), Bar("b", "2", 0.5, chosen=True), Bar("c", "3", 7.0), Bar("d", "", 0))

    lines = [picture[8 + 20 * row + 10] for row in (1, 2, 3)]
    blue, orange = ([columns(line[118:191], colour) for line in lines] for colour in (BLUE, ORANGE))
    assert [1, 0, 73] == [len(found) for found in blue]
    assert [0, 37, 0] == [len(found) for found in orange]


def test_a_mark_stands_at_its_place_with_its_band_and_at_the_edge_where_it_is_outside():
    picture = panel(Mark("x", 0.5, (0.25, 0.75)), Mark("y", 9.0), Mark("nothing", float("nan")))

    lines = [picture[8 + 20 * row + 10 - 6] for row in (1, 3, 5)], picture[8 + 20 + 10 + 3]
    assert [[129, 130, 131], [251, 252, 253], [7, 8, 9]] == [columns(line, ORANGE) for line in lines[0]]
    band = columns(lines[1], BLUE, ORANGE)
    assert (69, 191, 123) == (band[0], band[-1], len(band))


def test_the_columns_of_a_chart_are_as_high_as_they_should_be():
    picture = panel(Chart([0.0, 0.5, 1.0, 0.25], "0", "4"))

    places = [8 + 61 * i + 30 for i in range(4)]
    heights = [len(columns(picture[:68, x], ORANGE)) for x in places]
    assert [0, 28, 56, 14] == heights


def test_pictures_are_enlarged_by_whole_pixels_and_get_even_sides():
    picture = np.arange(18, dtype=np.uint8).reshape(3, 2, 3)

    assert np.array_equal(picture, enlarged(picture, 3)[1::3, 1::3])
    assert (4, 2, 3) == even(picture).shape
    assert np.array_equal(picture[-1], even(picture)[-1])
