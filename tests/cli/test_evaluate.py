"""rlcli eval and rlcli.evaluate."""

import csv
import os
import shutil

import pytest

import rlcli
from rlcli.cli.main import main
from rlcli.core.errors import ConfigError
from rlcli.record.evaluations import COLUMNS
from tests.cli.saved_probes import CARTPOLE, DQN, of, train

FAST = ("algo.learning_rate=1e-2", "algo.replay_ratio=32")  # so that snapshots play differently
EVAL = ("eval.interval_steps=100", "eval.n_envs=4", "eval.n_episodes=8")


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("evaluated") / "runs"


@pytest.fixture(scope="module")
def cartpole(runs):
    return train(runs / "cartpole" / "1", *CARTPOLE, *DQN, *EVAL, *FAST, "snapshot_mode=last_gap", "snapshot_gap=1")


@pytest.fixture
def run(cartpole, tmp_path):
    """A copy, without evaluations.csv."""
    return shutil.copytree(cartpole, tmp_path / "run", ignore=shutil.ignore_patterns("evaluations.csv"))


@pytest.fixture(scope="module")
def parity(runs):
    return train(runs / "parity" / "1", *of("Parity"), "algo=a2c", "n_steps=20")


@pytest.fixture(scope="module")
def shades(runs):
    return train(runs / "shades" / "1", *of("Shades"), *DQN, "n_steps=20")


@pytest.fixture(scope="module")
def endless(runs):
    return train(runs / "endless" / "1", *of("Endless"), "algo=a2c", "n_steps=20")


def results(row):
    """The columns of an evaluation that training's progress.csv has too, times aside."""
    names = [name for name in row if name.startswith("Eval") and "Time" not in name]
    return {name: float(row[name]) for name in names if name in COLUMNS and name != "EvalEpsilon"}


@pytest.mark.parametrize("sampler", ["serial", "cpu sampler.n_workers=2", "gpu"])
def test_the_numbers_are_those_of_trainings_evaluation_on_every_sampler(run, sampler):
    code = main(["eval", str(run), *f"sampler={sampler}".split()])

    assert 0 == code
    ours, trainings = rows(run / "evaluations.csv")[-1], rows(run / "progress.csv")[-1]
    assert 18 == len(results(ours))
    assert results(trainings) == results(ours)


def test_an_atari_game_gets_trainings_numbers(tmp_path):
    game = ["env=atari", "env.game=carnival", "env.max_frames=400", "env.sticky=0.25", "env.image_size=36"]
    small = [
        *DQN,
        "epsilon.eval=0.9",
        "model.conv_hidden=8",
        "n_steps=16",
        "eval.interval_steps=16",
        "eval.n_episodes=2",
    ]
    run = train(tmp_path / "run", *game, *small)

    rlcli.evaluate(run)
    another = rlcli.evaluate(run, seed=1)

    ours = results(rows(run / "evaluations.csv")[0])
    assert results(rows(run / "progress.csv")[-1]) == ours
    assert another.mean != ours["EvalGameScoreAverage"]


@pytest.mark.parametrize(("n_envs", "n_episodes"), [(1, 20), (8, 16), (8, 20)])
def test_short_and_long_games_by_turns_have_their_true_mean(parity, n_envs, n_episodes):
    result = rlcli.evaluate(parity, episodes=n_episodes, overrides=[f"eval.n_envs={n_envs}"])

    assert (n_episodes, 100.0, 50.0) == (result.n, result.mean, result.std)


def test_an_endless_env_is_capped_and_told(endless, capsys):
    assert 0 == main(["eval", str(endless), "eval.max_steps=80"])

    out = capsys.readouterr().out
    assert "params.pkl: 0 finished, 4 cut by eval.max_steps=80, mean partial score 20.00, 16 not begun" in out
    (row,) = rows(endless / "evaluations.csv")
    assert ("0", "4", "nan", "20.0") == tuple(
        row[name] for name in ("EvalEpisodes", "EvalEpisodesCut", "EvalGameScoreAverage", "CutScoreAverage")
    )


def test_more_episodes_than_in_training_may_take_more_steps_in_proportion(endless):
    row = rlcli.evaluate(endless, episodes=40, overrides=["eval.n_envs=1", "eval.max_steps=9"]).row
    assert 9 == row["MaxSteps"]

    assert 400_000 == rlcli.evaluate(endless, episodes=40, overrides=["env.max_episode_steps=5"]).row["MaxSteps"]


