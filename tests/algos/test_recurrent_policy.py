"""A2C and PPO on recurrent models: what acting saw is what training sees."""

from dataclasses import replace

import pytest
import torch

from rlcli.algos.a2c_config import A2CConfig
from rlcli.algos.ppo_config import PPOConfig
from rlcli.core.tree import map_tree
from rlcli.losses.policy import normalized_advantage
from tests.algos.test_rollout import LivesConfig
from tests.policy_probes import SMALL, CueConfig, Session
from tests.sampler_modes import copy_of
from tests.sampler_probes import WanderConfig

PPO = PPOConfig(discount=0.9, learning_rate=1e-2, epochs=2, minibatches=2)
A2C = A2CConfig(discount=0.9, learning_rate=1e-2, gae_lambda=0.95)
LSTM, GRU = replace(SMALL, recurrent="lstm"), replace(SMALL, recurrent="gru")
KINDS = pytest.mark.parametrize("model", [LSTM, GRU], ids=["lstm", "gru"])


def sensitive(session):
    """Let the policy hang on the state, which a new one hardly does."""
    session.agent.model.policy.weight.data.mul_(100)
    return session


@KINDS
@pytest.mark.parametrize("reset", ["mid_batch", "between_batches"])
@pytest.mark.parametrize("env", [WanderConfig(), LivesConfig(), CueConfig()], ids=["wander", "lives", "cue"])
def test_training_gives_the_actions_the_probabilities_that_acting_gave_them(env, model, reset):
    session = sensitive(Session(env, replace(PPO, minibatches=1), model, batch_T=13, reset=reset))
    for got in session.collected(4):
        metrics = session.algo.update(got.samples, step=session.step)
        assert abs(metrics["approxKL"][0]) < 1e-6
        assert metrics["approxKL"][1] > 1e-5


@KINDS
def test_state_before_each_row_is_noted_when_asked(model):
    session = sensitive(Session(WanderConfig(), PPO, model, batch_T=13))
    session.agent._notes_state = True
    first, second = (copy_of(got.samples) for got in session.collected(2))
    noted = second.record["state"]

    for key in noted:
        assert torch.equal(second.state[key], noted[key][0])
        begins = torch.cat([torch.zeros(1, 4, dtype=torch.bool), ~second.valid])[:13]  # no lives here
        assert noted[key][begins].abs().max() == 0
        assert noted[key][1:][~begins[1:]].abs().max(-1).values.min() > 0
    assert first.valid.shape == noted["h"].shape[:2]


def slow_targets(session, samples, config):
    """Advantages and returns from single steps of the network, restarted by hand."""
    model, (T, B) = session.agent.model, samples.valid.shape
    value, state = [], samples.state
    for t in range(T + 1):
        if t:
            lost_life = samples.terminated[t - 1] & samples.valid[t - 1] & (samples.valid[t] if t < T else True)
            kept = (samples.valid[t - 1] & ~lost_life)[:, None]
            state = {key: leaf * kept for key, leaf in state.items()}
        _, v, state = model.unroll(map_tree(lambda leaf, t=t: leaf[t][None], samples.obs), state)
        value.append(v[0].detach())
    advantage = torch.zeros(T, B)
    for b in range(B):
        following = 0.0
        for t in reversed(range(T)):
            if not samples.valid[t, b]:
                following = 0.0
                continue
            alive = 0.0 if samples.terminated[t, b] else 1.0
            delta = samples.reward[t, b] + config.discount * alive * value[t + 1][b] - value[t][b]
            ends = bool(samples.terminated[t, b] | samples.truncated[t, b])
            following = delta + (0.0 if ends else config.discount * config.gae_lambda * following)
            advantage[t, b] = following
    return advantage


@KINDS
@pytest.mark.parametrize("config", [A2C, replace(PPO, epochs=1, minibatches=1)], ids=["a2c", "ppo"])
@pytest.mark.parametrize("env", [WanderConfig(), LivesConfig()], ids=["wander", "lives"])
def test_value_loss_equals_that_of_a_slow_reference(env, config, model):
    session = Session(env, config, model, batch_T=13)
    session.agent.model.value.weight.data.mul_(10)
    *_, got = session.collected(2)
    expected = slow_targets(session, got.samples, config)[got.samples.valid].square().mean() / 2

    metrics = session.algo.update(got.samples, step=session.step)

    assert bool((~got.samples.valid).any())
    assert expected.item() == pytest.approx(metrics["valueLoss"][0], rel=1e-4)


