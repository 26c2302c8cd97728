"""DDPG, TD3 and SAC: targets and losses against slow references, what a step touches, and exact problems."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlcli.algos.ddpg_config import DDPGConfig
from rlcli.algos.sac_config import SACConfig
from rlcli.algos.sac_v_config import SACVConfig
from rlcli.algos.td3_config import TD3Config
from rlcli.core.spec import EnvSpec
from rlcli.envs.config import GymConfig
from rlcli.envs.probe import probe
from tests.algos import box_references as ref
from tests.box_probes import EnvConfig, RoamEnv, build, train

QUICK = {"discount": 0.9, "batch_size": 32, "replay_ratio": 32.0, "min_steps_learn": 40, "random_steps": 400}
RATES = {"actor_learning_rate": 3e-3, "critic_learning_rate": 1e-2, "tau": 0.05}
ALGOS = {
    "ddpg": DDPGConfig(**QUICK, **RATES),
    "td3": TD3Config(**QUICK, **RATES),
    "sac": SACConfig(**QUICK, **RATES, fixed_alpha=0.01),
    "sac_v": SACVConfig(**QUICK, **RATES, value_learning_rate=1e-2, alpha=0.01, reward_scale=1.0),
}
EVERY = pytest.mark.parametrize("config", ALGOS.values(), ids=ALGOS.keys())
ROAM = EnvConfig(RoamEnv)


def roamed(config, **changes):
    """A rule that has not learned yet and a batch of what was lived through, in float64."""
    config = replace(config, min_steps_learn=10**6, random_steps=10**6, **changes)
    return ref.in_float64(train(ROAM, config, 10).algo)


def state(module):
    return copy.deepcopy(module.state_dict())


def same(before, module):
    return all(torch.equal(a, b) for a, b in zip(before.values(), module.state_dict().values(), strict=True))


# against references


@pytest.mark.parametrize("n_step", [1, 3])
def test_ddpg_targets_equal_a_slow_reference(n_step):
    rule, batch = roamed(ALGOS["ddpg"], n_step_return=n_step)
    q, mu = ref.numbers(rule.critic_target.module), ref.numbers(rule.actor_target.module)

    expected = [r + g * ref.critic(q, nxt, ref.actor(mu, nxt)) for _, _, r, g, nxt in ref.rows(batch)]

    np.testing.assert_allclose(expected, rule.target(batch), rtol=1e-10)
    assert {0.0} < set(batch.discount_n.tolist())


@pytest.mark.parametrize("n_step", [1, 3])
def test_td3_targets_equal_a_slow_reference(n_step):
    rule, batch = roamed(ALGOS["td3"], n_step_return=n_step, target_noise_std=0.6)
    q, mu = ref.numbers(rule.critic_target.module), ref.numbers(rule.actor_target.module)
    noise = 0.6 * ref.next_normals(rule, batch.action)

    expected = []
    for (_, _, r, g, nxt), eps in zip(ref.rows(batch), noise, strict=True):
        pairs = zip(ref.actor(mu, nxt), eps, strict=True)
        action = np.array([min(max(a + min(max(e, -0.5), 0.5), -1), 1) for a, e in pairs])
        expected.append(r + g * min(ref.critic(q, nxt, action, "q1."), ref.critic(q, nxt, action, "q2.")))

    np.testing.assert_allclose(expected, rule.target(batch), rtol=1e-10)
    assert (np.abs(noise) > 0.5).any()
    assert (np.abs(noise) < 0.5).any()


@pytest.mark.parametrize("n_step", [1, 3])
def test_sac_targets_equal_a_slow_reference(n_step):
    rule, batch = roamed(ALGOS["sac"], n_step_return=n_step, fixed_alpha=0.7)
    q, pi = ref.numbers(rule.critic_target.module), ref.numbers(rule.actor)
    alpha = rule.alpha.item()  # shaken too
    normals = ref.next_normals(rule, batch.action)

    expected = []
    for (_, _, r, g, nxt), z in zip(ref.rows(batch), normals, strict=True):
        action, log_prob = ref.draw(pi, nxt, z)
        q_next = min(ref.critic(q, nxt, action, "q1."), ref.critic(q, nxt, action, "q2."))
        expected.append(r + g * (q_next - alpha * log_prob))

    np.testing.assert_allclose(expected, rule.target(batch), rtol=1e-8)


@pytest.mark.parametrize("n_step", [1, 3])
def test_sac_v_targets_equal_a_slow_reference(n_step):
    rule, batch = roamed(ALGOS["sac_v"], n_step_return=n_step, reward_scale=5.0)
    v = ref.numbers(rule.value_target.module)

    expected = [5.0 * r + g * ref.value(v, nxt) for _, _, r, g, nxt in ref.rows(batch)]

    np.testing.assert_allclose(expected, rule.target(batch), rtol=1e-10)


def test_sac_v_value_and_actor_losses_equal_a_slow_reference():
    rule, batch = roamed(ALGOS["sac_v"], alpha=0.7, policy_regularization=0.3)
    q, pi, v = (ref.numbers(module) for module in (rule.critic, rule.actor, rule.value))
    normals = ref.next_normals(rule, batch.action)

    value_losses, actor_losses = [], []
    for (obs, *_), z in zip(ref.rows(batch), normals, strict=True):
        action, log_prob = ref.draw(pi, obs, z)
        soft = min(ref.critic(q, obs, action, "q1."), ref.critic(q, obs, action, "q2.")) - 0.7 * log_prob
        mean, log_std = ref.gaussian(pi, obs)
        value_losses.append(0.5 * (ref.value(v, obs) - soft) ** 2)
        actor_losses.append(-soft + 0.3 * 0.5 * (mean**2 + log_std**2).mean())

    got = rule.value_and_actor_losses(batch)
    np.testing.assert_allclose(value_losses, got[0].detach(), rtol=1e-8)
    np.testing.assert_allclose(actor_losses, got[1].detach(), rtol=1e-8)


@pytest.mark.parametrize("name", ["ddpg", "td3"])
def test_deterministic_actor_losses_equal_a_slow_reference(name):
    rule, batch = roamed(ALGOS[name])
    q, mu = ref.numbers(rule.critic), ref.numbers(rule.actor)
    prefix = "q1." if name == "td3" else ""

    expected = [-ref.critic(q, obs, ref.actor(mu, obs), prefix) for obs, *_ in ref.rows(batch)]

    np.testing.assert_allclose(expected, rule.actor_loss(batch).detach(), rtol=1e-10)


def test_sac_actor_losses_equal_a_slow_reference():
    rule, batch = roamed(ALGOS["sac"], fixed_alpha=0.7)
    q, pi, alpha = ref.numbers(rule.critic), ref.numbers(rule.actor), rule.alpha.item()
    normals = ref.next_normals(rule, batch.action)

    expected, log_probs = [], []
    for (obs, *_), z in zip(ref.rows(batch), normals, strict=True):
        action, log_prob = ref.draw(pi, obs, z)
        expected.append(alpha * log_prob - min(ref.critic(q, obs, action, "q1."), ref.critic(q, obs, action, "q2.")))
        log_probs.append(log_prob)

    losses, log_prob = rule.actor_loss(batch)
    np.testing.assert_allclose(expected, losses.detach(), rtol=1e-8)
    np.testing.assert_allclose(log_probs, log_prob.detach(), rtol=1e-8)


@EVERY
def test_critic_loss_of_a_step_is_that_of_targets_and_values_in_normalised_actions(config):
    rule, batch = roamed(config)
    y = copy.deepcopy(rule).target(batch).numpy()
    q = ref.numbers(rule.critic)
    prefixes = [""] if "head.0.weight" in q else ["q1.", "q2."]

    expected = [
        sum(0.5 * (ref.critic(q, obs, action, prefix) - y[i]) ** 2 for prefix in prefixes)
        for i, (obs, action, *_) in enumerate(ref.rows(batch))
    ]
    got = rule.gradient_step(batch, 1, 0)

    assert np.mean(expected) == pytest.approx(got["criticLoss"], rel=1e-8)
    assert batch.action.abs().max() <= 1
    assert batch.action.min() < -0.5


# what a step touches


@EVERY
def test_targets_begin_equal_to_the_online_networks(config):
    _, algo = build(ROAM, config)
    rule = algo.rule
    pairs = {"critic_target": "critic", "actor_target": "actor", "value_target": "value"}

    for target, online in pairs.items():
        if target in rule.networks:
            assert same(rule.networks[target].state_dict(), getattr(rule, online))


@EVERY
def test_actors_loss_leaves_no_gradient_in_the_critics(config):
    rule, batch = roamed(config)
    losses = rule.value_and_actor_losses(batch)[1] if config is ALGOS["sac_v"] else rule.actor_loss(batch)
    losses = losses[0] if isinstance(losses, tuple) else losses

    losses.mean().backward()

    assert all(p.grad is None for p in rule.critic.parameters())
    assert all(p.requires_grad for p in rule.critic.parameters())
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in rule.actor.parameters())


@EVERY
@pytest.mark.parametrize("learns", ["actor", "critic"])
def test_a_step_moves_actor_and_critics_each_by_its_own_loss(config, learns):
    other = {"actor": "critic", "critic": "actor"}[learns]
    rule, batch = roamed(config, **{f"{learns}_learning_rate": 0.1, f"{other}_learning_rate": 1e-300})
    moving, still = getattr(rule, learns), getattr(rule, other)
    before, others_before = state(moving), state(still)

    rule.gradient_step(batch, 2, 0)

    assert not same(before, moving)
    assert same(others_before, still)


@EVERY
def test_targets_move_by_tau_after_the_step(config):
    rule, batch = roamed(config, tau=0.25)
    target = rule.value_target if config is ALGOS["sac_v"] else rule.critic_target
    online = rule.value if config is ALGOS["sac_v"] else rule.critic
    before = state(target.module)

    rule.gradient_step(batch, 2, 0)

    for name, now in target.module.state_dict().items():
        torch.testing.assert_close(0.75 * before[name] + 0.25 * online.state_dict()[name], now)


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_td3_updates_policy_and_targets_at_every_delayth_critic_update_and_only_then(delay):
    rule, batch = roamed(ALGOS["td3"], policy_delay=delay)

    for n in range(1, 7):
        actor, critic, target = state(rule.actor), state(rule.critic), state(rule.critic_target.module)
        actor_target = state(rule.actor_target.module)
        numbers = rule.gradient_step(batch, n, 0)

        assert not same(critic, rule.critic)
        due = n % delay == 0
        assert due != same(actor, rule.actor)
        assert due != same(target, rule.critic_target.module)
        assert due != same(actor_target, rule.actor_target.module)
        assert due == ("actorLoss" in numbers)


def test_delay_is_counted_in_critic_updates_not_in_batches_of_samples():
    # 40 env steps an iteration with batch 32 at ratio 8: 10 critic updates, 5 of the policy
    config = replace(ALGOS["td3"], replay_ratio=8.0, policy_delay=2)
    metrics = train(ROAM, config, 5).metrics

    assert len(metrics["criticLoss"]) >= 6
    assert abs(len(metrics["criticLoss"]) - 2 * len(metrics["actorLoss"])) <= 1


@pytest.mark.parametrize(("log_std", "moves"), [(-4.0, 1), (0.0, -1)])
def test_alpha_rises_for_a_policy_too_sure_and_falls_for_one_unsure(log_std, moves):
    # two dimensions: target entropy -2; that of log std -4 is below -5, of log std 0 about +1.2
    algo = train(ROAM, replace(SACConfig(**QUICK), min_steps_learn=10**6), 5).algo
    rule, before = algo.rule, algo.rule.alpha.item()
    with torch.no_grad():
        for layer, bias in ((rule.actor.mean, 0.0), (rule.actor.log_std, log_std)):
            layer.weight.zero_()
            layer.bias.fill_(bias)

    rule.gradient_step(algo.prepare(algo.replay.sample(64)), 1, 0)

    assert moves == np.sign(rule.alpha.item() - before)


def test_fixed_alpha_stays_and_a_learned_one_is_saved():
    algo = train(ROAM, ALGOS["sac"], 8).algo
    assert 0.01 == pytest.approx(algo.rule.alpha.item())
    assert {"critic", "actor"} == set(algo.optimizer_state_dict())

    learned = replace(ALGOS["sac"], fixed_alpha=None, init_alpha=0.5, alpha_learning_rate=0.1)
    algo = train(ROAM, learned, 8).algo
    other = build(ROAM, replace(ALGOS["sac"], fixed_alpha=None))[1]
    other.load_state_dict(algo.state_dict())
    assert algo.rule.alpha.item() != 0.5
    assert torch.equal(algo.rule.alpha, other.rule.alpha)
    assert {"critic", "actor", "alpha"} == set(algo.optimizer_state_dict())


def test_target_entropy_is_minus_the_number_of_dimensions():
    assert -2.0 == build(ROAM, SACConfig())[1].rule._target_entropy
    assert 0.5 == build(ROAM, SACConfig(target_entropy=0.5))[1].rule._target_entropy
    assert build(ROAM, SACConfig(fixed_alpha=0.1))[1].rule._target_entropy is None


@EVERY
def test_what_is_saved_is_loaded_and_learns_on_the_same(config):
    agent, algo, *_ = train(ROAM, config, 5)
    other_agent, other = build(ROAM, config, seed=1)
    other_agent.load_state_dict(agent.state_dict())
    other.load_state_dict(algo.state_dict())
    other.load_optimizer_state_dict(copy.deepcopy(algo.optimizer_state_dict()))
    other.load_progress(algo.progress(), 200)
    batch = algo.prepare(algo.replay.sample(32))

    assert algo.n_updates == other.n_updates > 0
    for n in (1, 2):
        assert algo.rule.gradient_step(batch, n, 0) == other.rule.gradient_step(batch, n, 0)
    assert same(agent.model.state_dict(), other_agent.model)


@EVERY
def test_nothing_is_learned_before_min_steps(config):
    algo = train(ROAM, replace(config, min_steps_learn=10**6), 3).algo

    assert 0 == algo.n_updates


@EVERY
def test_declared_metrics_are_those_that_come(config):
    _, algo, _, metrics = train(ROAM, config, 5)

    assert set(algo.metrics) == set(metrics)
    assert all(len(values) and np.isfinite(values).all() for values in metrics.values())


# refused by name


@EVERY
@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3),
        spaces.Box(0, 3, (2,), np.int64),
        spaces.Dict({"a": spaces.Box(-1, 1, (2,))}),
        spaces.Box(-np.inf, np.inf, (2,)),
        spaces.Box(np.array([-1, -1], np.float32), np.array([1, np.inf], np.float32)),
    ],
    ids=["discrete", "integers", "dict", "unbounded", "half_bounded"],
)
def test_actions_that_are_no_bounded_box_of_floats_are_refused_by_name(config, space):
    (problem,) = config.spec_problems(EnvSpec(spaces.Box(-1, 1, (1,)), space, None, None))

    assert problem.startswith(f"algo: {next(name for name, c in ALGOS.items() if c is config)} needs ")
    assert str(space) in problem


@EVERY
def test_pendulum_is_taken_and_cartpole_refused(config):
    assert [] == config.spec_problems(probe(GymConfig("Pendulum-v1")))
    assert "Discrete(2)" in config.spec_problems(probe(GymConfig("CartPole-v1")))[0]


def test_budgets_too_small_to_learn_or_to_act_are_told():
    assert 2 == len(DDPGConfig().notes(10_000))
    assert [] == DDPGConfig().notes(10_001)
