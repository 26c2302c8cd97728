"""Starting from files of rlpyt's agents other than DQN: the outputs that rlpyt gave, and what does not fit."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlcli.algos.a2c_config import A2CConfig
from rlcli.algos.cat_dqn_config import CatDQNConfig, RainbowConfig
from rlcli.algos.ddpg_config import DDPGConfig
from rlcli.algos.ppo_config import PPOConfig
from rlcli.algos.sac_config import SACConfig
from rlcli.algos.td3_config import TD3Config
from rlcli.cli.warm_start import adapted, start_from
from rlcli.core.errors import ConfigError
from rlcli.envs.config import AtariConfig, GymConfig
from rlcli.models.config import AutoModelConfig
from tests.rlpyt_vector_probes import VectorRun, mlp
from tests.warm_start_probes import DATA, built_for, config_for, of_shape

EXACT = {"atol": 1e-5, "rtol": 0}
SHAPE = (4, 104, 80)


def load(name):
    return torch.load(DATA / f"{name}.pkl", weights_only=True)


def run_of(algo, path, **parts):
    """A configuration for the algorithm, and what it is after the file decided."""
    name = type(algo).__name__.removesuffix("Config").lower()
    config = config_for(path, algo=algo, choices={"algo": name, "model": "auto"}, **parts)
    return adapted(config, set())


def in_box(config, n_obs=17, n_dims=6, high=1.0):
    observation = spaces.Box(-np.inf, np.inf, (n_obs,), np.float32)
    return built_for(config, observation, spaces.Box(-high, high, (n_dims,), np.float32))


def box_run(algo, path, **parts):
    return run_of(algo, path, env=GymConfig("HalfCheetah-v5"), **parts)


# Atari


def test_catdqn_gives_the_probabilities_that_rlpyt_gave():
    config, lines = run_of(CatDQNConfig(), DATA / "atari_catdqn.pkl")
    agent, algo = of_shape(config, SHAPE)

    told = start_from(config.resume, agent, algo, "cpu")

    obs = load("atari_inputs")["observation"]
    with torch.no_grad():
        torch.testing.assert_close(load("atari_catdqn.expected")["p"], agent.model.logits(obs).softmax(-1), **EXACT)
    target = load("atari_catdqn")["agent_state_dict"]["target"]
    assert torch.equal(target["head.mlp.model.2.weight"], algo.state_dict()["target"]["advantage.weight"])
    assert "model.conv_hidden=16" in lines[0]
    assert "rlpyt's CatDQN agent" in told[0]


def dueling_catdqn(n_actions=3, n_atoms=5):
    """Its network, with what it gives for an observation; the dueling formula atom by atom."""
    content = load("atari_catdqn")
    model = {k: v for k, v in content["agent_state_dict"]["model"].items() if k.startswith("conv.")}
    generator = torch.Generator().manual_seed(3)

    def weight(*shape):
        return torch.randn(shape, generator=generator) * 0.05

    for stream in ("advantage_hidden", "value"):
        model[f"head.{stream}.model.0.weight"], model[f"head.{stream}.model.0.bias"] = weight(16, 6912), weight(16)
    model["head.advantage_out.weight"] = weight(n_actions * n_atoms, 16)
    model["head.advantage_bias"] = weight(n_atoms)
    model["head.value.model.2.weight"], model["head.value.model.2.bias"] = weight(n_atoms, 16), weight(n_atoms)
    content["agent_state_dict"] = {"model": model, "target": model}

    def logits(x):
        for i, (stride, padding) in enumerate([(4, 0), (2, 1), (1, 1)]):
            conv = [model[f"conv.conv.{2 * i}.{kind}"] for kind in ("weight", "bias")]
            x = torch.relu(torch.nn.functional.conv2d(x, *conv, stride=stride, padding=padding))
        x = x.flatten(1)
        hidden = {
            s: torch.relu(x @ model[f"head.{s}.model.0.weight"].T + model[f"head.{s}.model.0.bias"])
            for s in ("advantage_hidden", "value")
        }
        advantage = (hidden["advantage_hidden"] @ model["head.advantage_out.weight"].T).view(-1, n_actions, n_atoms)
        advantage = advantage + model["head.advantage_bias"]
        value = hidden["value"] @ model["head.value.model.2.weight"].T + model["head.value.model.2.bias"]
        return value[:, None] + advantage - advantage.mean(1, keepdim=True)

    return content, logits


def test_dueling_catdqn_gives_the_probabilities_of_its_formula(tmp_path):
    content, logits = dueling_catdqn()
    torch.save(content, tmp_path / "params.pkl")
    config, lines = run_of(CatDQNConfig(), tmp_path / "params.pkl")
    agent, algo = of_shape(config, SHAPE, n_actions=3)

    start_from(config.resume, agent, algo, "cpu")

    obs = load("atari_inputs")["observation"]
    with torch.no_grad():
        torch.testing.assert_close(logits(obs.float() / 255), agent.model.logits(obs), **EXACT)
    assert (5, True) == (config.algo.n_atoms, config.algo.dueling)
    assert "algo.n_atoms=5" in lines[0]


def test_atoms_that_do_not_divide_the_outputs_are_refused():
    with pytest.raises(ConfigError, match=r"has 306 outputs, actions times atoms; algo\.n_atoms=52 does not divide"):
        run_of(CatDQNConfig(n_atoms=52), DATA / "atari_catdqn.pkl")


def test_catdqn_for_other_actions_is_refused_with_its_outputs():
    config, _ = run_of(CatDQNConfig(), DATA / "atari_catdqn.pkl")

    with pytest.raises(ConfigError, match=r"is for 306 outputs \(actions times atoms\), this run's env has 204"):
        start_from(config.resume, *of_shape(config, SHAPE, n_actions=4), "cpu")


@pytest.mark.parametrize("algo", [A2CConfig(), PPOConfig()])
def test_feed_forward_policy_gives_the_probabilities_and_values_that_rlpyt_gave(algo):
    config, lines = run_of(algo, DATA / "atari_ff.pkl")
    agent, learner = of_shape(config, SHAPE)

    start_from(config.resume, agent, learner, "cpu")

    expected = load("atari_ff.expected")
    with torch.no_grad():
        logits, value = agent.model(load("atari_inputs")["observation"])
    torch.testing.assert_close(expected["pi"], logits.softmax(-1), **EXACT)
    torch.testing.assert_close(expected["value"], value, **EXACT)
    assert AtariConfig(image_size=104, image_width=80) == config.env
    assert "model.conv_channels=[16, 32], model.conv_kernels=[8, 4], model.conv_hidden=16" in lines[0]
    assert "model.conv_strides=[4, 2], model.conv_paddings=[0, 1]" in lines[0]


@pytest.mark.parametrize("algo", [A2CConfig(), PPOConfig()])
def test_recurrent_policy_gives_in_each_step_what_rlpyt_gave(algo):
    config, lines = run_of(algo, DATA / "atari_lstm.pkl")
    inputs, expected = load("atari_inputs"), load("atari_lstm.expected")
    images = spaces.Box(0, 255, SHAPE, np.uint8)
    numbers = {n: spaces.Box(-np.inf, np.inf, (n,), np.float32) for n in (6, 1)}
    space = spaces.Dict([("obs", images), ("previous_action", numbers[6]), ("previous_reward", numbers[1])])
    agent, learner = built_for(config, space, spaces.Discrete(6))

    start_from(config.resume, agent, learner, "cpu")

    obs = {
        "obs": inputs["observation"].expand(3, *inputs["observation"].shape),
        "previous_action": inputs["prev_action_onehot"].expand(3, 2, 6),
        "previous_reward": inputs["prev_reward"][:, None].expand(3, 2, 1),
    }
    with torch.no_grad():
        logits, value, _ = agent.model.unroll(obs, agent.initial_state(2))
    torch.testing.assert_close(expected["pi"], logits.softmax(-1), **EXACT)
    torch.testing.assert_close(expected["value"], value, **EXACT)
    assert config.model.adds_previous
    assert "model.recurrent=lstm, model.recurrent_hidden=16, model.observe_previous=true" in lines[0]


def test_adams_state_of_a_recurrent_policy_finds_its_parameters(tmp_path):
    content = load("atari_lstm")
    state = {
        i: {"step": 3, "exp_avg": value + 1, "exp_avg_sq": value.square()}
        for i, value in enumerate(content["agent_state_dict"].values())
    }
    content["optimizer_state_dict"] = {"state": state, "param_groups": [{"params": list(state)}]}
    torch.save(content, tmp_path / "params.pkl")
    config, _ = run_of(A2CConfig(), tmp_path / "params.pkl", model=AutoModelConfig(observe_previous=True))
    images = spaces.Box(0, 255, SHAPE, np.uint8)
    numbers = {n: spaces.Box(-np.inf, np.inf, (n,), np.float32) for n in (6, 1)}
    space = spaces.Dict([("obs", images), ("previous_action", numbers[6]), ("previous_reward", numbers[1])])
    agent, learner = built_for(config, space, spaces.Discrete(6))

    (line,) = start_from(config.resume, agent, learner, "cpu")

    moments = learner.optimizer_state_dict()["state"]
    for i, (_, parameter) in enumerate(agent.model.named_parameters()):
        assert torch.equal(parameter + 1, moments[i]["exp_avg"])
    assert "weights and optimizer state; step counters" in line


@pytest.mark.parametrize(
    ("file", "algo", "words"),
    [
        ("atari_catdqn", A2CConfig(), "rlpyt's CatDQN agent: it needs algo=cat_dqn, not algo=a2c"),
        ("atari_dqn", CatDQNConfig(), "rlpyt's DQN agent: it needs algo=dqn, not algo=catdqn"),
        ("atari_catdqn", RainbowConfig(), "CatDQN agent: its layers are not noisy; it needs algo.noisy=false"),
        ("atari_ff", CatDQNConfig(), "rlpyt's A2C/PPO agent: it needs algo=a2c or algo=ppo, not algo=catdqn"),
        ("mujoco_sac", TD3Config(), "rlpyt's SAC agent: it needs algo=sac, not algo=td3"),
        ("mujoco_ddpg", TD3Config(), "rlpyt's DDPG agent: it needs algo=ddpg, not algo=td3"),
    ],
)
def test_each_agent_needs_its_algorithm(file, algo, words):
    with pytest.raises(ConfigError, match=words):
        run_of(algo, DATA / f"{file}.pkl")


def test_recurrent_layer_that_contradicts_the_file_is_refused_by_name():
    config = config_for(DATA / "atari_lstm.pkl", algo=A2CConfig(), model=AutoModelConfig(recurrent="gru"))

    with pytest.raises(ConfigError, match=r"^model.recurrent: 'gru' was given, but .* has 'lstm'"):
        adapted(config, {"model.recurrent"})


# Continuous actions


def test_ddpg_gives_the_actions_and_values_that_rlpyt_gave():
    config, lines = box_run(DDPGConfig(), DATA / "mujoco_ddpg.pkl")
    agent, algo = in_box(config)

    told = start_from(config.resume, agent, algo, "cpu")

    expected, rule = load("mujoco_ddpg.expected"), algo.rule
    file = load("mujoco_ddpg")["agent_state_dict"]
    obs, action = expected["obs"], expected["action"]
    with torch.no_grad():
        torch.testing.assert_close(expected["mu"], agent.model(obs), **EXACT)
        torch.testing.assert_close(expected["q"], rule.critic(obs, action), **EXACT)
        target_q = mlp(file["target_q_model"], torch.cat([obs, action], -1)).squeeze(-1)
        torch.testing.assert_close(target_q, rule.critic_target.module(obs, action), **EXACT)
        target_mu = mlp(file["target_model"], obs).tanh()
        torch.testing.assert_close(target_mu, rule.actor_target.module(obs), **EXACT)
    assert [f"taken from {config.resume}: model.mlp_hidden=[16, 16]"] == lines
    assert "the file has no optimizer state that fits" in told[0]


def test_sac_gives_the_distribution_and_values_that_rlpyt_gave():
    config, _ = box_run(SACConfig(), DATA / "mujoco_sac.pkl")
    agent, algo = in_box(config)

    start_from(config.resume, agent, algo, "cpu")

    expected, file = load("mujoco_sac.expected"), load("mujoco_sac")["agent_state_dict"]
    obs, action = expected["obs"], expected["action"]
    with torch.no_grad():
        for want, have in zip((expected["mean"], expected["log_std"]), agent.model(obs), strict=True):
            torch.testing.assert_close(want, have, **EXACT)
        for want, have in zip((expected["q1"], expected["q2"]), algo.rule.critic(obs, action), strict=True):
            torch.testing.assert_close(want, have, **EXACT)
        targets = algo.rule.critic_target.module(obs, action)
        for name, have in zip(("target_q1_model", "target_q2_model"), targets, strict=True):
            torch.testing.assert_close(mlp(file[name], torch.cat([obs, action], -1)).squeeze(-1), have, **EXACT)
    assert algo.rule.alpha == 1  # the file says none


@pytest.mark.parametrize("hidden", [(16,), (12, 9, 7)])
@pytest.mark.parametrize(("agent_name", "algo"), [("DDPG", DDPGConfig()), ("TD3", TD3Config()), ("SAC", SACConfig())])
def test_agents_of_any_depth_give_the_outputs_of_their_formula(tmp_path, agent_name, algo, hidden):
    run = VectorRun(agent_name, n_obs=5, n_dims=2, hidden=hidden)
    config, _ = box_run(algo, run.save(tmp_path / "params.pkl"))
    agent, learner = in_box(config, 5, 2)

    start_from(config.resume, agent, learner, "cpu")

    obs, action = torch.randn(4, 5), torch.rand(4, 2) * 2 - 1
    critics, targets = learner.rule.critic, learner.rule.critic_target.module
    with torch.no_grad():
        for prefix, module in (("", critics), ("target_", targets)):
            have = module(obs, action)
            for name, q in zip(run.critics, have if isinstance(have, tuple) else [have], strict=True):
                want = mlp(run.agent[prefix + name], torch.cat([obs, action], -1)).squeeze(-1)
                torch.testing.assert_close(want, q, **EXACT)
        out = mlp(run.agent["model"], obs)
        if agent_name == "SAC":
            torch.testing.assert_close(out, torch.cat(agent.model(obs), -1), **EXACT)
        else:
            torch.testing.assert_close(out.tanh(), agent.model(obs), **EXACT)
            want = mlp(run.agent["target_model"], obs).tanh()
            torch.testing.assert_close(want, learner.rule.actor_target.module(obs), **EXACT)


@pytest.mark.parametrize(("agent_name", "algo"), [("DDPG", DDPGConfig()), ("TD3", TD3Config()), ("SAC", SACConfig())])
def test_adams_state_finds_the_parameters_of_actor_and_critics(tmp_path, agent_name, algo):
    run = VectorRun(agent_name, n_obs=5, n_dims=2, hidden=(8, 8), moments=True)
    config, _ = box_run(algo, run.save(tmp_path / "params.pkl"))
    agent, learner = in_box(config, 5, 2)

    (line,) = start_from(config.resume, agent, learner, "cpu")

    # the probe's first moments are the weights plus 1
    for name, module in (("actor", agent.model), ("critic", learner.rule.critic)):
        state = learner.optimizer_state_dict()[name]["state"]
        for i, parameter in enumerate(module.parameters()):
            assert torch.equal(parameter + 1, state[i]["exp_avg"])
            assert torch.equal(parameter.square(), state[i]["exp_avg_sq"])
            assert 3 == state[i]["step"]
    assert "weights and optimizer state; step counters" in line


def test_sacs_entropy_coefficient_and_its_optimizer_go_on(tmp_path):
    run = VectorRun("SAC", n_obs=5, n_dims=2, hidden=(8, 8), moments=True, log_alpha=-1.5)
    config, _ = box_run(SACConfig(), run.save(tmp_path / "params.pkl"))
    agent, learner = in_box(config, 5, 2)

    start_from(config.resume, agent, learner, "cpu")

    log_alpha = learner.rule.temperature["log_alpha"]
    assert -1.5 == log_alpha.item()
    assert -0.5 == learner.optimizer_state_dict()["alpha"]["state"][0]["exp_avg"].item()


def test_fixed_entropy_coefficient_of_the_run_stands(tmp_path):
    run = VectorRun("SAC", n_obs=5, n_dims=2, hidden=(8, 8), moments=True, log_alpha=-1.5)
    config, _ = box_run(SACConfig(fixed_alpha=0.2), run.save(tmp_path / "params.pkl"))
    agent, learner = in_box(config, 5, 2)

    start_from(config.resume, agent, learner, "cpu")

    assert pytest.approx(0.2) == learner.rule.alpha.item()


def test_optimizer_state_that_one_group_lacks_is_told(tmp_path):
    run = VectorRun("SAC", n_obs=5, n_dims=2, hidden=(8, 8), moments=True)
    run.optimizer["alpha_optimizer"] = None
    config, _ = box_run(SACConfig(), run.save(tmp_path / "params.pkl"))
    agent, learner = in_box(config, 5, 2)

    (line,) = start_from(config.resume, agent, learner, "cpu")

    assert "weights and optimizer state (none for alpha); step counters" in line


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"n_obs": 18}, "is for observations of 17 numbers and actions of 6, this run's env has 18 and 6"),
        ({"n_dims": 5}, "is for observations of 17 numbers and actions of 6, this run's env has 17 and 5"),
        ({"high": 0.4}, "whose actions are within -1 .. 1; this run's env has other bounds"),
    ],
)
def test_other_observations_actions_and_bounds_are_refused(space, words):
    config, _ = box_run(SACConfig(), DATA / "mujoco_sac.pkl")

    with pytest.raises(ConfigError, match=words):
        start_from(config.resume, *in_box(config, **space), "cpu")


def test_actor_and_critics_of_other_widths_are_refused_but_the_actor_can_be_taken(tmp_path):
    run = VectorRun("DDPG", n_obs=5, n_dims=2, hidden=(8, 8), critic_hidden=(9, 8))
    path = run.save(tmp_path / "params.pkl")
    with pytest.raises(ConfigError, match=r"its actor has layers of \[8, 8\], what judges has layers of \[9, 8\]"):
        box_run(DDPGConfig(), path)
    config = config_for(path, algo=DDPGConfig(), env=GymConfig("HalfCheetah-v5"))

    config, _ = adapted(config, set(), ["*"])
    agent, learner = in_box(config, 5, 2)
    start_from(config.resume, agent, learner, "cpu", keys=["*"])

    obs = torch.randn(4, 5)
    with torch.no_grad():
        torch.testing.assert_close(mlp(run.agent["model"], obs).tanh(), agent.model(obs), **EXACT)
        want = mlp(run.agent["target_model"], obs).tanh()
        torch.testing.assert_close(want, learner.rule.actor_target.module(obs), **EXACT)


def test_width_that_contradicts_the_file_is_refused_by_name():
    config = config_for(DATA / "mujoco_sac.pkl", algo=SACConfig(), model=AutoModelConfig(mlp_hidden=[64]))

    with pytest.raises(ConfigError, match=r"^model.mlp_hidden: \[64\] was given, but .* has \[16, 16\]"):
        adapted(config, {"model.mlp_hidden"})
    assert [16, 16] == adapted(replace(config), set())[0].model.mlp_hidden


def test_images_are_refused_for_a_file_of_vectors():
    config, _ = run_of(SACConfig(), DATA / "mujoco_sac.pkl")
    images = spaces.Box(0, 255, SHAPE, np.uint8)
    parts = built_for(copy.deepcopy(config), images, spaces.Box(-1, 1, (6,), np.float32))

    with pytest.raises(ConfigError, match="is for vectors, this run's network takes images"):
        start_from(config.resume, *parts, "cpu")
