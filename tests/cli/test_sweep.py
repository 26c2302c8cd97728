"""rlcli train -m."""

import csv
from pathlib import Path

import pytest

from rlcli.core.errors import ConfigError
from rlcli.record.snapshot import snapshot_state, write_snapshot


def summary(cli) -> list[dict[str, str]]:
    (file,) = cli.folder.glob("multirun/*/summary.csv")
    with file.open(newline="") as rows:
        return list(csv.DictReader(rows))


def test_every_combination_runs_once_in_order(cli):
    assert cli("train", "-m", "seed=1,2", "algo.learning_rate=1e-3,1e-4", "experiment=quickstart", "n_steps=2000") == 0

    expected = [(1, 1e-3), (1, 1e-4), (2, 1e-3), (2, 1e-4)]
    assert expected == [(c.seed, c.algo.learning_rate) for c in cli.configs]
    assert {2000} == {c.n_steps for c in cli.configs}


def test_the_table_shows_what_differs_between_jobs(cli):
    assert cli("train", "-m", "seed=1,2", "n_steps=2000") == 0

    table = cli.out.splitlines()[-4:]
    assert ["job", "overrides", "status", "seconds", "run", "folder"] == table[0].split()
    assert ["0", "seed=1", "ok"] == table[1].split()[:3]
    assert ["1", "seed=2", "ok"] == table[2].split()[:3]
    assert table[1].endswith("runs/seed1")
    assert table[3].startswith("2 jobs, 2 ok: ")


def test_a_job_that_fails_does_not_stop_the_others(cli):
    folder = cli.folder / "run2"
    folder.mkdir()
    cli.failures = {2: RuntimeError("marker"), 3: ConfigError("algo: does not fit"), 4: SystemExit(5)}
    cli.failures[2].run_dir = folder

    assert cli("train", "-m", "seed=2,3,4,5") == 1

    assert [2, 3, 4, 5] == [c.seed for c in cli.configs]
    assert ["failed", "failed", "failed", "ok"] == [row["status"] for row in summary(cli)]
    assert "Traceback" in cli.err
    assert "RuntimeError: marker" in cli.err
    assert "RuntimeError: marker" in (folder / "debug.log").read_text()
    assert str(folder) == summary(cli)[0]["run_dir"]
    assert "rlcli train: job 1 failed, going on" in cli.err
    assert "ConfigError: algo: does not fit" in cli.out
    assert "Error executing job" not in cli.err


def test_ctrl_c_stops_the_sweep_and_shows_what_was_done(cli):
    cli.failures = {2: KeyboardInterrupt()}

    assert cli("train", "-m", "seed=1,2,3") == 130

    assert ["ok", "interrupted"] == [row["status"] for row in summary(cli)]
    assert "3 jobs, 1 ok" in cli.out


def test_a_given_run_folder_holds_a_folder_for_each_job(cli):
    assert cli("train", "-m", "seed=1,2", "run_dir=out") == 0

    assert [str(Path("out") / "0"), str(Path("out") / "1")] == [c.run_dir for c in cli.configs]


def test_each_job_gets_the_command_that_runs_it_alone(cli, my_package):
    assert cli("train", "-m", "seed=1,2", "-cd", str(my_package), "env=mine", "imports=[my_pkg]") == 0

    words = ["rlcli", "train", "seed=2", "env=mine", "imports=[my_pkg]", "-cd", str(my_package)]
    assert words == cli.words[1]
    assert cli(*words[1:]) == 0
    assert (2, 5) == (cli.config.seed, cli.config.env.size)


@pytest.mark.parametrize("name", ["a=b,c d.pkl"])
def test_a_sweep_resumes_every_job_from_the_file(cli, name):
    state = {"itr": 1, "cum_steps": 1, "config": {}}
    parts: dict[str, dict] = {f"{part}_state_dict": {} for part in ("agent", "optimizer", "algo")}
    write_snapshot(cli.folder / name, snapshot_state(**state, **parts))

    assert cli("train", "-m", "seed=1,2", "--resume", name) == 0

    assert [str(cli.folder / name)] * 2 == [c.resume for c in cli.configs]


def test_sweeps_of_one_moment_have_folders_of_their_own(cli):
    for _ in range(2):
        assert cli("train", "-m", "seed=1") == 0

    assert 2 == len(list(cli.folder.glob("multirun/*/summary.csv")))


def test_a_folder_that_holds_a_sweep_is_not_used_again(cli):
    assert cli("train", "-m", "seed=1", "hydra.sweep.dir=sw") == 0
    before = (cli.folder / "sw" / "summary.csv").read_bytes()

    assert cli("train", "-m", "seed=1", "hydra.sweep.dir=sw") == 2

    assert "hydra.sweep.dir: " in cli.err
    assert before == (cli.folder / "sw" / "summary.csv").read_bytes()


def test_an_experiment_file_may_carry_a_sweep(cli, my_package):
    (my_package / "experiment").mkdir()
    (my_package / "experiment" / "seeds.yaml").write_text(
        "# @package _global_\nhydra:\n  mode: MULTIRUN\n  sweeper:\n    params:\n      seed: range(3,5)\n"
    )

    assert cli("train", "-cd", str(my_package), "experiment=seeds") == 0

    assert [3, 4] == [c.seed for c in cli.configs]
    assert 2 == len(summary(cli))


def test_a_sweep_leaves_its_own_folder_only(cli):
    assert cli("train", "-m", "seed=1") == 0

    names = [Path(p).name for p in cli.left_on_disk()]
    assert ["multirun.yaml", "summary.csv"] == sorted(names)[-2:]
    assert 4 == len(names)
