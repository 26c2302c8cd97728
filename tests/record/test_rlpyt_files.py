import re
from pathlib import Path

import pytest
import torch

from rlcli.core.errors import SnapshotError
from rlcli.record.rlpyt_files import is_rlpyt, translate
from rlcli.record.rlpyt_images import IMAGE, PADDINGS, STRIDES, image_sizes
from rlcli.record.rlpyt_parts import Architecture, VectorArchitecture
from rlcli.record.snapshot import read_content
from tests.rlpyt_probes import RlpytRun

DATA = Path(__file__).parents[1] / "data" / "rlpyt"


def snapshot(agent, optimizer=None):
    return {"itr": 1, "cum_steps": 2, "agent_state_dict": agent, "optimizer_state_dict": optimizer or {}}


def tensors(*names, **shapes):
    return {name: torch.zeros(shapes.get(name, 1)) for name in names}


CONV = ("conv.conv.0.weight", "conv.conv.0.bias")
LSTM = ("lstm.weight_ih_l0", "lstm.bias_ih_l0")


TD3 = ("model", "q_model", "q2_model", "target_model", "target_q_model", "target_q2_model")
SAC_V = ("model", "q1_model", "q2_model", "v_model", "target_v_model")


@pytest.mark.parametrize(
    ("name", "agent"),
    [
        ("CatDQN", {"model": tensors(*CONV, "head.mlp.model.0.weight"), "target": {}}),
        ("CatDQN", {"model": {**tensors(*CONV), "head.advantage_bias": torch.zeros(51)}, "target": {}}),
        ("A2C/PPO", tensors("conv.conv.conv.0.weight", "pi.weight", "value.weight")),
        ("recurrent A2C/PPO", tensors("conv.conv.conv.0.weight", *LSTM, "pi.weight", "value.weight")),
        ("TD3", dict.fromkeys(TD3)),
        ("SAC (with V)", dict.fromkeys(SAC_V)),
        ("R2D1", {"model": tensors("conv.conv.conv.0.weight", *LSTM, "head.advantage_bias"), "target": {}}),
        ("MuJoCo A2C/PPO", tensors("mu.model.0.weight", "v.model.0.weight", "log_std")),
        ("recurrent MuJoCo A2C/PPO", tensors("mlp.model.0.weight", *LSTM, "head.weight")),
        ("DDPG", {key: {} for key in ("model", "q_model", "target_model", "target_q_model")}),
    ],
)
def test_networks_without_a_counterpart_are_refused_with_the_agents_name(name, agent):
    with pytest.raises(SnapshotError, match=f"^an rlpyt snapshot of a {re.escape(name)} agent .*"):
        translate(snapshot(agent))


@pytest.mark.parametrize("file", ["mujoco_ddpg", "mujoco_sac"])
def test_architecture_of_agents_for_vectors_is_read_off_the_shapes(file):
    found = translate(read_content(DATA / f"{file}.pkl")).architecture

    assert VectorArchitecture(17, 6, (16, 16), (16, 16)) == found


def test_architecture_of_a_recurrent_policy_is_read_off_the_shapes():
    found = translate(read_content(DATA / "atari_lstm.pkl")).architecture

    assert Architecture(4, (16, 32), (8, 4), 12 * 9, 16, 6, recurrent_hidden=16) == found


def test_lstm_that_does_not_take_previous_action_and_reward_is_refused():
    content = read_content(DATA / "atari_lstm.pkl")
    content["agent_state_dict"]["lstm.weight_ih_l0"] = torch.zeros(64, 16)

    with pytest.raises(SnapshotError, match="of a recurrent A2C/PPO agent whose shapes do not fit one another"):
        translate(content)


def no_hidden(agent):
    agent["model"] = tensors("mlp.model.0.weight", "mlp.model.0.bias")


def other_second_critic(agent):
    agent["q2_model"] = agent["model"]


def other_actor_outputs(agent):
    agent["model"]["mlp.model.4.weight"], agent["model"]["mlp.model.4.bias"] = torch.zeros(6, 16), torch.zeros(6)


def other_target_critic(agent):
    agent["target_q1_model"] = agent["model"]


def layer_between(agent):
    agent["q1_model"]["mlp.model.2.weight"] = torch.zeros(16, 9)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (no_hidden, "whose model is no MLP with hidden layers"),
        (other_second_critic, "whose shapes do not fit one another"),
        (other_actor_outputs, "whose shapes do not fit one another"),
        (other_target_critic, "whose target_q1_model has other shapes than its q1_model"),
        (layer_between, "the layers of q1_model do not fit one another"),
    ],
)
def test_sac_file_that_does_not_fit_together_is_refused(spoil, reason):
    content = read_content(DATA / "mujoco_sac.pkl")
    spoil(content["agent_state_dict"])

    with pytest.raises(SnapshotError, match=f"^an rlpyt snapshot of a SAC agent.*{reason}"):
        translate(content)


