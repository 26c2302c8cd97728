from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlcli.algos.ppo_config import PPOConfig
from rlcli.core.samples import Samples
from rlcli.core.spec import EnvSpec
from rlcli.losses.policy import approximate_kl
from rlcli.losses.reduce import masked_mean
from tests.algos.test_lost_rows import CUTS, stream, weights
from tests.algos.test_rollout import LivesConfig
from tests.learning_probes import ConstantConfig, build
from tests.policy_probes import SMALL, Session
from tests.sampler_probes import WanderConfig

FAST = PPOConfig(discount=0.9, learning_rate=1e-2, epochs=4, minibatches=2, clip_grad_norm=None)
ONE_STEP = replace(FAST, epochs=1, minibatches=1, learning_rate=1e-9)


def value_of_constant(agent):
    return agent.model(torch.ones(1, 2))[1].item()


# one batch against a slow reference


def slow_loss(config, agent, samples):
    """(loss, policy loss, value loss, entropy) of a whole batch, row by row from the equations."""
    T, B = samples.valid.shape
    logits, value = agent.model(samples.obs.flatten(0, 1))
    logits, value = logits.view(T + 1, B, -1).detach(), value.view(T + 1, B).detach()
    old = torch.cat([samples.record["value"], value[T:]])
    found = []
    for b in range(B):
        following = 0.0
        for t in reversed(range(T)):
            if not samples.valid[t, b]:
                following = 0.0
                continue
            alive = 0.0 if samples.terminated[t, b] else 1.0
            delta = samples.reward[t, b] + config.discount * alive * old[t + 1, b] - old[t, b]
            ends = bool(samples.terminated[t, b] | samples.truncated[t, b])
            following = delta + (0.0 if ends else config.discount * config.gae_lambda * following)
            log_p = logits[t, b].log_softmax(-1)
            ratio = (log_p[samples.action[t, b]] - samples.record["log_prob"][t, b]).exp()
            found.append(
                (
                    float(following),
                    float(ratio),
                    float(value[t, b]),
                    float(old[t, b]),
                    -float((log_p.exp() * log_p).sum()),
                )
            )
    A, ratio, v, old_v, entropy = np.array(found).T
    target = A + old_v
    if config.normalize_advantage:
        A = (A - A.mean()) / A.std()
    c = config.ratio_clip
    policy = -np.minimum(ratio * A, np.clip(ratio, 1 - c, 1 + c) * A).mean()
    errors = (v - target) ** 2
    if config.clip_value_loss:
        errors = np.maximum(errors, (old_v + np.clip(v - old_v, -c, c) - target) ** 2)
    losses = policy, 0.5 * errors.mean(), entropy.mean()
    return policy + config.value_loss_coeff * losses[1] - config.entropy_loss_coeff * losses[2], *losses


@pytest.mark.parametrize("change", [{}, {"normalize_advantage": False}, {"clip_value_loss": True}], ids=str)
@pytest.mark.parametrize("env", [WanderConfig(), LivesConfig()], ids=["wander", "lives"])
def test_loss_equals_a_slow_reference_also_where_ratios_and_values_are_clipped(env, change):
    config = replace(ONE_STEP, entropy_loss_coeff=0.3, **change)
    session = Session(env, config, batch_T=12, n_envs=3)
    (got,) = session.collected(1)
    noise = torch.Generator().manual_seed(0)
    for name in ("log_prob", "value"):  # as if the noted ones were of another policy
        got.samples.record[name] += 0.3 * torch.randn(12, 3, generator=noise)
    expected = slow_loss(config, session.agent, got.samples)

    metrics = session.algo.update(got.samples, step=36)

    assert bool((~got.samples.valid).any())
    names = ("loss", "policyLoss", "valueLoss", "entropy")
    assert {n: pytest.approx(e, rel=1e-4) for n, e in zip(names, expected, strict=True)} == {
        n: metrics[n][0] for n in names
    }
    assert metrics["clipFraction"][0] > 0.2


def test_the_noted_log_probs_stay_the_old_ones_through_all_epochs():
    session = Session(WanderConfig(), replace(FAST, epochs=3, minibatches=1))
    (got,) = session.collected(1)
    samples = got.samples

    metrics = session.algo.update(samples, step=40)
    logits, _ = session.agent.model(samples.obs[:-1].flatten(0, 1))
    log_prob = session.agent.distribution.log_prob(logits, samples.action.flatten()).view(samples.valid.shape)
    after = masked_mean(approximate_kl(log_prob, samples.record["log_prob"]), samples.valid).item()

    first, second, third = metrics["approxKL"]
    assert abs(first) < 1e-6
    assert 1e-4 < second < third
    assert after > third


def test_the_agent_notes_what_the_model_gives():
    session = Session(WanderConfig(), ONE_STEP)
    (got,) = session.collected(1)
    params, value = session.agent.model(got.samples.obs[:-1].flatten(0, 1))

    log_prob = session.agent.distribution.log_prob(params, got.samples.action.flatten())

    torch.testing.assert_close(value.view(10, 4), got.samples.record["value"])
    torch.testing.assert_close(log_prob.view(10, 4), got.samples.record["log_prob"])


