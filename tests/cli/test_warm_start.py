"""Starting from a file: what is loaded, what is refused."""

import contextlib
import os
import pickle

import pytest
import torch

from rlcli.algos.a2c_config import A2CConfig
from rlcli.algos.dqn_config import DQNConfig
from rlcli.cli.config import RunConfig
from rlcli.cli.main import main
from rlcli.cli.warm_start import adapted, start_from
from rlcli.core.errors import ConfigError
from rlcli.models.config import AutoModelConfig
from tests.rlpyt_probes import RlpytRun
from tests.warm_start_probes import changed, config_for, in_vectors, learn, of_shape, save, weights


def test_whole_start_takes_model_target_and_moments(tmp_path):
    agent, algo = in_vectors()
    learn(agent, algo, torch.ones(2, 4))  # the target network is another from here on
    path = save(tmp_path / "params.pkl", agent, algo)
    new_agent, new_algo = in_vectors()

    (line,) = start_from(path, new_agent, new_algo, "cpu")

    assert set() == changed(weights(agent.model), new_agent.model) | changed(
        weights(algo.rule.target.module), new_algo.rule.target.module
    )
    assert changed(weights(agent.model), new_algo.rule.target.module) != set()
    assert 1 == float(new_algo.optimizer_state_dict()["state"][0]["step"])
    assert line == (
        f"started from {path} (algo=dqn, env=gym, iteration 3, 60 steps): weights and optimizer state; step counters, "
        "schedules and replay begin anew"
    )


def test_adam_of_convolutions_goes_on_as_if_there_had_been_no_file(tmp_path):
    config, shape = RunConfig(algo=DQNConfig(clip_grad_norm=None), model=AutoModelConfig(conv_hidden=8)), (4, 40, 40)
    obs = torch.randint(0, 256, (2, *shape), dtype=torch.uint8)
    agent, algo = of_shape(config, shape)
    learn(agent, algo, obs)
    new_agent, new_algo = of_shape(config, shape)
    start_from(save(tmp_path / "params.pkl", agent, algo), new_agent, new_algo, "cpu")

    for parts in ((agent, algo), (new_agent, new_algo)):
        learn(*parts, obs)

    assert set() == changed(weights(agent.model), new_agent.model)


def test_optimizer_can_be_left_out(tmp_path):
    agent, algo = in_vectors()
    learn(agent, algo, torch.ones(2, 4))
    path = save(tmp_path / "params.pkl", agent, algo)
    new_agent, new_algo = in_vectors()

    start_from(path, new_agent, new_algo, "cpu", optimizer=False)

    assert {} == new_algo.optimizer_state_dict()["state"]
    assert set() == changed(weights(agent.model), new_agent.model)


def test_target_network_that_the_file_lacks_becomes_the_models_copy(tmp_path):
    agent, algo = in_vectors()
    learn(agent, algo, torch.ones(2, 4))
    path = save(tmp_path / "params.pkl", agent, algo, algo_state_dict={"n_updates": 4})
    new_agent, new_algo = in_vectors()

    start_from(path, new_agent, new_algo, "cpu")

    assert set() == changed(weights(agent.model), new_algo.rule.target.module)
    assert 0 == new_algo.n_updates


def test_optimizer_state_of_other_parameters_is_refused_in_one_line(tmp_path):
    agent, algo = in_vectors()
    learn(agent, algo, torch.ones(2, 4))
    spoiled = algo.optimizer_state_dict()
    spoiled["state"][0]["exp_avg"] = torch.zeros(5)
    path = save(tmp_path / "params.pkl", agent, algo, optimizer_state_dict=spoiled)

    with pytest.raises(ConfigError, match=r"its optimizer state does not fit: exp_avg has .*; resume_optimizer=false"):
        start_from(path, *in_vectors(), "cpu")


def test_file_that_does_not_fit_names_the_differences_and_the_way_out(tmp_path):
    path = save(tmp_path / "params.pkl", *in_vectors(2))

    with pytest.raises(ConfigError) as caught:
        start_from(path, *in_vectors(3), "cpu")

    first, *_, last = caught.value.problems
    assert f"resume: {path} does not fit this run (made by algo=dqn, env=gym):" == first
    assert "  agent.model.advantage.weight: file has (2, 8), this run needs (3, 8)" in caught.value.problems
    assert last.startswith("  resume_keys=[trunk.*] takes")


