"""rlcli export: policies that run without rlcli and act as the agent does."""

import errno
import importlib.util
import runpy
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlcli
from rlcli.cli.export import _onnx_names
from rlcli.cli.main import main
from rlcli.cli.policy import OwnAction, greedy_policy
from rlcli.core.errors import ConfigError
from rlcli.core.tree import as_torch, index, leaves
from rlcli.envs.probe import probe
from rlcli.models.trunk import Trunk
from tests.cli.saved_probes import CARTPOLE, DQN, of, train

WITHOUT_RLCLI = "import runpy, sys; sys.modules['rlcli'] = None; runpy.run_path(sys.argv[1])"
PONG = ("env=pong", "env.image_size=36", "model.conv_hidden=8", "n_steps=16", *DQN)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("exported")


@pytest.fixture(scope="module")
def cartpole(folder):
    return train(folder / "cartpole", *CARTPOLE, *DQN, "epsilon.eval=0")


def run_of(folder, name):
    """Trained once for the module."""
    made = folder / name
    if not made.exists():
        train(made, *{"pong": PONG, "shades": (*of("Shades"), "algo=a2c"), "pairs": (*of("Pairs"), "algo=a2c")}[name])
    return made


def observations(run, n):
    """[n, ...] numpy leaves drawn from the observation space."""
    spec = probe(rlcli.load(run, device="cpu").config.env)
    spec.observation_space.seed(3)
    draws = [spec.observation_space.sample() for _ in range(n)]

    def stacked(parts, like):
        if isinstance(like, dict):
            return {key: stacked([part[key] for part in parts], like[key]) for key in like}
        return np.clip(np.stack(parts), -1e3, 1e3).astype(like.dtype)

    return stacked(draws, spec.example_obs)


def actions_of_the_agent(run, batch, n):
    agent = rlcli.load(run, device="cpu")
    return [agent.act(index(batch, i)) for i in range(n)]


def exported(folder, name):
    """The run's policy.pt2, made once for the module."""
    file = folder / f"{name}.pt2"
    if not file.exists():
        assert 0 == main(["export", str(run_of(folder, name)), "--out", str(file)])
    return file


@pytest.mark.parametrize("name", ["cartpole", "pong", "shades", "pairs"])
def test_a_pt2_policy_acts_as_the_agent_for_any_batch(name, folder, cartpole):
    run, file = run_of(folder, name), exported(folder, name)

    policy = torch.export.load(file).module()
    for n in (1, 7):
        batch = observations(run, n)
        actions, scores = policy(as_torch(batch))
        assert actions_of_the_agent(run, batch, n) == actions.tolist()
        assert (n, rlcli.load(run, device="cpu").spec.n_actions) == scores.shape
        assert torch.equal(scores.argmax(-1), actions - (3 if name == "shades" else 0))


def test_probabilities_are_the_second_output_of_a_categorical_policy(folder):
    policy = torch.export.load(exported(folder, "shades")).module()

    _, scores = policy(as_torch(observations(run_of(folder, "shades"), 5)))

    assert torch.allclose(torch.ones(5), scores.sum(-1))
    assert "probabilities" in (folder / "shades_example.py").read_text()


def test_the_example_runs_where_rlcli_cannot_be_imported(cartpole, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert 0 == main(["export", str(cartpole)])

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_RLCLI, str(tmp_path / "policy_example.py")],
        capture_output=True,
        text=True,
        cwd="/",
        timeout=60,
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith("score ")


def test_the_example_of_a_preprocessed_env_feeds_one_observation(folder, capsys):
    example = exported(folder, "pong").with_name("pong_example.py")

    runpy.run_path(str(example))

    assert "action " in capsys.readouterr().out


def onnx_session(file):
    return pytest.importorskip("onnxruntime").InferenceSession(str(file))


@pytest.mark.parametrize("name", ["cartpole", "shades"])
def test_an_onnx_policy_acts_as_the_agent_and_names_its_inputs(name, folder, cartpole, tmp_path, capsys):
    pytest.importorskip("onnxscript")
    run, file = run_of(folder, name), tmp_path / "policy.onnx"
    assert 0 == main(["export", str(run), "--out", str(file)])
    assert "" == capsys.readouterr().err

    session = onnx_session(file)
    expected = {"cartpole": {"obs"}, "shades": {"place", "kind"}}[name]
    assert expected == {i.name for i in session.get_inputs()}
    for n in (1, 7):
        batch = observations(run, n)
        feed = {path or "obs": leaf for path, leaf in leaves(batch)}
        assert actions_of_the_agent(run, batch, n) == session.run(["action"], feed)[0].tolist()
    sizes = {tuple(path.name for path in tmp_path.iterdir())}
    assert {"policy.onnx", "policy_example.py"} == set(*sizes)  # one file, whatever its size


def test_the_onnx_example_runs_without_rlcli_and_torch(cartpole, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    assert 0 == main(["export", str(cartpole), "--format", "onnx", "--out", str(tmp_path / "p.onnx")])

    code = WITHOUT_RLCLI.replace("import runpy, sys;", "import runpy, sys; sys.modules['torch'] = None;")
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "p_example.py")], capture_output=True, text=True, timeout=60
    )

    assert 0 == done.returncode, done.stderr
    assert done.stdout.startswith("score ")


