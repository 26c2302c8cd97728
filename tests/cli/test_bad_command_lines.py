"""Requests that cannot be met: one short message, exit code 2, nothing left on disk."""

import pytest

BAD = [
    # options
    ("algo=dqm", "algo: there is no 'dqm'; did you mean 'dqn'?"),
    ("sampler=cpus", "sampler: there is no 'cpus'; did you mean 'cpu'?"),
    ("experiment=quikstart", "did you mean 'quickstart'?"),
    ("hydra/launcher=jobib", "hydra/launcher: there is no 'jobib'"),
    ("algo=", "algo: needs a value, one of a2c, cat_dqn, ddpg, dqn, iqn"),
    ("env=null", "env: needs a value"),
    ("~sampler", "sampler: needs a value"),
    ("algo=a2c epsilon=apex", "epsilon: cannot be chosen here"),
    ("algo=a2c replay.size=100", "replay.size: algo=a2c has no replay"),
    ("algo.kind=a2c", "algo.kind: cannot be changed; choose another option with algo=..."),
    ("env={kind: gym}", "env.kind: cannot be changed"),
    # keys
    ("algo.lerning_rate=1", "algo.lerning_rate: no such key; did you mean 'algo.learning_rate'"),
    ("algo.gama=0.9", "algo.gama: no such key; did you mean 'algo.discount'?"),
    ("+algo.gama=0.9", "algo.gama: no such key; did you mean 'algo.discount'?"),
    ("alg=dqn", "alg: no such key; did you mean 'algo'?"),
    ("+bogus=1", "bogus: no such key"),
    ("choices.algo=x", "choices: no such key"),
    (
        "sampler=serial sampler.n_workers=2",
        "sampler.n_workers: no such key with sampler=serial; sampler=cpu or gpu or alternating or async has it",
    ),
    ("env.id=CartPole-v1", "env.id: no such key with env=pong; env=gym has it"),
    ("~nothing", "nothing: there is no such key to remove"),
    ("hydra.foo=1", "hydra.foo: "),
    ("seed=1 seed=2", "seed: given twice, 'seed=1' and 'seed=2'"),
    # types
    ("n_steps=ten", "n_steps: 'ten' is not an int"),
    ("n_steps=", "n_steps: '' is not an int"),
    ("algo.batch_size=32.5", "algo.batch_size: 32.5 is not an int"),
    # ranges
    ("n_steps=-5", "n_steps: -5 is not allowed, must be >= 1"),
    ("algo.discount=1.5", "algo.discount: 1.5 is not allowed, must be >= 0 and <= 1"),
    ("snapshot_gap=0", "snapshot_gap: 0 is not allowed, must be >= 1"),
    ("snapshot_mode=lst", "snapshot_mode: 'lst' is not allowed, must be one of none, last, all, gap, last_gap"),
    ("env=gym", "env.id: "),
    ("env=gym env.id=CartPol-v1", "env.id: no environment 'CartPol-v1' is registered; did you mean 'CartPole-v1'"),
    # several values
    ("seed=1,2", "seed: several values; to run one job for each write rlcli train -m seed=1,2"),
    ("algo=dqn,a2c", "algo: several values; to run one job for each write rlcli train -m algo=dqn,a2c"),
    ("-m seed=1,2 algo=dqn,ppp", "algo: there is no 'ppp'"),
    ("-m seed=1,2 algo.discount=0.9,1.5", "algo.discount: 1.5 is not allowed, must be >= 0 and <= 1 (2 of 4 jobs)"),
    ("-m seed=interval(0,1)", "seed: a sweep needs a list of values"),
    # words and flags
    ("train", "train: expected key=value"),
    ("seed = 1", "seed: expected key=value (no space around the =)"),
    ("=5", "'' is no key"),
    ("1x=5", "'1x' is no key"),
    ("name=${nope}", "name: Interpolation key 'nope' not found"),
    ("--n_steps 5", "--n_steps: unknown flag; keys are written without dashes: n_steps=..."),
    ("--seed=5", "--seed: unknown flag; keys are written without dashes: seed=5"),
    ("--resum x", "--resum: unknown flag; did you mean '--resume'"),
    ("--resume", "--resume: needs a value"),
    ("--resume nowhere.pkl", "resume: there is no file"),
    ("--resume a --resume b", "resume: given twice"),
    ("--cfg", "--cfg: needs a value"),
    ("--cfg jobs", "--cfg: 'jobs' is not allowed, must be one of job, hydra, all"),
    ("--cfg job -m", "-m: --cfg shows one job"),
    ("--cfg job algo.gama=1", "algo.gama: no such key"),
    ("--cfg job n_steps=0", "n_steps: 0 is not allowed"),
    ("--resolve", "--resolve: goes with --cfg job"),
    ("-cd nowhere", "-cd: there is no folder 'nowhere'"),
    ("-cp nowhere", "-cp: would replace rlcli's own configuration"),
    ("-cn nothing", "-cn: there is no nothing.yaml in "),
    ("hydra.searchpath=[file:///nowhere]", "hydra.searchpath: there is no folder '/nowhere'"),
    ("hydra.searchpath=/nowhere", "hydra.searchpath: '/nowhere' is not a list"),
    ("+hydra.callbacks.c._target_=x", "hydra.callbacks: Hydra calls them in a sweep (-m), not in a single run"),
    ("hydra.run.dir=x", "hydra.run.dir: rlcli makes the run folder itself; use run_dir=PATH"),
    # user code
    ("imports=[no_such_module]", "imports: cannot import 'no_such_module': ModuleNotFoundError"),
    ("imports=no_such_module", "imports: cannot import 'no_such_module'"),
    ("imports=a,b", "imports: several modules go in brackets: imports=[a,b]"),
    ("imports={a: 1}", "imports: a dict is given where a list is needed"),
]