def test_training_files_are_not_touched(run):
    def state():
        files = [path for path in run.rglob("*") if path.name != "evaluations.csv"]
        return {path: (path.stat().st_mtime_ns, path.is_dir() or path.read_bytes()) for path in files}

    before = state()
    assert 0 == main(["eval", str(run), "--all"])

    assert before == state()


def test_all_takes_every_kept_snapshot_in_order_and_params_pkl_only_if_newer(run, capsys):
    kept = sorted(int(path.stem.removeprefix("itr_")) for path in run.glob("itr_*.pkl"))

    assert 0 == main(["eval", str(run), "--all"])
    ours, trainings = rows(run / "evaluations.csv"), rows(run / "progress.csv")[1:]
    assert [f"itr_{n}.pkl" for n in kept] == [row["File"] for row in ours]
    assert [results(row) for row in trainings] == [results(row) for row in ours]
    assert 1 < len({row["EvalGameScoreAverage"] for row in ours})

    (run / f"itr_{kept[-1]}.pkl").unlink()
    assert 0 == main(["eval", str(run), "--all", "--episodes", "4"])
    assert "params.pkl" == rows(run / "evaluations.csv")[-1]["File"]


def test_a_broken_file_among_all_is_told_and_the_others_are_done(run, capsys):
    kept = sorted(run.glob("itr_*.pkl"))
    kept[0].write_bytes(kept[0].read_bytes()[:500])

    assert 1 == main(["eval", str(run), "--all"])

    assert capsys.readouterr().err.startswith(f"rlcli eval: {kept[0]}: damaged")
    assert {path.name for path in kept[1:]} == {row["File"] for row in rows(run / "evaluations.csv")}


def test_the_row_holds_the_protocol(run):
    assert 0 == main(
        ["eval", str(run), "--episodes", "5", "--seed", "9", "epsilon.eval=0.5", "env.max_episode_steps=7"]
    )

    (row,) = rows(run / "evaluations.csv")
    assert tuple(row) == COLUMNS
    expected = {
        "File": "params.pkl",
        "Episodes": "5",
        "EvalEpisodes": "5",
        "EvalEpisodesCut": "0",
        "EvalGameScoreMax": "7.0",
        "EvalSteps": "35",
        "Seed": "9",
        "EvalEpsilon": "0.5",
        "Sampler": "serial",
        "Env": "cartpole",
        "Overrides": "epsilon.eval=0.5 env.max_episode_steps=7",
        "Version": rlcli.__version__,
    }
    assert expected == {name: row[name] for name in expected}


def test_the_seed_is_the_runs_and_another_gives_other_games(run):
    scores = [rlcli.evaluate(run, seed=seed).scores for seed in (None, 0, 1)]

    assert scores[0] == scores[1] != scores[2]


def test_rows_are_appended_below_one_header_also_after_a_line_cut_off(run):
    rlcli.evaluate(run, episodes=1)
    with (run / "evaluations.csv").open("a") as file:
        file.write("2026-11-30T07:41:50,params.p")
    rlcli.evaluate(run, episodes=2)

    assert ["1", None, "2"] == [row["Episodes"] for row in rows(run / "evaluations.csv")]


def test_the_function_does_what_the_verb_does(run):
    result = rlcli.evaluate(run, episodes=6, seed=4, overrides=["eval.n_envs=2"])
    assert 0 == main(["eval", str(run), "--episodes", "6", "--seed", "4", "eval.n_envs=2"])

    first, second = rows(run / "evaluations.csv")
    assert results(first) == results(second)
    assert (6, float(first["EvalGameScoreAverage"])) == (len(result.scores), result.mean)