# minibatches


@pytest.mark.parametrize("minibatches", [1, 3, 7, 1000])
def test_every_valid_row_is_learned_from_once_an_epoch_whatever_the_number_of_minibatches(minibatches):
    seen = []
    session = Session(WanderConfig(), replace(FAST, epochs=2, minibatches=minibatches))
    unroll = session.agent.unroll
    session.agent.unroll = lambda obs, state, begins: (seen.append(obs.clone()), unroll(obs, state, begins))[1]
    (got,) = session.collected(1)
    samples = got.samples
    n_valid = int(samples.valid.sum())

    session.algo.update(samples, step=40)

    rows = torch.cat([obs.flatten(0, 1) for obs in seen[1:]])  # the first is of the last observations
    expected = torch.cat([samples.obs[:-1][samples.valid]] * 2)
    assert sorted(expected.tolist()) == sorted(rows.tolist())
    assert 2 * n_valid == session.algo.n_consumed < 80
    assert 2 * min(minibatches, n_valid) == session.algo.n_updates
    sizes = {obs.shape[1] for obs in seen[1:]}
    assert max(sizes) - min(sizes) <= 1


def test_one_number_for_each_minibatch_and_one_explained_variance():
    (metrics,) = Session(WanderConfig(), FAST).train(1)

    assert {name: 1 if name == "explainedVariance" else 8 for name in metrics} == {
        n: len(v) for n, v in metrics.items()
    }
    assert tuple(metrics) == Session(WanderConfig(), FAST).algo.metrics


def test_values_that_are_learned_explain_the_returns():
    metrics = Session(ConstantConfig(dies=True), FAST, batch_T=40).train(3)

    assert metrics[0]["explainedVariance"][0] < 0.5
    assert all(number <= 1 for m in metrics for number in m["explainedVariance"])


def test_a_large_divergence_ends_the_epochs():
    (metrics,) = Session(WanderConfig(), replace(FAST, epochs=10, target_kl=1e-9)).train(1)

    assert 2 == len(metrics["loss"])


def test_an_epoch_below_the_target_divergence_ends_nothing():
    (metrics,) = Session(WanderConfig(), replace(FAST, epochs=10, target_kl=1e9)).train(1)

    assert 20 == len(metrics["loss"])


# schedules


def test_learning_rate_and_clipping_have_schedules_of_their_own():
    def scalars(**changes):
        _, algo = build(ConstantConfig(False), replace(FAST, learning_rate=1.0, ratio_clip=0.2, **changes))
        return tuple(algo.scalars(2_500).values())  # of 10,000

    assert (1.0, 0.2) == scalars()
    assert (0.75, 0.2) == scalars(learning_rate_schedule="linear")
    assert (1.0, pytest.approx(0.15)) == scalars(ratio_clip_schedule="linear")


def test_the_clip_schedule_reaches_the_loss():
    fractions = []
    for step in (40, 9_040):
        config = replace(ONE_STEP, ratio_clip_schedule="linear")
        session = Session(WanderConfig(), config)
        (got,) = session.collected(1)
        got.samples.record["log_prob"] += 0.1  # a ratio of 0.905
        fractions.append(session.algo.update(got.samples, step=step)["clipFraction"][0])

    assert [0.0, 1.0] == fractions  # clipped beyond 0.2, then beyond 0.02


def test_the_last_batch_of_a_linear_schedule_is_learned_from():
    config = replace(FAST, learning_rate_schedule="linear", ratio_clip_schedule="linear")
    session = Session(ConstantConfig(dies=True), config)
    (got,) = session.collected(1)
    before = weights(session.algo)

    session.algo.update(got.samples, step=10_000)

    assert not torch.equal(before, weights(session.algo))


# rows that are no experience


def noted(batches):
    """With what PPO's agent would have noted; it depends on row and environment alone."""
    made = []
    for samples in batches:
        T, B = samples.valid.shape
        rows = torch.arange(T * B, dtype=torch.float32).view(B, T).T
        record = {"value": rows / 10, "log_prob": -0.6 - rows / 1000}
        made.append(Samples(*(getattr(samples, name) for name in Samples.__slots__[:6]), record=record, state=None))
    return made


def learn(batches, config=FAST):
    _, algo = build(ConstantConfig(dies=False), config, batches[0].valid.shape[1])
    return algo, [dict(algo.update(samples, step=100)) for samples in batches]


@pytest.mark.parametrize(("cut", "truncated"), CUTS)
def test_cut_teaches_what_a_truncation_of_the_row_before_it_teaches(cut, truncated):
    expected, expected_metrics = learn(noted(stream(truncated)))
    algo, metrics = learn(noted(stream(cut)))

    assert expected_metrics == metrics
    assert torch.equal(weights(expected), weights(algo))
    assert expected.n_consumed == algo.n_consumed


