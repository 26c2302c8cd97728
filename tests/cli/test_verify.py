"""The first iterations of a run again, and the first difference by name."""

import json
import shutil

import pytest

import rlcli
from rlcli.cli.main import main
from rlcli.record.hashes import read_hashes

CARTPOLE = ("env=cartpole", "algo=dqn", "model.mlp_hidden=[16]", "device=cpu", "torch_threads=1", "logger.ui=quiet")
LEARNS = (
    "algo.min_steps_learn=60",
    "replay.size=300",
    "sampler.batch_B=4",
    "sampler.batch_T=5",
    "sampler.max_decorrelation_steps=0",
)
"""20 steps an iteration: from the 3rd or 4th on it learns."""
N = 6


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verify") / "run"
    words = ("sampler=serial", "n_steps=200", f"hash_iterations={N}", f"run_dir={folder}")
    return rlcli.train([*CARTPOLE, *LEARNS, *words])


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


@pytest.fixture
def verify(capsys):
    """Runs the verb; gives its exit code and what it printed."""

    def call(*words):
        code = main(["verify", *map(str, words)])
        out, err = capsys.readouterr()
        return code, (out + err).strip()

    return call


def files(run):
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def change_config(run, before, after):
    """As if the run had been another."""
    text = (run / "config.yaml").read_text()
    assert text.count(before) == 1
    (run / "config.yaml").write_text(text.replace(before, after))


def change_hash(run, itr, change):
    lines = [json.loads(line) for line in (run / "hashes.jsonl").read_text().splitlines()]
    change(lines[itr - 1])
    (run / "hashes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_run_is_the_same_again_and_nothing_in_its_folder_changes(verify, run):
    before = files(run)

    assert (0, f"the same: {N} iterations") == verify(run)
    assert before == files(run)


def test_as_many_iterations_as_are_asked_for_are_compared(verify, run):
    change_hash(run, 4, lambda line: line.update(weights=1))

    assert (0, "the same: 3 iterations") == verify(run, "--iterations", 3)
    assert 1 == verify(run, "--iterations", 4)[0]


@pytest.mark.parametrize(
    "override", ["sampler=cpu", "sampler=gpu", "sampler=alternating"], ids=lambda text: text.partition("=")[2]
)
def test_another_sampler_gives_the_same(verify, run, override):
    words = ("sampler.n_workers=2", "sampler.start_method=fork", "--iterations", 3)

    code, said = verify(run, override, *words)

    assert (0, "the same: 3 iterations") == (code, said.splitlines()[-1])
    assert "workers: 2" in said


def test_a_run_that_was_resumed_verifies_to_where_it_was_resumed(verify, tmp_path):
    words = ("sampler=serial", "n_steps=60", f"hash_iterations={N}", f"run_dir={tmp_path / 'run'}")
    run = rlcli.train([*CARTPOLE, *LEARNS, *words])
    n_before = len(read_hashes(run))
    rlcli.resume(run, ["n_steps=200", "algo.learning_rate=0.5"])

    code, said = verify(run)

    assert (0, f"the same: {n_before} iterations") == (code, said.splitlines()[-1])
    assert 0 < n_before < N == len(read_hashes(run))


# differences


def test_another_seed_differs_in_the_first_iteration_environment_and_tensor(verify, run):
    change_config(run, "seed: 0\n", "seed: 1\n")

    assert (1, "differs in iteration 1: env 0, obs") == verify(run)


def test_another_environment_differs_as_soon_as_it_shows(verify, run):
    change_config(run, "max_episode_steps: null", "max_episode_steps: 7")

    code, said = verify(run)

    assert 1 == code
    assert said.startswith("differs in iteration 2: env 0, ")


def test_another_learning_rate_differs_in_the_weights_of_the_first_update(verify, run):
    weights = [entry.weights for entry in read_hashes(run)]
    first_update = next(i for i, value in enumerate(weights) if value != weights[0]) + 1

    assert (1, f"differs in iteration {first_update}: the weights after the update") == verify(
        run, "algo.learning_rate=0.01"
    )
    assert 1 < first_update < N


@pytest.mark.parametrize(("env_id", "path"), [(0, "reward"), (2, "terminated"), (3, "action")])
def test_one_tensor_of_one_environment_is_named(verify, run, env_id, path):
    def change(line):
        assert path in line["samples"], sorted(line["samples"])
        line["samples"][path][env_id] = "0" * 12

    change_hash(run, 5, change)

    assert (1, f"differs in iteration 5: env {env_id}, {path}") == verify(run)


def test_other_versions_than_the_runs_are_told_with_a_difference_and_only_then(verify, run):
    path = run / "versions.json"
    known = json.loads(path.read_text())
    path.write_text(json.dumps({**known, "torch": "0.4"}))

    assert (0, f"the same: {N} iterations") == verify(run)
    change_hash(run, 1, lambda line: line.update(weights=1))
    code, said = verify(run)
    assert 1 == code
    assert ["differs in iteration 1: the weights after the update", f"  torch: 0.4 then, {known['torch']} now"] == (
        said.splitlines()
    )


# what cannot be verified


def test_async_is_refused(verify, run):
    code, said = verify(run, "sampler=async")

    assert 2 == code
    assert "sampler: which weights act in async mode hangs on timing" in said


@pytest.mark.parametrize("n", [N + 1, 1000])
def test_more_iterations_than_have_hashes_are_refused(verify, run, n):
    code, said = verify(run, "--iterations", n)

    assert 2 == code
    assert f"--iterations: {n} is not allowed, the run has hashes of {N}" in said


def test_a_run_without_hashes_is_refused_with_the_key(verify, run):
    (run / "hashes.jsonl").unlink()

    code, said = verify(run)

    assert 2 == code
    assert "has no hashes (hash_iterations)" in said


@pytest.mark.parametrize("words", [("--iterations", "0"), ("--iterations", "x"), ("--iteration", "3")])
def test_a_wrong_flag_is_refused(verify, run, words):
    code, said = verify(run, *words)

    assert 2 == code
    assert "--iteration" in said


def test_a_locked_key_is_refused_by_name(verify, run):
    code, said = verify(run, "seed=3")

    assert 2 == code
    assert "seed: 0 -> 3 is locked" in said


def test_no_such_run_is_refused(verify, tmp_path):
    code, said = verify(tmp_path / "none")

    assert 2 == code
    assert "there is no" in said
