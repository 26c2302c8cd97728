"""model.normalize_obs with algorithms that learn from replay: one set of statistics that all networks look through."""

import contextlib
import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlcli.algos.cat_dqn_config import CatDQNConfig, RainbowConfig
from rlcli.algos.ddpg_config import DDPGConfig
from rlcli.algos.dqn_config import DQNConfig
from rlcli.algos.iqn_config import IQNConfig
from rlcli.algos.r2d1_config import R2D1Config
from rlcli.algos.sac_config import SACConfig
from rlcli.algos.sac_v_config import SACVConfig
from rlcli.algos.td3_config import TD3Config
from rlcli.core.samples import Samples
from rlcli.core.tree import map_tree
from rlcli.envs.previous import with_previous
from rlcli.models.config import AutoModelConfig
from rlcli.models.critics import TwinCritic
from rlcli.models.normalizer import ObsNormalizer, share_normalizer
from rlcli.replay.config import SequenceReplayConfig, UniformReplayConfig
from rlcli.samplers.config import SerialConfig
from tests.box_probes import EnvConfig, RoamEnv
from tests.learning_probes import build
from tests.sampler_probes import WanderConfig, make_setup

QUICK = {"discount": 0.9, "batch_size": 16, "min_steps_learn": 10**6}
BOX = {**QUICK, "random_steps": 0, "tau": 0.3}
Q = {**QUICK, "tau": 0.3, "target_update_interval": 1}
CONFIGS = {
    "dqn": DQNConfig(**Q, double_dqn=True),
    "cat_dqn": CatDQNConfig(**Q, n_atoms=11),
    "iqn": IQNConfig(**Q, n_tau=4, n_tau_target=4, n_tau_act=4),
    "rainbow": RainbowConfig(**Q, n_atoms=11),
    "r2d1": R2D1Config(**Q, head_hidden=[16], n_step_return=2),
    "ddpg": DDPGConfig(**BOX),
    "td3": TD3Config(**BOX),
    "sac": SACConfig(**BOX),
    "sac_v": SACVConfig(**BOX),
}
EACH = pytest.mark.parametrize("algo_name", CONFIGS)
MODEL = AutoModelConfig(mlp_hidden=[16], recurrent_hidden=16, normalize_obs=True)
SEQUENCES = SequenceReplayConfig(size=4_000, burn_in_T=3, train_T=4, state_interval=2)


def task(algo_name, model=MODEL):
    """(env, model, replay) of an algorithm."""
    if algo_name == "r2d1":
        model = replace(model, recurrent="lstm")
        return with_previous(WanderConfig(), model), model, SEQUENCES
    env = WanderConfig() if isinstance(CONFIGS[algo_name], DQNConfig | CatDQNConfig | IQNConfig) else EnvConfig(RoamEnv)
    return env, model, UniformReplayConfig(size=4_000)


def learner(algo_name, model=MODEL, n_envs=4, **changes):
    env, model, replay = task(algo_name, model)
    agent, algo = build(env, replace(CONFIGS[algo_name], **changes), n_envs, model=model, replay=replay)
    return env, agent, algo


def seen_by_the_learner(env, agent, algo, n=6):
    """Batches that were collected, copied, of which each was given to the learner."""
    found, step = [], 0
    with contextlib.closing(SerialConfig(10, 4).build(make_setup(env, agent))) as sampler:
        for _ in range(n):
            got = sampler.collect(step)
            step += got.n_steps
            found.append(copy.deepcopy(got.samples))
            algo.update(got.samples, step=step)
    return found


def vectors(obs):
    """The part of an observation that is normalised, and a function that puts another in its place."""
    if isinstance(obs, dict):
        return obs["obs"], lambda leaf: {**obs, "obs": leaf}
    return obs, lambda leaf: leaf


def moments(batches):
    """Mean and deviation of all valid rows, at once, in float64."""
    rows = np.concatenate([vectors(s.obs)[0][: len(s.valid)][s.valid].double().numpy() for s in batches])
    return rows.mean(0), np.sqrt(rows.var(0) + 1e-8), len(rows)