@pytest.mark.parametrize("normalize", [False, True])
def test_lost_slice_teaches_nothing(normalize):
    config = replace(FAST, normalize_advantage=normalize, normalize_reward=normalize)
    kept = "..T_.U_...C....."
    expected, expected_metrics = learn(noted(stream([kept])), config)
    algo, metrics = learn(noted(stream([kept, "C0000000C0000000"])), config)

    for wanted, got in zip(expected_metrics, metrics, strict=True):
        assert {name: pytest.approx(values, rel=1e-3, abs=1e-5) for name, values in wanted.items()} == got
    torch.testing.assert_close(weights(expected), weights(algo))
    assert expected.n_consumed == algo.n_consumed == 4 * 13


def test_batch_without_a_valid_row_takes_no_gradient_step():
    first, lost, last = noted(stream(["........C0000000........", "........C0000000........"]))
    algo, _ = learn([first])
    before, n_updates = weights(algo), algo.n_updates

    assert {name: [] for name in algo.metrics} == algo.update(lost, step=100)
    assert torch.equal(before, weights(algo))
    assert n_updates == algo.n_updates
    assert algo.update(last, step=100)["loss"]


def test_batch_of_a_single_valid_row_is_learned_from():
    algo, (metrics,) = learn(noted(stream([".C000000"])))

    assert 4 == algo.n_updates
    assert np.isfinite(metrics["loss"]).all()
    assert torch.isfinite(weights(algo)).all()


# going on


def test_going_on_from_progress_shuffles_and_scales_as_if_never_stopped():
    config = replace(FAST, normalize_reward=True)
    first, second = noted(stream(["..T_.U_.........", "......T_...U_..."]))
    expected, _ = learn([first, second], config)
    stopped, _ = learn([first], config)
    _, algo = build(ConstantConfig(dies=False), config, 2)
    algo._agent.load_state_dict(stopped._agent.state_dict())
    algo.load_optimizer_state_dict(stopped.optimizer_state_dict())
    algo.load_state_dict(stopped.state_dict())
    algo.load_progress(stopped.progress(), 100)

    algo.update(second, step=100)

    assert torch.equal(weights(expected), weights(algo))
    assert (expected.n_updates, expected.n_consumed) == (algo.n_updates, algo.n_consumed)


def test_seed_decides_the_order_of_the_rows():
    batches = noted(stream(["..T_.U_.", "......T_"]))
    found = []
    for seed in (0, 0, 1):
        _, algo = build(ConstantConfig(dies=False), FAST, 2, seed=seed)
        algo.update(batches[0], step=100)
        found.append(weights(algo))

    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


# normalised observations and rewards


def test_statistics_of_observations_move_after_the_epochs_with_valid_rows_only():
    model = replace(SMALL, normalize_obs=True)
    session = Session(WanderConfig(), replace(FAST, minibatches=1), model)
    session.agent.model.policy.weight.data.mul_(100)  # so that another normalisation would be another policy
    seen = []
    for got in session.collected(3):
        metrics = session.algo.update(got.samples, step=session.step)
        seen.append(got.samples.obs[:-1][got.samples.valid])
        assert abs(metrics["approxKL"][0]) < 1e-6

    moments = session.agent.model.normalizer.moments[0]
    np.testing.assert_allclose(moments.mean, torch.cat(seen).double().mean(0))
    np.testing.assert_allclose(moments.variance, torch.cat(seen).double().var(0, unbiased=False))


def test_evaluation_leaves_the_statistics_alone():
    session = Session(WanderConfig(), FAST, replace(SMALL, normalize_obs=True))
    session.train(1)
    before = {name: weight.clone() for name, weight in session.agent.weights().items()}

    session.evaluate()

    assert all(torch.equal(weight, before[name]) for name, weight in session.agent.weights().items())
    assert "normalizer.moments.0.mean" in before


def test_scaled_rewards_reach_the_targets():
    session = Session(ConstantConfig(dies=False), replace(FAST, normalize_reward=True, discount=0.9))
    session.train(60)

    # about 10 over the deviation of the discounted return, by which rewards of 1 are divided
    deviation = session.algo._scale.variance**0.5
    assert value_of_constant(session.agent) == pytest.approx(10 / deviation, rel=0.1)
    assert deviation > 1.5


# what suits


@pytest.mark.parametrize("algo", ["a2c", "ppo"])
@pytest.mark.parametrize(
    ("space", "told"),
    [
        (spaces.Box(0, 5, (2,), np.int64), "Box"),
        (spaces.Tuple([spaces.Discrete(2), spaces.Text(3)]), r"Text\(.*\) in Tup"),
    ],
    ids=["integers", "text"],
)
def test_actions_without_a_distribution_are_refused_by_name(algo, space, told):
    from rlcli.cli.schema import config_class

    (problem,) = config_class("algo", algo)().spec_problems(EnvSpec(spaces.Discrete(2), space, None, None))

    assert problem.startswith(
        f"algo: {algo} needs actions that are Discrete, MultiDiscrete, MultiBinary, a Box of floats"
    )
    assert __import__("re").search(told, problem)