@pytest.mark.parametrize(
    "agent",
    [
        {"brain": tensors("w")},
        {"model": tensors("mlp.0.weight"), "target": tensors("mlp.0.weight")},
        {"model": 3, "target": 3},
        tensors("w"),
        None,
    ],
)
def test_an_agent_that_nobody_knows_is_refused(agent):
    with pytest.raises(SnapshotError, match="an rlpyt snapshot of an agent that rlcli does not know"):
        translate(snapshot(agent))


@pytest.mark.parametrize("content", [{}, [1], snapshot({}) | {"format": 1}, {"itr": 1, "cum_steps": 2}])
def test_what_is_no_snapshot_of_rlpyt_is_not_taken_for_one(content):
    assert not is_rlpyt(content)


@pytest.mark.parametrize(("file", "dueling"), [("atari_dqn", False), ("atari_dqn_dueling", True)])
def test_architecture_is_read_off_the_shapes(file, dueling):
    found = translate(read_content(DATA / f"{file}.pkl")).architecture

    assert Architecture(4, (32, 64, 64), (8, 4, 3), 12 * 9, 16, 6, dueling) == found


def test_file_of_a_torch_before_1_6_is_read_too(tmp_path):
    run = RlpytRun()
    path = run.save(tmp_path / "params.pkl", _use_new_zipfile_serialization=False)

    file = translate(read_content(path))

    assert torch.equal(run.model.head.model[2].weight, file.model["advantage.weight"])
    assert torch.equal(run.target.head.model[2].weight, file.networks["target"]["advantage.weight"])


def test_optimizer_that_names_its_parameters_by_addresses_is_read_too():
    run = RlpytRun()
    content = run.content()
    group, state = content["optimizer_state_dict"]["param_groups"][0], content["optimizer_state_dict"]["state"]
    group["params"] = [10**9 - i for i in group["params"]]
    content["optimizer_state_dict"]["state"] = {10**9 - i: {**state[i], "step": 2} for i in sorted(state, reverse=True)}

    moments = translate(content).moments[""]

    assert torch.equal(run.adam.state[run.model.head.model[2].bias]["exp_avg"], moments["advantage.bias"]["exp_avg"])
    assert 10 == len(moments)


def test_target_that_is_not_there_is_the_models_copy():
    content = RlpytRun().content()
    del content["agent_state_dict"]["target"]

    file = translate(content)

    assert torch.equal(file.model["advantage.weight"], file.networks["target"]["advantage.weight"])


def test_optimizer_other_than_adam_gives_no_moments():
    run = RlpytRun(n_updates=0)
    run.adam = torch.optim.RMSprop(run.model.parameters())
    run.step()

    assert {"": {}} == translate(run.content()).moments


def wrong_moments(content):
    content["optimizer_state_dict"]["state"][0]["exp_avg"] = torch.zeros(3)


def one_moment_less(content):
    content["optimizer_state_dict"]["param_groups"][0]["params"].pop()


def deeper_head(content):
    for network in content["agent_state_dict"].values():
        network["head.model.4.weight"] = torch.zeros(2, 2)


def other_target(content):
    content["agent_state_dict"]["target"] = {}


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (
            wrong_moments,
            "its optimizer's exp_avg of parameter 0 does not have the shape of trunk.convs.0.conv.0.weight",
        ),
        (one_moment_less, "its optimizer has 9 parameters, its model 10"),
        (deeper_head, "another network than convolutions and one dense layer: head.model.4.weight is unknown"),
        (other_target, "whose target network has other shapes"),
    ],
)
def test_file_that_does_not_fit_together_is_refused(spoil, reason):
    content = RlpytRun().content()
    spoil(content)

    with pytest.raises(SnapshotError, match=reason):
        translate(content)


def test_image_sizes_are_all_those_that_give_the_dense_layers_inputs():
    found = translate(read_content(DATA / "atari_dqn.pkl")).architecture

    sizes = set(image_sizes(found, STRIDES, PADDINGS))

    assert IMAGE in sizes
    assert {(h, w) for h, w in sizes if h == 104} == {(104, w) for w in range(76, 84)}  # 4 * 2 pixels make one cell
    assert (84, 84) not in sizes