@pytest.mark.parametrize("with_target", [True, False])
def test_resume_keys_take_what_matches_and_leave_the_rest_as_it_was(tmp_path, with_target):
    agent, algo = in_vectors(2)
    learn(agent, algo, torch.ones(2, 4))
    path = save(tmp_path / "params.pkl", agent, algo, **({} if with_target else {"algo_state_dict": {}}))
    new_agent, new_algo = in_vectors(3)
    with torch.no_grad():
        for value, network in ((9.0, new_agent.model), (7.0, new_algo.rule.target.module)):
            for parameter in network.parameters():
                parameter.fill_(value)
    fresh, fresh_target = weights(new_agent.model), weights(new_algo.rule.target.module)
    trunk = {"trunk.mlp.0.weight", "trunk.mlp.0.bias"}

    lines = start_from(path, new_agent, new_algo, "cpu", keys=["trunk.*"])

    assert trunk == changed(fresh, new_agent.model) == changed(fresh_target, new_algo.rule.target.module)
    source = weights(algo.rule.target.module if with_target else agent.model)
    assert all(torch.equal(weights(agent.model)[name], new_agent.model.state_dict()[name]) for name in trunk)
    assert all(torch.equal(source[name], new_algo.rule.target.module.state_dict()[name]) for name in trunk)
    assert {} == new_algo.optimizer_state_dict()["state"]
    assert lines[0].endswith("60 steps): 2 of 4 tensors of the model (resume_keys=['trunk.*'])")
    assert lines[1:] == [
        "left as they were initialised: advantage.weight, advantage.bias",
        "optimizer, step counters, schedules and replay begin anew",
    ]


def test_trunk_goes_from_one_algorithm_to_another(tmp_path):
    agent, algo = in_vectors(2, A2CConfig())
    path = save(tmp_path / "params.pkl", agent, algo)
    with torch.no_grad():
        agent.model.trunk.mlp[0].weight.add_(1.0)
    path = save(tmp_path / "params.pkl", agent, algo)
    new_agent, new_algo = in_vectors(2)

    lines = start_from(path, new_agent, new_algo, "cpu", keys=["trunk.*"])

    for network in (new_agent.model, new_algo.rule.target.module):
        assert torch.equal(agent.model.trunk.mlp[0].weight, network.trunk.mlp[0].weight)
    assert "in the file, but not in this run's network: policy.weight, policy.bias, value.weight, value.bias" in lines


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (["trunks.*"], "resume_keys: 'trunks.*' matches no parameter of this run; did you mean 'trunk.*'"),
        (["trunk.mlp.0.weigth"], "no parameter of this run; did you mean 'trunk.mlp.0.weight'"),
        (["*", "nope"], "resume_keys: 'nope' matches no parameter of this run"),
        (["advantage.*"], "resume_keys: advantage.weight: file has (2, 8), this run needs (3, 8)"),
        ([], "resume_keys: [] takes nothing"),
    ],
)
def test_resume_keys_that_match_nothing_or_another_shape_are_refused(tmp_path, keys, line):
    path = save(tmp_path / "params.pkl", *in_vectors(2))
    agent, algo = in_vectors(3)
    before = weights(agent.model)

    with pytest.raises(ConfigError) as caught:
        start_from(path, agent, algo, "cpu", keys=keys)

    assert line in str(caught.value)
    assert set() == changed(before, agent.model)


def test_pattern_that_matches_only_on_one_side_says_on_which(tmp_path):
    path = save(tmp_path / "params.pkl", *in_vectors(2, A2CConfig()))

    with pytest.raises(ConfigError, match=rf"'advantage.\*' matches no parameter of {path}"):
        start_from(path, *in_vectors(2), "cpu", keys=["advantage.*"])


# Files that are refused


class Canary:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def malicious(path, how):
    content = {"itr": 1, "cum_steps": 2, "agent_state_dict": Canary(path.parent / "owned"), "optimizer_state_dict": {}}
    if how == "pickle":
        path.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=how == "torch")


def cut(path, how):
    RlpytRun().save(path, _use_new_zipfile_serialization=how == "torch")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("spoil", "how", "reason"),
    [
        (malicious, "pickle", "not a snapshot"),
        (malicious, "torch", "reading it could run code"),
        (malicious, "old torch", "reading it could run code"),
        (cut, "torch", "damaged, cut short or not a snapshot"),
        (cut, "old torch", "cannot be read"),
        (lambda path, _: torch.save({"format": 99}, path), "", "has format 99, this rlcli reads format 1"),
        (lambda path, _: path.write_text("a,b\n"), "", "not a snapshot"),
    ],
)
def test_file_that_is_no_good_is_one_line_exit_2_and_runs_nothing(tmp_path, monkeypatch, capsys, spoil, how, reason):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "params.pkl"
    spoil(path, how)

    assert main(["train", "env=cartpole", "--resume", "params.pkl"]) == 2

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"rlcli train: resume: {path}: ")
    assert reason in line
    assert [path] == list(tmp_path.iterdir())
    for use in (lambda: adapted(config_for(path), set()), lambda: start_from(str(path), *in_vectors(), "cpu")):
        with contextlib.suppress(ConfigError):
            use()
            raise AssertionError
    assert [path] == list(tmp_path.iterdir())
