"""Which run a user means."""

import os
from pathlib import Path

import pytest

from rlcli.cli.runs import find_run
from rlcli.core.errors import ConfigError


@pytest.fixture
def make(tmp_path):
    def run(place: str, at: float = 1000.0) -> Path:
        folder = tmp_path / place
        folder.mkdir(parents=True)
        for name in ("config.yaml", "debug.log", "progress.csv"):
            (folder / name).touch()
            os.utime(folder / name, (at, at))
        return folder

    return run


@pytest.mark.parametrize("place", ["a", "lr=0.1,b=[2]/0", "with spaces", "runs/x/1", "runs/a.b"])
def test_a_path_means_its_folder_whatever_is_in_it(make, tmp_path, place):
    folder = make(place)

    assert folder == find_run(place, tmp_path)
    assert folder == find_run(f"{place}/", tmp_path)
    assert folder == find_run(folder, Path("/"))


def test_a_path_is_relative_to_the_current_folder(make, monkeypatch):
    folder = make("runs/x/1")
    monkeypatch.chdir(folder.parent)

    assert folder == find_run("1")
    assert folder == find_run(".")


def test_a_name_means_the_newest_run_of_that_name(make, tmp_path):
    make("runs/cart/20260101_000000_s0", at=1000)
    newest = make("runs/cart/20250101_000000_s0", at=3000)
    make("runs/other/20260101_000000_s0", at=9000)

    assert newest == find_run("cart", tmp_path)


def test_the_name_as_it_was_given_to_train_is_found(make, tmp_path):
    assert make("runs/my_run/1") == find_run("my run", tmp_path)


def test_a_run_folders_own_name_means_it(make, tmp_path):
    make("runs/cart/20260101_000000_s0", at=3000)
    folder = make("runs/cart/20260101_000000_s1", at=1000)

    assert folder == find_run("20260101_000000_s1", tmp_path)


def test_a_folder_name_that_two_runs_have_is_refused_with_their_paths(make, tmp_path):
    both = [make("runs/a/1_s0"), make("runs/b/1_s0")]

    with pytest.raises(ConfigError) as caught:
        find_run("1_s0", tmp_path)

    assert [str(path) for path in both] == caught.value.problems[1:]


def test_last_means_the_run_that_wrote_last_not_the_one_that_sorts_last(make, tmp_path):
    newest = make("runs/a/1", at=1000)
    make("runs/b/2", at=2000)
    os.utime(newest / "progress.csv", (3000, 3000))
    make("elsewhere/3", at=9000)

    assert newest == find_run("last", tmp_path)


def test_jobs_of_a_sweep_count(make, tmp_path):
    make("runs/study/0", at=1000)
    job = make("runs/study/1", at=2000)

    assert job == find_run("last", tmp_path) == find_run("study", tmp_path) == find_run("runs/study", tmp_path)


@pytest.mark.parametrize("missing", ["config.yaml", "debug.log"])
def test_a_folder_without_the_marks_of_a_run_is_none(make, tmp_path, missing):
    folder = make("runs/a/1")
    (folder / missing).unlink()

    with pytest.raises(ConfigError, match="no run folder"):
        find_run("runs/a/1", tmp_path)


def test_what_is_not_there_is_named_with_where_it_was_looked_for_and_what_is_like_it(make, tmp_path):
    make("runs/dqn-cartpole/1")

    with pytest.raises(ConfigError) as caught:
        find_run("dqn-cartpol", tmp_path)

    (line,) = caught.value.problems
    assert str(tmp_path / "dqn-cartpol") in line
    assert str(tmp_path / "runs") in line
    assert "did you mean 'dqn-cartpole'" in line


@pytest.mark.parametrize(("text", "words"), [("last", "there is no run below"), (" ", "needs a run folder")])
def test_nothing_to_find_is_said_in_a_line(tmp_path, text, words):
    with pytest.raises(ConfigError, match=words):
        find_run(text, tmp_path)
