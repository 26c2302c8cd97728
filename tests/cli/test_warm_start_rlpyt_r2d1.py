"""Starting from a file of rlpyt's R2D1."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlcli.agents.epsilon_config import ConstantEpsilon
from rlcli.algos.dqn_config import DQNConfig
from rlcli.algos.r2d1_config import R2D1Config
from rlcli.cli.warm_start import adapted, start_from
from rlcli.core.context import BuildContext
from rlcli.core.errors import ConfigError, SnapshotError
from rlcli.core.spec import EnvSpec
from rlcli.envs.config import AtariConfig
from rlcli.models.config import AutoModelConfig
from rlcli.record.rlpyt_files import translate
from rlcli.record.rlpyt_parts import Architecture
from rlcli.replay.config import SequenceReplayConfig
from tests.warm_start_probes import DATA, config_for

EXACT = {"atol": 1e-5, "rtol": 0}


def load(name):
    return torch.load(DATA / f"{name}.pkl", weights_only=True)


def run_of(path, algo=None, **model):
    choices = {"algo": "r2d1" if algo is None else "dqn", "model": "auto"}
    config = config_for(path, algo=algo or R2D1Config(), model=AutoModelConfig(**model), choices=choices)
    return adapted(config, set())


def built(config, n_actions=6):
    images = spaces.Box(0, 255, (4, 104, 80), np.uint8)
    numbers = {n: spaces.Box(-np.inf, np.inf, (n,), np.float32) for n in (n_actions, 1)}
    parts = [("obs", images), ("previous_action", numbers[n_actions]), ("previous_reward", numbers[1])]
    space, action = spaces.Dict(parts), spaces.Discrete(n_actions)
    context = BuildContext(
        spec=EnvSpec(space, action, space.sample(), action.sample(), frame_stack=1),
        seed=0,
        n_steps=1000,
        n_envs=1,
        device="cpu",
        model=config.model,
        epsilon=ConstantEpsilon(0.1),
        replay=SequenceReplayConfig(size=20, burn_in_T=1, train_T=2, state_interval=1),
    )
    agent = config.algo.build_agent(context)
    return agent, config.algo.build(context, agent)


def values(model, n_steps=3):
    """Of each step of the file's inputs, from the zero state."""
    inputs = load("atari_inputs")
    obs = {
        "obs": inputs["observation"].expand(n_steps, *inputs["observation"].shape),
        "previous_action": inputs["prev_action_onehot"].expand(n_steps, 2, 6),
        "previous_reward": inputs["prev_reward"][:, None].expand(n_steps, 2, 1),
    }
    with torch.no_grad():
        return model.unroll(obs, model.initial_state(2))[0]


def test_r2d1_gives_in_each_step_the_values_that_rlpyt_gave():
    config, lines = run_of(DATA / "atari_r2d1.pkl")
    agent, algo = built(config)

    told = start_from(config.resume, agent, algo, "cpu")

    torch.testing.assert_close(load("atari_r2d1.expected")["q"], values(agent.model), **EXACT)
    target = load("atari_r2d1")["agent_state_dict"]["target"]
    assert torch.equal(target["head.value.model.2.weight"], algo.state_dict()["target"]["head.value.2.weight"])
    assert AtariConfig(image_size=104, image_width=80) == config.env
    for word in (
        "model.conv_hidden=16",
        "model.recurrent_hidden=16",
        "algo.head_hidden=[16]",
        "conv_paddings=[0, 1, 1]",
    ):
        assert word in lines[0]
    assert "rlpyt's R2D1 agent" in told[0]


def test_target_network_of_r2d1_is_the_files(tmp_path):
    content = load("atari_r2d1")
    content["agent_state_dict"]["target"] = {k: v + 0.01 for k, v in content["agent_state_dict"]["model"].items()}
    torch.save(content, tmp_path / "params.pkl")
    config, _ = run_of(tmp_path / "params.pkl")
    agent, algo = built(config)

    start_from(config.resume, agent, algo, "cpu")

    target = algo.state_dict()["target"]
    assert list(target) == list(agent.state_dict()["model"])
    for name, value in agent.state_dict()["model"].items():
        torch.testing.assert_close(value + 0.01, target[name])


