"""Requests that can be met: what reaches the run, and how its end is told."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import rlcli
from rlcli.cli import argv, compose, paths, schema
from rlcli.core.errors import ConfigError, EnvError, WorkerError

ROOT = Path(rlcli.__file__).parents[1]


def test_an_integral_float_is_taken_for_an_int(cli):
    assert cli("train", "n_steps=2e4") == 0

    assert cli.config.n_steps == 20_000
    assert cli.err == ""


def test_the_default_is_dqn_on_pong_in_one_process(cli):
    assert cli("train") == 0

    assert {"algo": "dqn", "env": "pong", "sampler": "serial", "epsilon": "linear", "replay": "uniform"}.items() <= (
        cli.config.choices.items()
    )
    assert type(cli.config.algo).__name__ == "DQNConfig"


def test_groups_values_and_experiments_reach_the_run(cli):
    config = cli.planned("experiment=quickstart", "model.mlp_hidden=[8]", "algo.discount=0.5", "env.kwargs.a=1")

    assert "cartpole" == config.choices["env"]
    assert [8] == config.model.mlp_hidden
    assert 0.5 == config.algo.discount
    assert {"a": 1} == config.env.kwargs


def test_an_experiment_may_be_written_with_a_plus_as_elsewhere_with_hydra(cli):
    assert "quickstart" == cli.planned("+experiment=quickstart").choices["experiment"]


@pytest.mark.parametrize(
    "line", ["-cd CONF seed=3 env=mine imports=[my_pkg]", "seed=3 -cd CONF env=mine imports=my_pkg"]
)
def test_flags_and_overrides_come_in_any_order(cli, my_package, line):
    assert cli("train", *line.replace("CONF", str(my_package)).split()) == 0

    assert cli.config.seed == 3
    assert cli.config.env.size == 5
    assert cli.config.imports == ["my_pkg"]
    assert cli.words == [["rlcli", "train", *line.replace("CONF", str(my_package)).split()]]


def test_modules_of_the_environment_variable_are_imported_and_recorded(cli, my_package, monkeypatch):
    monkeypatch.setenv("RLCLI_IMPORTS", "my_pkg")

    config = cli.planned("-cd", str(my_package), "env=mine", "env.size=7")

    assert 7 == config.env.size
    assert ["my_pkg"] == config.imports


def test_a_users_config_is_checked_as_any_other(cli, my_package):
    assert cli("train", "-cd", str(my_package), "imports=[my_pkg]", "env=mine", "env.size=0", "env.sise=1") == 2

    assert cli.err == (
        "rlcli train: env.sise: no such key; did you mean 'env.size'?\n"
        "rlcli train: env.size: 0 is not allowed, must be >= 1\n"
    )


def test_another_primary_config_is_taken_from_the_users_folder(cli, my_package):
    (my_package / "study.yaml").write_text("defaults:\n  - train\n  - override algo: a2c\n  - _self_\nseed: 9\n")

    assert cli("train", "-cd", str(my_package), "-cn", "study") == 0

    assert (9, "a2c") == (cli.config.seed, cli.config.choices["algo"])


def test_a_users_folder_may_come_by_hydras_searchpath(cli, my_package, monkeypatch):
    monkeypatch.syspath_prepend(my_package.parent)

    assert 5 == cli.planned(f"hydra.searchpath=[file://{my_package}]", "imports=[my_pkg]", "env=mine").env.size


@pytest.mark.parametrize("name", ["a=1,b=2.pkl", "with space.pkl", 'it\'s "q".pkl', "ünï{c}#.pkl", "back\\slash.pkl"])
def test_resume_takes_any_path_and_makes_it_absolute(cli, name):
    (cli.folder / name).touch()

    assert str(cli.folder / name) == cli.planned("--resume", name, "seed=4").resume
    assert str(cli.folder / name) == cli.planned("seed=4", f"--resume={name}").resume


@pytest.mark.parametrize("text", ["a=b", "a#b", "a,b", "{x}", "(x)", "ü", "a!b", "a&b", "[a", "it's", 'say "hi"'])
def test_the_quoting_that_a_message_shows_works(cli, text):
    assert cli("train", f"name={text}") == 2
    hint = shlex.split(cli.err.rpartition("quote it: ")[2])

    assert text == cli.planned(*hint).name


@pytest.mark.parametrize(("expected", "text"), [("a b", "a b"), ("2024_01", "2024_01"), ("007", "007"), ("a:b", "a:b")])
def test_a_text_that_needs_no_quotes_comes_as_typed(cli, expected, text):
    assert expected == cli.planned(f"name={text}").name


def test_every_option_that_list_shows_composes():
    groups = paths.groups([paths.conf_dir()])
    options = [(group, name) for group in groups for name in paths.options([paths.conf_dir()], group)]
    schema.store()

    for group, name in options:
        extra = ["env.id=CartPole-v1"] if name == "gym" else []
        (config,) = compose.plan(argv.parse([f"{group}={name}", *extra])).configs
        assert name == config.choices[group]


def test_cfg_shows_the_configuration_and_runs_nothing(cli):
    assert cli("train", "--cfg", "job", "algo=a2c", "n_steps=3e3") == 0

    assert "kind: a2c" in cli.out
    assert "n_steps: 3000" in cli.out
    assert "epsilon" not in cli.out
    assert cli.configs == []
    assert cli.left_on_disk() == []


def test_cfg_shows_a_configuration_that_would_not_run_and_then_refuses_it(cli):
    assert cli("train", "algo.gama=1", "--cfg", "job") == 2

    assert "gama: 1" in cli.out
    assert "algo.gama: no such key" in cli.err


def test_help_tells_groups_keys_and_flags(cli):
    assert cli("train", "--help") == 0

    for word in (
        "algo        a2c cat_dqn",
        "snapshot_gap=10",
        "Rows of progress.csv",
        "--resume FILE",
        "-m ",
        "eval.n_envs=4",
    ):
        assert word in cli.out


def test_help_of_a_chosen_option_tells_its_keys_with_the_values_of_its_file(cli, my_package):
    assert cli("train", "algo=dqn", "-cd", str(my_package), "env=mine", "imports=[my_pkg]", "-h") == 0

    assert "algo.learning_rate=0.0001" in cli.out
    assert "env.size=5" in cli.out
    assert "Size of the maze. [>= 1]" in cli.out


@pytest.mark.parametrize("words", [["--version"], ["train", "--version"]])
def test_version_is_rlclis(cli, words):
    assert cli(*words) == 0

    assert cli.out == f"rlcli {rlcli.__version__}\n"


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_of_the_program_tells_the_verbs(cli, words):
    assert cli(*words) == 0

    assert "train" in cli.out
    assert "list" in cli.out


@pytest.mark.parametrize("name", ["algos", "algo"])
def test_list_tells_option_description_and_file(cli, name):
    assert cli("list", name) == 0

    (line,) = [line for line in cli.out.splitlines() if line.startswith("algo=dqn")]
    assert "Deep Q-learning" in line
    assert line.endswith(str(paths.conf_dir() / "algo" / "dqn.yaml"))


def test_list_includes_a_users_folder(cli, my_package):
    assert cli("list", "-cd", str(my_package), "envs") == 0

    assert "A maze of my own" in cli.out
    assert str(my_package / "env" / "mine.yaml") in cli.out
    assert "env=pong" in cli.out


def test_list_without_a_name_lists_everything_with_a_description(cli):
    assert cli("list") == 0

    lines = [line for line in cli.out.splitlines() if line]
    assert {line.partition("=")[0] for line in lines} == set(paths.groups([paths.conf_dir()]))
    assert [line for line in lines if len(line.split("  ")) < 3 or "  /" in line.partition("  ")[0]] == []


# how a run's end is told


def test_a_run_that_fails_shows_its_traceback_and_gives_1(cli):
    cli.failures[0] = RuntimeError("marker")

    assert cli("train") == 1

    assert "RuntimeError: marker" in cli.err
    assert cli.err.endswith("rlcli train: the run failed (HYDRA_FULL_ERROR=1 shows every frame)\n")
    assert "Error executing job" not in cli.err


def test_a_workers_own_traceback_is_shown_without_the_frames_of_rlcli(cli):
    remote = (
        "Traceback (most recent call last):\n"
        f'  File "{ROOT}/rlcli/samplers/worker.py", line 5, in work\n    step()\n    ^^^^\n'
        '  File "/home/u/my_env.py", line 50, in step\n    raise ValueError("marker-7")\n'
        "ValueError: marker-7\n"
        "\nThe above exception was the direct cause of the following exception:\n\n"
        "Traceback (most recent call last):\n"
        f'  File "{ROOT}/rlcli/samplers/worker.py", line 9, in work\n    raise EnvError\n'
        "rlcli.core.errors.EnvError: env 2: marker-7\n"
    )
    cli.failures[0] = WorkerError(1, [2, 3], "ValueError: marker-7", remote)

    assert cli("train") == 1

    assert cli.err == (
        "Traceback (most recent call last):\n"
        '  File "/home/u/my_env.py", line 50, in step\n    raise ValueError("marker-7")\n'
        "ValueError: marker-7\n"
        "worker 1 (envs 2-3): ValueError: marker-7\n"
        "rlcli train: the run failed (HYDRA_FULL_ERROR=1 shows every frame)\n"
    )


def test_a_traceback_without_a_frame_of_the_user_is_shown_whole(cli):
    remote = (
        f'Traceback (most recent call last):\n  File "{ROOT}/rlcli/x.py", line 5, in work\n    step()\nKeyError: 1\n'
    )
    cli.failures[0] = WorkerError(0, [0], "KeyError: 1", remote)

    assert cli("train") == 1

    assert cli.err.startswith(remote)


def test_an_environments_own_error_is_shown_with_the_users_frames(cli):
    error = EnvError("step raised ZeroDivisionError: division by zero", 3, 50)
    try:
        1 / 0  # noqa: B018
    except ZeroDivisionError as cause:
        error.__cause__ = cause
    cli.failures[0] = error

    assert cli("train") == 1

    assert f'File "{__file__}"' in cli.err
    assert "env 3, step 50: step raised ZeroDivisionError" in cli.err
    assert "rlcli/cli/train.py" not in cli.err


def test_a_failure_goes_into_the_runs_log_when_there_is_one(cli):
    folder = cli.folder / "run"
    folder.mkdir()
    (folder / "debug.log").write_text("before\n")
    cli.failures[0] = RuntimeError("marker")
    cli.failures[0].run_dir = folder

    assert cli("train") == 1

    log = (folder / "debug.log").read_text()
    assert log.startswith("before\nTraceback")
    assert log.endswith("RuntimeError: marker\n")


def test_a_config_error_of_the_run_itself_is_told_in_a_line(cli):
    cli.failures[0] = ConfigError("resume: does not fit")

    assert cli("train") == 2

    assert cli.err == "rlcli train: resume: does not fit\n"


def test_ctrl_c_gives_130(cli):
    cli.failures[0] = KeyboardInterrupt()

    assert cli("train") == 130

    assert cli.err == "rlcli train: interrupted\n"


def test_hydras_environment_variables_are_set_for_the_run(cli, monkeypatch):
    monkeypatch.delenv("MARKER", raising=False)

    assert cli("train", "+hydra.job.env_set.MARKER=7") == 0

    assert os.environ.pop("MARKER") == "7"


# rlcli.train


def test_train_as_a_function_gives_the_run_folder(cli):
    assert rlcli.train(["seed=5", "n_steps=1e3"]) == Path("runs/seed5")

    assert (5, 1000) == (cli.config.seed, cli.config.n_steps)
    assert cli.words == [["rlcli", "train", "seed=5", "n_steps=1e3"]]


@pytest.mark.parametrize("overrides", [["algo=dqm"], ["+algo.gama=1"], ["-m"], ["seed=1,2"], ["--cfg", "job"]])
def test_train_as_a_function_raises_what_the_program_would_print(cli, overrides):
    with pytest.raises(ConfigError):
        rlcli.train(overrides)

    assert cli.configs == []


def test_train_as_a_function_raises_what_ended_the_run(cli):
    cli.failures[0] = RuntimeError("marker")

    with pytest.raises(RuntimeError, match="marker"):
        rlcli.train()


# in a process of its own: --info turns Hydra's debug log on for good


def run_python(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, cwd=cwd, timeout=60, env={"PYTHONPATH": str(ROOT)}
    )


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (["--help"], {"torch", "gymnasium", "hydra", "numpy"}),
        (["train", "--help"], {"torch", "gymnasium", "hydra", "numpy"}),
        (["list"], {"torch", "gymnasium", "hydra", "numpy"}),
        (["train", "--cfg", "job"], {"torch", "gymnasium", "ale_py", "cv2"}),
        (["train", "n_steps=ten"], {"torch"}),
    ],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(words, absent, tmp_path):
    code = f"import sys; from rlcli.cli.main import main; main({words}); print('LOADED', *sys.modules)"

    done = run_python("-c", code, cwd=tmp_path)

    loaded = set(done.stdout.rpartition("LOADED")[2].split())
    assert set() == absent & loaded
    assert "rlcli.cli.main" in loaded


def test_info_is_hydras(tmp_path):
    done = run_python("-m", "rlcli", "train", "--info", "defaults", "algo=a2c", cwd=tmp_path)

    assert 0 == done.returncode
    assert "algo/a2c" in done.stdout
    assert [] == list(tmp_path.iterdir())


def test_the_package_runs_as_a_module_and_leaves_nothing(tmp_path):
    done = run_python("-m", "rlcli", "train", "algo=dqm", cwd=tmp_path)

    assert 2 == done.returncode
    assert done.stderr.startswith("rlcli train: algo: there is no 'dqm'; did you mean 'dqn'? (there are: a2c, ")
    assert 1 == len(done.stderr.splitlines())
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["--help"], ["list"], ["train", "--help"]])
def test_who_reads_only_the_beginning_sees_no_traceback(words):
    script = f"{shlex.join([sys.executable, '-m', 'rlcli', *words])} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.parametrize(
    ("algo", "env", "fitting"),
    [
        ("dqn", "pendulum", "a2c, ppo, ddpg, td3, sac, sac_v"),
        ("td3", "cartpole", "dqn, cat_dqn, rainbow, iqn, r2d1, a2c, ppo"),
    ],
)
def test_who_took_an_algorithm_that_does_not_fit_is_told_which_do(algo, env, fitting, tmp_path):
    with pytest.raises(ConfigError) as caught:
        rlcli.train([f"algo={algo}", f"env={env}", f"run_dir={tmp_path}/run"])

    assert f"; {fitting}" in str(caught.value)
    assert not (tmp_path / "run").exists()