@KINDS
def test_policy_loss_equals_that_of_a_slow_reference_with_advantages_normalised_over_valid_rows(model):
    config = replace(PPO, epochs=1, minibatches=1)
    session = Session(WanderConfig(), config, model, batch_T=13)
    *_, got = session.collected(2)
    samples = got.samples
    advantage = slow_targets(session, samples, config)
    shift = 0.1 * torch.randn(samples.valid.shape, generator=torch.Generator().manual_seed(0))
    samples.record["log_prob"] += shift
    A = normalized_advantage(advantage[samples.valid], torch.ones(int(samples.valid.sum()), dtype=torch.bool))
    ratio = (-shift[samples.valid]).exp()
    expected = -torch.minimum(ratio * A, ratio.clamp(0.8, 1.2) * A).mean()

    metrics = session.algo.update(samples, step=session.step)

    assert expected.item() == pytest.approx(metrics["policyLoss"][0], rel=1e-3)


@pytest.mark.parametrize(("minibatches", "sizes"), [(3, [1, 2, 2]), (2, [2, 3]), (9, [1] * 5)])
def test_minibatches_are_whole_environments_and_leave_none_out(minibatches, sizes):
    session = Session(WanderConfig(), replace(PPO, epochs=1, minibatches=minibatches), LSTM, n_envs=5)
    seen = []
    unroll = session.agent.unroll
    session.agent.unroll = lambda obs, state, begins: (seen.append((obs, state)), unroll(obs, state, begins))[1]
    *_, got = session.collected(2)

    session.algo.update(got.samples, step=100)

    assert sizes == sorted(state["h"].shape[0] for _, state in seen[1:])
    columns = torch.cat([obs["obs"].transpose(0, 1) for obs, _ in seen[1:]])
    assert sorted(columns.tolist()) == sorted(got.samples.obs["obs"][:-1].transpose(0, 1).tolist())
    states = torch.cat([state["h"] for _, state in seen[1:]])
    assert sorted(states.tolist()) == sorted(got.samples.state["h"].tolist())
    assert int(got.samples.valid.sum()) == session.algo.n_consumed


def test_environments_without_a_valid_row_take_no_gradient_step():
    session = Session(WanderConfig(), replace(PPO, epochs=3, minibatches=4), LSTM)
    (got,) = session.collected(1)
    got.samples.valid[:, 1] = False

    session.algo.update(got.samples, step=100)

    assert 3 * 3 == session.algo.n_updates


def test_fillers_of_a_sequence_change_nothing():
    found = []
    for value in (0.0, 1e6):
        session = Session(WanderConfig(), PPO, LSTM, batch_T=13)
        *_, got = session.collected(2)
        samples = got.samples
        filler = ~samples.valid
        samples.reward[filler] = value
        samples.record["log_prob"][filler] = -value
        metrics = session.algo.update(samples, step=session.step)
        assert filler.any()
        found.append((dict(metrics), session.agent.model.value.weight.clone()))

    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])


CUE = PPOConfig(learning_rate=1e-2, epochs=4, minibatches=2)


def score_of_cue(model, n_updates, seed=0):
    session = Session(CueConfig(), CUE, model, batch_T=28, n_envs=16, seed=seed)
    session.train(n_updates)
    return session.evaluate()


def test_a_cue_is_remembered_by_ppo_with_a_state():
    assert score_of_cue(LSTM, 20) == 1.0


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(3))
def test_a_cue_is_remembered_by_ppo_with_any_state_and_not_without_for_each_seed(seed):
    assert score_of_cue(LSTM, 60, seed) == 1.0
    assert score_of_cue(GRU, 60, seed) == 1.0
    assert abs(score_of_cue(replace(SMALL, observe_previous=True), 60, seed)) <= 0.5
