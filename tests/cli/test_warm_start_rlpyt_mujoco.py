"""Starting from rlpyt's MuJoCo policies and its SAC with V: against their description, for no file was at hand."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlcli.algos.a2c_config import A2CConfig
from rlcli.algos.ppo_config import PPOConfig
from rlcli.algos.sac_config import SACConfig
from rlcli.algos.sac_v_config import SACVConfig
from rlcli.cli.warm_start import adapted, start_from
from rlcli.core.errors import ConfigError
from rlcli.envs.config import GymConfig
from rlcli.models.config import AutoModelConfig
from tests.rlpyt_policy_probes import FeedForward, PolicyRun, Recurrent
from tests.rlpyt_vector_probes import VectorRun, mlp
from tests.warm_start_probes import built_for, config_for

EXACT = {"atol": 1e-5, "rtol": 0}
N_OBS, N_DIMS = 5, 2
OBS = spaces.Box(-np.inf, np.inf, (N_OBS,), np.float32)
ACTIONS = spaces.Box(-1, 1, (N_DIMS,), np.float32)
NUMBERS = {n: spaces.Box(-np.inf, np.inf, (n,), np.float32) for n in (N_DIMS, 1)}
WITH_PREVIOUS = spaces.Dict([("obs", OBS), ("previous_action", NUMBERS[N_DIMS]), ("previous_reward", NUMBERS[1])])


def run_of(algo, path, given=(), **parts):
    name = type(algo).__name__.removesuffix("Config").lower()
    parts = {"env": GymConfig("Hopper-v5"), "choices": {"algo": name, "model": "auto"}} | parts
    return adapted(config_for(path, algo=algo, **parts), set(given))


def started(config, space=OBS):
    """Agent and learner that have begun from the file, and what was told."""
    agent, learner = built_for(config, space, ACTIONS)
    return agent, learner, start_from(config.resume, agent, learner, "cpu")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(4)


# A2C and PPO


@pytest.mark.parametrize("normalizes", [False, True])
@pytest.mark.parametrize("algo", [A2CConfig(), PPOConfig()])
def test_recurrent_policy_gives_means_deviations_and_values_of_its_description(tmp_path, algo, normalizes):
    network = Recurrent(N_OBS, N_DIMS, (7, 6), 4, normalizes=normalizes)
    config, lines = run_of(algo, PolicyRun(network).save(tmp_path / "params.pkl"))
    agent, _, _ = started(config, WITH_PREVIOUS)

    obs = network.obs_rms.some(3, 4) if normalizes else torch.randn(3, 4, N_OBS)
    action, reward = torch.randn(3, 4, N_DIMS), torch.randn(3, 4, 1)
    with torch.no_grad():
        mean, log_std, value = network(obs, action, reward)
        tree = {"obs": obs, "previous_action": action, "previous_reward": reward}
        params, have, _ = agent.model.unroll(tree, agent.initial_state(4))
    torch.testing.assert_close(torch.cat([mean, log_std], -1), params, **EXACT)
    torch.testing.assert_close(value, have, **EXACT)
    for word in ("model.mlp_hidden=[7, 6]", "model.recurrent_hidden=4", "algo.state_dependent_std=true"):
        assert word in lines[0]
    assert ("model.normalize_obs=true" in lines[0]) == normalizes


@pytest.mark.parametrize("tanh_mean", [False, True])
@pytest.mark.parametrize("normalizes", [False, True])
@pytest.mark.parametrize("algo", [A2CConfig(tanh_mean=True), PPOConfig(state_dependent_std=True)])
def test_feed_forward_policy_gives_what_its_description_says(tmp_path, algo, normalizes, tanh_mean):
    network = FeedForward(N_OBS, N_DIMS, (7, 6), normalizes=normalizes, tanh_mean=tanh_mean)
    config, lines = run_of(algo, PolicyRun(network).save(tmp_path / "params.pkl"))
    agent, _, _ = started(config)

    obs = network.obs_rms.some(4) if normalizes else torch.randn(4, N_OBS)
    with torch.no_grad():
        mean, log_std, value = network(obs)
        params, have = agent.model(obs)
    torch.testing.assert_close(mean, agent.model.distribution.mode(params), **EXACT)
    torch.testing.assert_close(log_std, params[:, N_DIMS:], **EXACT)
    torch.testing.assert_close(value, have, **EXACT)
    assert {"model.activation=tanh", "model.shared_trunk=false"} <= set(lines[0].split(", "))
    assert ("algo.state_dependent_std=false" in lines[0]) == isinstance(algo, PPOConfig)
    assert (f"algo.tanh_mean={tanh_mean}".lower() in lines[0]) == (algo.tanh_mean != tanh_mean)


@pytest.mark.parametrize("normalizes", [False, True])
@pytest.mark.parametrize("kind", ["feed-forward", "recurrent"])
def test_adams_state_of_a_policy_finds_its_parameters(tmp_path, kind, normalizes):
    recurrent = kind == "recurrent"
    make = (
        (lambda **how: Recurrent(N_OBS, N_DIMS, (7,), 4, **how))
        if recurrent
        else (lambda **how: FeedForward(N_OBS, N_DIMS, (7, 6), **how))
    )
    network = make(normalizes=normalizes)
    config, _ = run_of(A2CConfig(), PolicyRun(network).save(tmp_path / "params.pkl"))
    agent, learner, (line,) = started(config, WITH_PREVIOUS if recurrent else OBS)

    state = learner.optimizer_state_dict()["state"]
    for i, (_, parameter) in enumerate(agent.model.named_parameters()):
        assert torch.equal(parameter + 1, state[i]["exp_avg"])
        assert torch.equal(parameter.square(), state[i]["exp_avg_sq"])
    assert "weights and optimizer state; step counters" in line


def test_statistics_go_on_from_those_of_the_file(tmp_path):
    network = FeedForward(N_OBS, N_DIMS, (7,), normalizes=True)
    config, _ = run_of(A2CConfig(), PolicyRun(network).save(tmp_path / "params.pkl"))
    agent, _, _ = started(config)
    rms, (moments,) = network.obs_rms, agent.model.normalizer.moments

    more = torch.randn(500, N_OBS)
    agent.observe(torch.cat([more, more[:1]])[:, None], torch.ones(500, 1, dtype=torch.bool))

    mean = (rms.mean * 1000 + more.sum(0)) / 1500
    squares = 1000 * (rms.var + (rms.mean - mean) ** 2) + ((more - mean) ** 2).sum(0)
    torch.testing.assert_close(mean.double(), moments.mean, **EXACT)
    torch.testing.assert_close((squares / 1500).double(), moments.variance, **EXACT)


def test_policy_and_value_of_other_widths_are_refused(tmp_path):
    network = FeedForward(N_OBS, N_DIMS, (7, 6), value_hidden=(9,))

    with pytest.raises(ConfigError, match=r"its actor has layers of \[7, 6\], what judges has layers of \[9\]; here"):
        run_of(PPOConfig(), PolicyRun(network).save(tmp_path / "params.pkl"))


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (Recurrent(5, 2, (7,), 4), "recurrent MuJoCo A2C/PPO agent: it needs algo=a2c or algo=ppo, not algo=sac"),
        (FeedForward(5, 2, (7,)), "rlpyt's MuJoCo A2C/PPO agent: it needs algo=a2c or algo=ppo, not algo=sac"),
    ],
)
def test_a_policy_needs_its_algorithm(tmp_path, network, words):
    with pytest.raises(ConfigError, match=words):
        run_of(SACConfig(), PolicyRun(network).save(tmp_path / "params.pkl"))


def test_deviations_that_contradict_the_file_are_refused_by_name(tmp_path):
    path = PolicyRun(Recurrent(N_OBS, N_DIMS, (7,), 4)).save(tmp_path / "params.pkl")

    with pytest.raises(ConfigError, match=r"^algo.state_dependent_std: False was given, but .* has True"):
        run_of(A2CConfig(), path, given={"algo.state_dependent_std"})


# SAC with V


@pytest.mark.parametrize("hidden", [(8,), (9, 7)])
def test_sac_with_v_gives_the_outputs_of_its_formula(tmp_path, hidden):
    run = VectorRun("SAC (with V)", n_obs=N_OBS, n_dims=N_DIMS, hidden=hidden, moments=True)
    config, lines = run_of(SACVConfig(), run.save(tmp_path / "params.pkl"))
    agent, learner, (line,) = started(config)

    obs, action, rule = torch.randn(4, N_OBS), torch.rand(4, N_DIMS) * 2 - 1, learner.rule
    with torch.no_grad():
        torch.testing.assert_close(mlp(run.agent["model"], obs), torch.cat(agent.model(obs), -1), **EXACT)
        for name, q in zip(("q1_model", "q2_model"), rule.critic(obs, action), strict=True):
            torch.testing.assert_close(mlp(run.agent[name], torch.cat([obs, action], -1)).squeeze(-1), q, **EXACT)
        for name, value in (("v_model", rule.value), ("target_v_model", rule.value_target.module)):
            torch.testing.assert_close(mlp(run.agent[name], obs).squeeze(-1), value(obs), **EXACT)
    assert f"model.mlp_hidden={list(hidden)}" in lines[0]
    own = {"actor": agent.model, "critic": rule.critic, "value": rule.value}
    for name, module in own.items():
        state = learner.optimizer_state_dict()[name]["state"]
        for i, parameter in enumerate(module.parameters()):
            assert torch.equal(parameter + 1, state[i]["exp_avg"])
    assert "weights and optimizer state; step counters" in line


def test_sac_with_v_needs_its_algorithm(tmp_path):
    path = VectorRun("SAC (with V)", n_obs=N_OBS, n_dims=N_DIMS, hidden=(8,)).save(tmp_path / "params.pkl")

    with pytest.raises(ConfigError, match=r"rlpyt's SAC \(with V\) agent: it needs algo=sac_v, not algo=sac"):
        run_of(SACConfig(), path)


def test_values_of_other_widths_are_refused_but_the_actor_can_be_taken(tmp_path):
    run = VectorRun("SAC (with V)", n_obs=N_OBS, n_dims=N_DIMS, hidden=(8, 8), value_hidden=(9,))
    path = run.save(tmp_path / "params.pkl")
    with pytest.raises(ConfigError, match=r"layers of \[8, 8\], what judges has layers of \[8, 8\] and \[9\]; here"):
        run_of(SACVConfig(), path)
    config = config_for(path, algo=SACVConfig(), env=GymConfig("Hopper-v5"), model=AutoModelConfig(mlp_hidden=[8, 8]))

    agent, learner = built_for(adapted(config, set(), ["*"])[0], OBS, ACTIONS)
    start_from(config.resume, agent, learner, "cpu", keys=["*"])

    obs = torch.randn(4, N_OBS)
    with torch.no_grad():
        torch.testing.assert_close(mlp(run.agent["model"], obs), torch.cat(agent.model(obs), -1), **EXACT)