def test_a_file_outside_a_run_is_written_down_only_where_out_says(run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = shutil.copy(run / "params.pkl", tmp_path / "mine.pkl")

    assert 0 == main(["eval", "mine.pkl", "--episodes", "1"])
    assert "written nowhere" in capsys.readouterr().out
    assert 0 == main(["eval", "mine.pkl", "--episodes", "1", "--out", "table.csv"])

    assert {"run", "mine.pkl", "table.csv"} == set(os.listdir())  # noqa: PTH208
    assert file.name == rows(tmp_path / "table.csv")[0]["File"]


def test_a_file_that_is_no_table_of_evaluations_is_refused_before_anything_is_played(run, tmp_path, capsys):
    table = tmp_path / "table.csv"
    table.write_text("a,b\n1,2\n")

    assert 2 == main(["eval", str(run), "--out", str(table)])

    assert f"{table}: has other columns" in capsys.readouterr().err
    assert "a,b\n1,2\n" == table.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["algo.learning_rate=1"], "algo.learning_rate: belongs to training"),
        (["n_steps=1"], "n_steps: belongs to training"),
        (["replay.size=5"], "replay.size: belongs to training"),
        (["epsilon.final=0"], "epsilon.final: belongs to training"),
        (["evel.n_envs=3"], "evel.n_envs: no such key; did you mean 'eval.n_envs'"),
        (["seed=1"], "seed: write --seed"),
        (["sampler=alternating"], "sampler: 'alternating' is not allowed, must be one of serial, cpu, gpu"),
        (["sampler.batch_B=3"], "sampler.batch_B: is set by the evaluation itself"),
        (["sampler.n_workers=3"], "sampler.n_workers: no such key with sampler=serial"),
        (["eval.n_envs=0"], "eval.n_envs: 0 is not allowed, must be >= 1"),
        (["env.idd=3"], "env.idd: no such key"),
        (["eval.n_envs=1,2"], "eval.n_envs: several values"),
        (["--episodes", "0"], "--episodes: 0 is not allowed, must be >= 1"),
        (["--episodes", "many"], "--episodes: 'many' is not an int"),
        (["--episodes"], "--episodes: needs a value"),
        (["--episods", "3"], "--episods: unknown flag; did you mean '--episodes'?"),
        (["--episodes", "3", "eval.n_episodes=3"], "eval.n_episodes: given twice"),
        (["--all", "--best"], "--all: goes not with --best"),
        (["--itr", "3"], "--itr: RUN has no itr_3.pkl; there are: "),
        (["another"], "'another': expected key=value or a flag"),
    ],
)
def test_a_request_that_cannot_be_met_is_a_line_and_leaves_nothing(words, message, run, capsys):
    before = sorted(run.iterdir())

    assert 2 == main(["eval", str(run), *words])

    assert capsys.readouterr().err.startswith(f"rlcli eval: {message.replace('RUN', str(run))}")
    assert before == sorted(run.iterdir())


def test_all_problems_of_a_request_are_told_at_once(run, capsys):
    assert 2 == main(["eval", str(run), "algo.discount=1", "n_steps=3"])

    assert 2 == len(capsys.readouterr().err.splitlines())


def test_a_change_of_the_env_that_changes_its_spaces_is_refused(shades):
    with pytest.raises(ConfigError, match=r"env: the changed keys give the observation_space .*Discrete"):
        rlcli.evaluate(shades, overrides=["env.kwargs.n_kinds=5"])
    assert 5 == rlcli.evaluate(shades, episodes=1, overrides=["env.kwargs.n_steps=5"]).row["EvalSteps"]


def test_ctrl_c_ends_an_evaluation_and_writes_nothing_down(shades, tmp_path, capsys):
    table = tmp_path / "table.csv"

    assert 130 == main(["eval", str(shades), "--out", str(table), "env.kwargs.interrupt_at=5"])

    assert "rlcli eval: interrupted\n" == capsys.readouterr().err
    assert not table.exists()


def test_a_run_is_found_by_its_name_or_as_the_last(cartpole, runs, monkeypatch, capsys):
    monkeypatch.chdir(runs.parent)

    assert 0 == main(["eval", "cartpole", "--episodes", "1"])
    assert str(cartpole) in capsys.readouterr().out
    os.utime(cartpole / "debug.log")
    assert 0 == main(["eval", "last", "--episodes", "1"])
    assert str(cartpole) in capsys.readouterr().out


def test_help_and_no_run_at_all(capsys):
    assert 0 == main(["eval", "--help"])
    assert "--episodes N" in capsys.readouterr().out
    assert 2 == main(["eval"])
    assert "needs a run or a snapshot file" in capsys.readouterr().err