def test_a_missing_extra_is_one_line_that_names_it(cartpole, tmp_path, monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxscript" else find(name))

    assert 2 == main(["export", str(cartpole), "--out", str(tmp_path / "policy.onnx")])

    message = "rlcli export: --format onnx: needs onnxscript: pip install 'rlcli[onnx]'\n"
    assert message == capsys.readouterr().err
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["policy.pt2", "policy_example.py"])
def test_a_file_that_is_there_is_kept(name, cartpole, tmp_path, capsys):
    (tmp_path / name).write_text("mine")

    assert 2 == main(["export", str(cartpole), "--out", str(tmp_path / "policy.pt2")])

    assert f"{tmp_path / name} is there already" in capsys.readouterr().err
    assert ("mine", 1) == ((tmp_path / name).read_text(), len(list(tmp_path.iterdir())))


def test_a_full_disk_leaves_nothing_half_made(cartpole, tmp_path, monkeypatch, capsys):
    def full(program, file):
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch.export, "save", full)

    assert 1 == main(["export", str(cartpole), "--out", str(tmp_path / "policy.pt2")])

    assert f"{tmp_path / 'policy.pt2'}: not written: No space left on device" in capsys.readouterr().err
    assert [] == list(tmp_path.iterdir())


def test_export_takes_a_file_and_leaves_the_run_alone(cartpole, tmp_path):
    before = sorted((path.name, path.stat().st_mtime_ns) for path in cartpole.iterdir())
    shutil.copy(cartpole / "params.pkl", tmp_path / "a.pkl")

    assert 0 == main(["export", str(tmp_path / "a.pkl"), "--out", str(tmp_path / "b.pt2")])

    assert {"a.pkl", "b.pt2", "b_example.py"} == {path.name for path in tmp_path.iterdir()}
    assert before == sorted((path.name, path.stat().st_mtime_ns) for path in cartpole.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "h5"], "--format: 'h5' is not allowed, must be one of pt2, onnx"),
        (["--out", "nowhere/a.pt2"], "--out: there is no folder"),
        (["env.a=1"], "env.a=1: export takes no keys"),
    ],
)
def test_a_request_that_cannot_be_met_is_a_line(words, message, cartpole, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    assert 2 == main(["export", str(cartpole), *words])

    assert capsys.readouterr().err.startswith(f"rlcli export: {message}")
    assert [] == list(tmp_path.iterdir())


def test_a_network_that_torch_cannot_trace_is_refused_in_a_line_that_says_why(cartpole, tmp_path, monkeypatch, capsys):
    forward = Trunk.forward
    monkeypatch.setattr(Trunk, "forward", lambda net, obs: forward(net, obs if obs.sum() > 0 else -obs))

    for name in ("a.pt2", "a.onnx"):
        assert 2 == main(["export", str(cartpole), "--out", str(tmp_path / name)])
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("rlcli export: model: torch cannot export this network: ")
        assert len(line) < 400
    assert [] == list(tmp_path.iterdir())


def test_an_error_in_a_network_is_not_taken_for_a_failure_to_trace(cartpole, tmp_path, monkeypatch):
    monkeypatch.setattr(Trunk, "forward", lambda net, obs: obs.no_such_attribute)

    with pytest.raises(AttributeError, match="no_such_attribute"):
        rlcli.export(cartpole, tmp_path / "a.pt2")


def test_an_agent_of_which_nothing_is_known_is_refused_by_name(cartpole):
    class UsersAgent:
        pass

    with pytest.raises(ConfigError, match="algo: nothing is known of how a UsersAgent chooses its best action"):
        greedy_policy(UsersAgent(), rlcli.load(cartpole, device="cpu").spec)


def test_an_observation_called_as_the_state_is_refused_for_onnx():
    with pytest.raises(ConfigError, match=r"--format onnx: state.h is the name of the recurrent state"):
        _onnx_names(None, {"obs": {"state": {"h": 1}}, "state": {"h": 1}})


@pytest.mark.parametrize(
    ("space", "action", "own"),
    [
        (spaces.Discrete(3, start=-4), torch.tensor([0, 2]), torch.tensor([-4, -2])),
        (
            spaces.MultiDiscrete([2, 3], np.int32, start=[1, -1]),
            torch.tensor([[0, 2]]),
            torch.tensor([[1, 1]], dtype=torch.int32),
        ),
        (spaces.MultiBinary(2), torch.tensor([[0, 1]]), torch.tensor([[0, 1]], dtype=torch.int8)),
        (spaces.Box(-1, 2, (1,)), torch.tensor([[-3.0], [9.0], [0.5]]), torch.tensor([[-1.0], [2.0], [0.5]])),
        (
            spaces.Box(-0.1, 0.1, (2,), np.float64),
            torch.tensor([[-3.0, 9.0]]),
            torch.tensor([[-0.1, 0.1]], dtype=torch.float64),
        ),
        (spaces.Box(0, np.inf, (1, 2)), torch.tensor([[[-3.0, 1e9]]]), torch.tensor([[[0.0, 1e9]]])),
    ],
)
def test_actions_get_the_environments_numbers_bounds_and_dtypes(space, action, own):
    got = OwnAction(space)(action)

    assert own.dtype == got.dtype
    assert torch.equal(own, got)
    assert all(space.contains(x) for x in got.numpy())


def test_parts_of_an_action_may_be_called_as_anything():
    space = spaces.Dict({"keys": spaces.Discrete(2, start=5), "a.b": spaces.Tuple([spaces.Discrete(2)])})

    got = OwnAction(space)({"keys": torch.tensor([1]), "a.b": {"0": torch.tensor([0])}})

    assert (6, 0) == (int(got["keys"]), int(got["a.b"]["0"]))