@pytest.mark.parametrize(("line", "message"), BAD, ids=[line for line, _ in BAD])
def test_a_request_that_cannot_be_met_is_refused_in_few_words(cli, line, message):
    words = line.split(" ") if "{" not in line else [line]

    assert cli("train", *words) == 2

    assert message in cli.err
    assert all(text.startswith("rlcli train: ") for text in cli.err.splitlines())
    assert len(cli.err.splitlines()) < 15
    assert cli.configs == []
    assert cli.left_on_disk() == []


def test_all_problems_are_told_at_once(cli):
    line = "n_steps=ten +algo.gama=1 algo.discount=3 snapshot_mode=lst device=gpu eval.n_envs=0 epsilon.final=x"

    assert cli("train", *line.split()) == 2

    keys = [text.split(": ")[1] for text in cli.err.splitlines()]
    expected = ["algo.gama", "n_steps", "epsilon.final", "snapshot_mode", "eval.n_envs", "algo.discount", "device"]
    assert sorted(expected) == sorted(keys)


def test_a_value_that_is_no_number_is_not_blamed_on_its_neighbour(cli):
    """end_steps falls back to its default while the rest is checked; that default must not be compared."""
    assert cli("train", "epsilon.end_steps=ten", "epsilon.start_steps=5_000_000") == 2

    assert cli.err == "rlcli train: epsilon.end_steps: 'ten' is not an int\n"


def test_many_problems_are_cut_to_a_screen(cli):
    assert cli("train", *(f"+wrong{i}=1" for i in range(40))) == 2

    assert len(cli.err.splitlines()) == 13
    assert "and 28 more" in cli.err


@pytest.mark.parametrize(
    ("message", "argv"),
    [
        ("rlcli: unknown verb 'trian'; did you mean 'train'?\n", ["trian"]),
        (
            "rlcli: unknown verb 'xyz'; there are: train, resume, eval, play, export, verify, list (rlcli --help)\n",
            ["xyz"],
        ),
        ("rlcli: unknown verb 'algo=dqn'; the verb comes first: rlcli train ...\n", ["algo=dqn"]),
        ("rlcli: unknown verb '-m'; the verb comes first: rlcli train ...\n", ["-m"]),
        ("rlcli list: there is no group 'alogs'; did you mean 'algo'? (there are: ", ["list", "alogs"]),
        ("rlcli list: -m: no flag of this verb", ["list", "-m"]),
    ],
)
def test_a_wrong_verb_or_group_is_refused(cli, message, argv):
    assert cli(*argv) == 2

    assert cli.err.startswith(message)


def test_an_import_that_fails_names_the_line_of_the_users_file(cli, my_package):
    broken = my_package.parent / "broken.py"
    broken.write_text("x = 1\ny = x / 0\n")

    assert cli("train", "-cd", str(my_package), "imports=[broken]") == 2

    assert (
        cli.err == f"rlcli train: imports: cannot import 'broken': ZeroDivisionError: division by zero ({broken}:2)\n"
    )


def test_a_yaml_file_that_is_broken_is_named_with_the_line(cli, my_package):
    (my_package / "env" / "bad.yaml").write_text("a: 1\nb: [1,\nc: 2\n")

    assert cli("train", "-cd", str(my_package), "env=bad") == 2

    assert "bad.yaml" in cli.err
    assert "line 2" in cli.err
    assert len(cli.err.splitlines()) == 1


def test_a_yaml_file_without_a_schema_is_told_what_it_needs(cli, my_package):
    (my_package / "env" / "bare.yaml").write_text("size: 1\n")

    assert cli("train", "-cd", str(my_package), "env=bare") == 2

    assert "env: the file of env=bare names no config class; it needs defaults: [/schema/env/<kind>@_here_]" in cli.err


def test_an_unknown_key_in_a_yaml_file_is_refused(cli, my_package):
    (my_package / "experiment").mkdir()
    (my_package / "experiment" / "typo.yaml").write_text("# @package _global_\nalgo: {lerning_rate: 1e-3}\n")

    assert cli("train", "-cd", str(my_package), "experiment=typo") == 2

    assert "algo.lerning_rate: no such key; did you mean 'algo.learning_rate'" in cli.err


def test_preflight_problems_are_told_like_any_other(cli, monkeypatch):
    from rlcli.cli import build
    from rlcli.core.errors import ConfigError

    def refuse(config):
        raise ConfigError(["algo: dqn needs one Discrete action", "replay.size: too large"])

    monkeypatch.setattr(build, "preflight", refuse)

    assert cli("train") == 2

    assert cli.err == "rlcli train: algo: dqn needs one Discrete action\nrlcli train: replay.size: too large\n"


def test_full_errors_on_demand(cli, monkeypatch):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")

    assert cli("train", "algo=dqm") == 2

    assert "Traceback" in cli.err
    assert "algo: there is no 'dqm'; did you mean 'dqn'? (there are: a2c, cat_dqn, " in cli.err