def without_streams():
    """The file's network with one stack of layers as its head; rlpyt names them as its MLPs."""
    content = load("atari_r2d1")
    for network in content["agent_state_dict"].values():
        for name in [k for k in network if k.startswith("head.")]:
            del network[name]
        shapes = {"head.model.0.weight": (9, 16), "head.model.0.bias": (9,)}
        shapes |= {"head.model.2.weight": (6, 9), "head.model.2.bias": (6,)}
        network |= {name: torch.randn(shape) for name, shape in shapes.items()}
    return content


def test_r2d1_without_streams_gives_the_values_of_its_formula(tmp_path):
    content = without_streams()
    torch.save(content, tmp_path / "params.pkl")
    config, _ = run_of(tmp_path / "params.pkl")
    agent, algo = built(config)

    start_from(config.resume, agent, algo, "cpu")

    head, features = content["agent_state_dict"]["model"], []
    agent.model.head.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0].clone()))
    have = values(agent.model, 1)
    hidden = torch.relu(features[0] @ head["head.model.0.weight"].T + head["head.model.0.bias"])
    torch.testing.assert_close(hidden @ head["head.model.2.weight"].T + head["head.model.2.bias"], have[0], **EXACT)
    assert (False, [9]) == (config.algo.dueling, config.algo.head_hidden)


def test_adams_state_of_r2d1_finds_its_parameters(tmp_path):
    content = load("atari_r2d1")
    weights = content["agent_state_dict"]["model"].values()
    state = {i: {"step": 3, "exp_avg": w + 1, "exp_avg_sq": w.square()} for i, w in enumerate(weights)}
    content["optimizer_state_dict"] = {"state": state, "param_groups": [{"params": list(state)}]}
    torch.save(content, tmp_path / "params.pkl")
    config, _ = run_of(tmp_path / "params.pkl")
    agent, algo = built(config)

    (line,) = start_from(config.resume, agent, algo, "cpu")

    moments = algo.optimizer_state_dict()["state"]
    for i, parameter in enumerate(agent.model.parameters()):
        assert torch.equal(parameter + 1, moments[i]["exp_avg"])
    assert "weights and optimizer state; step counters" in line


def test_architecture_of_r2d1_is_read_off_the_shapes():
    found = translate(load("atari_r2d1")).architecture

    wanted = Architecture(4, (32, 64, 64), (8, 4, 3), 12 * 9, 16, 6, head_hidden=16, dueling=True, recurrent_hidden=16)
    assert wanted == found


def test_r2d1_needs_its_algorithm():
    with pytest.raises(ConfigError, match=r"rlpyt's R2D1 agent: it needs algo=r2d1, not algo=dqn"):
        run_of(DATA / "atari_r2d1.pkl", DQNConfig())


def test_r2d1_for_other_actions_is_refused():
    config, _ = run_of(DATA / "atari_r2d1.pkl")

    with pytest.raises(ConfigError, match=r"is for 6 actions, this run's env has 4"):
        start_from(config.resume, *built(config, 4), "cpu")


def second_layer(network):
    network["lstm.weight_ih_l1"] = torch.zeros(64, 16)


def narrow_stream(network):
    network["head.value.model.0.weight"] = torch.zeros(16, 15)


def no_previous(network):
    network["lstm.weight_ih_l0"] = torch.zeros(64, 16)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (second_layer, "another network than .* one LSTM and a head of two layers: lstm.weight_ih_l1 is unknown"),
        (narrow_stream, "whose shapes do not fit one another"),
        (no_previous, "whose shapes do not fit one another"),
    ],
)
def test_r2d1_file_that_does_not_fit_together_is_refused(spoil, reason):
    content = load("atari_r2d1")
    for network in content["agent_state_dict"].values():
        spoil(network)

    with pytest.raises(SnapshotError, match=f"^an rlpyt snapshot of a R2D1 agent.*{reason}"):
        translate(content)
