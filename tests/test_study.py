"""The script that makes a study's table and figure, on runs of its own."""

import csv
import importlib.util
import sys
from pathlib import Path

import pytest

import rlcli

SCRIPT = Path(__file__).parent.parent / "experiments" / "study.py"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    words = ["algo=dqn", "env=cartpole", "n_steps=400", "log_interval_steps=200", "eval.interval_steps=200"]
    return [
        rlcli.train(
            [*words, "eval.n_episodes=4", "sampler.batch_B=4", f"seed={seed}", f"run_dir={folder}/{label}/{seed}"]
        )
        for label, seed in (("narrow", 0), ("narrow", 1), ("wide", 0))
    ]


@pytest.fixture
def study(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("study", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "study", module)  # where its dataclass looks for its own module
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "HERE", tmp_path)
    return module


def call(study, monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["study.py", *map(str, words)])
    study.main()


def evaluations_of(run):
    with (run / "progress.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["EvalGameScoreAverage"] != "nan"]
    return [(int(row["CumSteps"]), float(row["EvalGameScoreAverage"])) for row in rows]


def test_every_evaluation_of_every_run_is_in_the_table_under_its_label_and_seed(
    study, runs, tmp_path, monkeypatch, capsys
):
    call(study, monkeypatch, "mine", *runs)

    with (tmp_path / "mine" / "scores.csv").open(newline="") as file:
        rows = [tuple(row.values()) for row in csv.DictReader(file)]
    assert [row[:2] for row in rows] == [("narrow", "0")] * 3 + [("narrow", "1")] * 3 + [("wide", "0")] * 3
    expected = [pair for run in runs for pair in evaluations_of(run)]
    assert [(int(row[2]), float(row[3])) for row in rows] == [(n, pytest.approx(x, rel=1e-5)) for n, x in expected]
    assert (tmp_path / "mine" / "curves.png").read_bytes()[:4] == b"\x89PNG"
    last = [evaluations_of(run)[-1][1] for run in runs]
    printed = capsys.readouterr().out.splitlines()
    assert f"{last[0]:.4g}, {last[1]:.4g} | {(last[0] + last[1]) / 2:.4g}" in printed[2]
    assert printed[3].startswith("| wide | ")
    assert f" | {last[2]:.4g} | {last[2]:.4g} | " in printed[3]


def test_published_points_are_drawn_beside_the_curves(study, runs, tmp_path, monkeypatch):
    call(study, monkeypatch, "mine", *runs)
    before = (tmp_path / "mine" / "curves.png").read_bytes()
    rows = "label,steps,mean,std,source\nnarrow,200,20,5,somebody\nnarrow,400,30,,somebody\n"
    (tmp_path / "mine" / "references.csv").write_text(rows)

    call(study, monkeypatch, "mine", *runs)

    assert (tmp_path / "mine" / "curves.png").read_bytes() != before


@pytest.mark.parametrize(
    ("words", "said"),
    [(["nowhere/at_all"], "is it a run folder"), (["RUN", "--column", "Score"], "there is no 'Score' in it")],
)
def test_what_is_no_run_or_no_column_is_said_in_a_line(study, runs, monkeypatch, words, said):
    words = [runs[0] if word == "RUN" else word for word in words]

    with pytest.raises(SystemExit, match=said):
        call(study, monkeypatch, "mine", *words)