def normalised(obs, mean, deviation):
    leaf, put = vectors(obs)
    return put(torch.from_numpy(((leaf.double().numpy() - mean) / deviation).clip(-10, 10).astype(np.float32)))


def samples_of(rows, valid):
    """A batch of one environment whose observations' both numbers are ``rows``."""
    obs = torch.tensor(rows)[:, None, None].expand(-1, 1, 4).contiguous()
    valid = torch.tensor(valid)[:, None]
    never = torch.zeros_like(valid)
    ends = torch.cat([~valid[1:], ~never[:1]])  # a filler follows an end
    action = torch.zeros(len(valid), 1, dtype=torch.int64)
    return Samples(obs, action, torch.zeros(len(valid), 1), never, ends, valid, record=None, state=None)


def test_statistics_are_of_the_valid_rows_of_both_batches_each_once():
    _, agent, algo = learner("dqn", n_envs=1, min_steps_learn=0, replay_ratio=100, batch_size=1)

    algo.update(samples_of([1.0, 3.0, 500.0, 9.0], [True, True, False]), step=2)
    algo.update(samples_of([5.0, 7.0, 900.0], [True, True]), step=4)

    # 1, 3, 5, 7: mean 4, squares 9 + 1 + 1 + 9
    (found,) = agent.model.normalizer.moments
    assert [4.0] == found.count.tolist()
    assert [4.0] * 4 == found.mean.tolist()
    assert [5.0] * 4 == found.variance.tolist()
    assert algo.n_updates > 100


def test_replay_keeps_observations_as_they_were_collected():
    env, agent, algo = learner("dqn")
    batches = seen_by_the_learner(env, agent, algo)
    lived = {tuple(row.tolist()) for s in batches for row in s.obs[:-1][s.valid]}

    drawn = algo.replay.sample(64)

    assert {tuple(row.tolist()) for row in drawn.obs} <= lived


@EACH
def test_learning_through_statistics_equals_learning_from_observations_normalised_beforehand(algo_name):
    env, agent, algo = learner(algo_name)
    mean, deviation, n = moments(seen_by_the_learner(env, agent, algo))
    _, plain_agent, plain = learner(algo_name, replace(MODEL, normalize_obs=False))
    for ours, theirs in ((agent.model, plain_agent.model), *zip(*networks(algo, plain), strict=True)):
        state = {name: value for name, value in ours.state_dict().items() if not name.startswith("normalizer.")}
        theirs.load_state_dict(state)
    if hasattr(plain.rule, "_replay"):
        plain.rule._replay = algo.replay

    for step in (1, 2, 3, 4):
        batch = algo.replay.sample(16, 0)
        changed = {
            name: normalised(getattr(batch, name), mean, deviation)
            for name in ("obs", "next_obs")
            if hasattr(batch, name)
        }
        got = algo.rule.gradient_step(algo.prepare(batch), step, 0)
        expected = plain.rule.gradient_step(plain.prepare(replace(batch, **changed)), step, 0)
        assert expected == pytest.approx(got, rel=1e-4, abs=1e-6), step

    assert [float(n)] == agent.model.normalizer.moments[0].count.tolist()
    for ours, theirs in zip(*networks(algo, plain), strict=True):
        for name, value in theirs.state_dict().items():
            torch.testing.assert_close(value, ours.state_dict()[name], rtol=1e-3, atol=1e-5)


def networks(*algos):
    return [list(algo.rule.networks.values()) for algo in algos]


@EACH
def test_targets_see_what_was_observed_after_they_were_made(algo_name):
    env, agent, algo = learner(algo_name)
    seen_by_the_learner(env, agent, algo, 2)
    values = {name: buffer.clone() for name, buffer in agent.model.normalizer.named_buffers()}

    for network in algo.rule.networks.values():
        for name, buffer in network.named_buffers():
            if name.startswith("normalizer."):
                assert torch.equal(values[name.removeprefix("normalizer.")], buffer)
                assert buffer.data_ptr() == dict(agent.model.named_buffers())[name].data_ptr()
    assert values


