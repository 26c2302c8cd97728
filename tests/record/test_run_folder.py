from datetime import datetime
from pathlib import Path

import pytest

from rlcli.core.errors import ConfigError
from rlcli.record.folder import create_run_folder, safe_name

NOW = datetime(2026, 3, 4, 5, 6, 7)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def create(**changes):
    return create_run_folder(**{"run_dir": None, "name": "dqn-pong", "seed": 3, "now": NOW} | changes)


def test_folder_is_named_by_run_time_and_seed_below_the_current_folder(tmp_path):
    folder = create()

    assert folder == tmp_path / "runs" / "dqn-pong" / "20260304_050607_s3"
    assert folder.is_absolute()
    assert folder.is_dir()


def test_taken_names_are_counted_on():
    assert [create().name for _ in range(3)] == ["20260304_050607_s3", "20260304_050607_s3_1", "20260304_050607_s3_2"]


STARTER = """
import sys
from datetime import datetime
from rlcli.record.folder import create_run_folder
print("ready", flush=True)
sys.stdin.readline()
for second in range(20):
    print(create_run_folder(run_dir=None, name="x", seed=0, now=datetime(2026, 1, 1, 0, 0, second)), flush=True)
"""


def test_eight_processes_at_once_never_share_a_folder(start_python):
    processes = [start_python(STARTER) for _ in range(8)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    folders = [line for process in processes for line in process.communicate(timeout=60)[0].split()]

    assert len(folders) == 160
    assert len(set(folders)) == 160


def test_given_folder_that_another_process_takes_at_the_same_moment_is_refused(tmp_path, monkeypatch):
    look = Path.iterdir

    def look_before_the_other_comes(folder):
        seen = list(look(folder))
        (folder / "debug.log").write_text("the other's")
        return iter(seen)

    monkeypatch.setattr(Path, "iterdir", look_before_the_other_comes)

    with pytest.raises(ConfigError, match=r"^run_dir: .*mine is not empty"):
        create(run_dir="mine")
    assert (tmp_path / "mine" / "debug.log").read_text() == "the other's"


def test_given_folder_is_used_as_it_is(tmp_path):
    assert create(run_dir="deep/er/mine") == tmp_path / "deep" / "er" / "mine"
    assert (tmp_path / "deep" / "er" / "mine").is_dir()
    assert not (tmp_path / "runs").exists()


def test_given_folder_may_exist_if_it_is_empty(tmp_path):
    (tmp_path / "mine").mkdir()

    assert create(run_dir="mine") == tmp_path / "mine"


def test_given_folder_that_holds_something_is_refused_and_untouched(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")

    with pytest.raises(ConfigError, match=r"^run_dir: .*mine is not empty"):
        create(run_dir="mine")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_given_file_is_refused(tmp_path):
    (tmp_path / "mine").write_text("x")

    with pytest.raises(ConfigError, match=r"^run_dir: .*mine is a file"):
        create(run_dir="mine")


@pytest.mark.parametrize("run_dir", ["", "  "])
def test_empty_run_dir_is_refused(run_dir):
    with pytest.raises(ConfigError, match=r"^run_dir: .* is no path"):
        create(run_dir=run_dir)


def test_place_that_cannot_hold_a_folder_is_one_line(tmp_path):
    (tmp_path / "runs").write_text("a file in the way")

    with pytest.raises(ConfigError, match=r"^run_dir: cannot make the run folder: [^\n]*runs") as caught:
        create()
    assert len(caught.value.problems) == 1


def test_home_is_understood(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    assert create(run_dir="~/mine") == tmp_path / "home" / "mine"


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("dqn-pong", "dqn-pong"),
        ("dqn-ALE/Pong-v5", "dqn-ALE_Pong-v5"),
        ("my run", "my_run"),
        ("../../etc", "etc"),
        (".hidden", "hidden"),
        ("-rf", "rf"),
        ("mod:Env-v0", "mod_Env-v0"),
        ("lr=1e-3,gap", "lr=1e-3,gap"),
        ("naïve\n$HOME`x`", "na_ve_HOME_x"),
        ("", "run"),
        ("///", "run"),
        ("x" * 300, "x" * 100),
    ],
)
def test_name_becomes_one_safe_folder_name(name, safe):
    assert safe_name(name) == safe


def test_odd_name_stays_below_runs(tmp_path):
    assert Path("runs", "etc") == create(name="../../etc").parent.relative_to(tmp_path)