@EACH
def test_what_is_saved_of_critics_and_model_has_the_same_names_but_for_the_statistics(algo_name):
    saved = [learner(algo_name, replace(MODEL, normalize_obs=normalize))[1:] for normalize in (True, False)]
    (agent, algo), (plain_agent, plain) = saved

    def names(tree):
        return [name for name in tree if not name.startswith("normalizer.")]

    assert list(plain_agent.state_dict()["model"]) == names(agent.state_dict()["model"])
    assert "normalizer.moments.0.mean" in agent.state_dict()["model"]
    for key, network in plain.rule.networks.items():
        assert list(network.state_dict()) == names(algo.rule.networks[key].state_dict())
        assert ("target" not in key or "critic" in key or "value" in key) == (
            list(network.state_dict()) == list(algo.rule.networks[key].state_dict())
        )


@EACH
def test_samplers_hand_the_statistics_on_with_the_weights(algo_name):
    _, agent, _ = learner(algo_name)

    handed = {weight.data_ptr() for weight in agent.weights().values()}

    assert {buffer.data_ptr() for buffer in agent.model.normalizer.buffers()} <= handed


@EACH
def test_a_copy_of_an_agent_acts_with_statistics_of_its_own(algo_name):
    # as a sampler on another device has one
    env, agent, algo = learner(algo_name)
    seen_by_the_learner(env, agent, algo, 2)
    twin = copy.deepcopy(agent)
    before = {name: buffer.clone() for name, buffer in twin.model.normalizer.named_buffers()}
    (obs,) = (s.obs for s in seen_by_the_learner(env, agent, algo, 1))

    agent.model.normalizer.observe(map_tree(lambda leaf: leaf + 1000, obs), torch.ones(10, 4, dtype=torch.bool))

    assert all(torch.equal(buffer, before[name]) for name, buffer in twin.model.normalizer.named_buffers())
    assert not torch.equal(outputs(agent, obs), outputs(twin, obs))


@torch.no_grad()
def outputs(agent, obs):
    """Action values, or the actor's first output, for the first row."""
    state = agent.initial_state(4)
    if state is not None:
        return agent.model.unroll(map_tree(lambda leaf: leaf[:1], obs), state)[0]
    found = agent.model(map_tree(lambda leaf: leaf[0], obs))
    return found[0] if isinstance(found, tuple) else found


@EACH
def test_evaluation_leaves_the_statistics_as_they_are(algo_name):
    env, agent, algo = learner(algo_name)
    seen_by_the_learner(env, agent, algo, 2)
    before = {name: weight.clone() for name, weight in agent.weights().items()}

    with contextlib.closing(SerialConfig(10, 4).build(make_setup(env, agent))) as sampler:
        games = sampler.evaluate(0).games

    assert games
    assert all(torch.equal(weight, before[name]) for name, weight in agent.weights().items())


def test_the_rule_for_images_is_that_of_ppo_they_pass_as_they_are():
    space = spaces.Dict({"image": spaces.Box(0, 255, (36, 36, 3), np.uint8), "x": spaces.Box(-9, 9, (2,), np.float32)})
    actor = torch.nn.Module()
    actor.normalizer = ObsNormalizer(space)
    model = AutoModelConfig(conv_channels=[4], conv_kernels=[8], conv_strides=[4], conv_hidden=8, mlp_hidden=[8])
    critic = TwinCritic(model, space, 1)
    obs = {"image": torch.randint(0, 255, (6, 1, 36, 36, 3), dtype=torch.uint8), "x": torch.randn(6, 1, 2) + 5}
    actor.normalizer.observe(obs, torch.ones(5, 1, dtype=torch.bool))
    flat, action = map_tree(lambda leaf: leaf[:, 0], obs), torch.zeros(6, 1)
    x = (flat["x"] - flat["x"][:5].mean(0)) / flat["x"][:5].std(0, unbiased=False)
    expected = critic({**flat, "x": x}, action)

    share_normalizer(actor, critic, critic.q1, critic.q2)

    torch.testing.assert_close(expected, critic(flat, action), rtol=1e-4, atol=1e-5)
    assert len(actor.normalizer.moments) == 1
