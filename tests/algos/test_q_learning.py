"""What holds for every algorithm of the Q-learning family, and the targets that differ."""

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from rlcli.algos.cat_dqn import CategoricalLoss
from rlcli.algos.cat_dqn_config import CatDQNConfig, RainbowConfig
from rlcli.algos.dqn import ExpectedLoss
from rlcli.algos.dqn_config import DQNConfig
from rlcli.algos.draws import Draws
from rlcli.algos.iqn import QuantileLoss
from rlcli.algos.iqn_config import IQNConfig
from rlcli.envs.config import GymConfig
from rlcli.envs.probe import probe
from rlcli.replay.config import PrioritizedReplayConfig
from rlcli.replay.replay import ReplayBatch
from tests.learning_probes import build, train
from tests.sampler_probes import WanderConfig

FAST: dict[str, Any] = {
    "discount": 0.9,
    "learning_rate": 1e-2,
    "batch_size": 32,
    "min_steps_learn": 100,
    "target_update_interval": 10,
    "replay_ratio": 32,
}
DQN = DQNConfig(**FAST)
C51 = CatDQNConfig(**FAST, v_min=0, v_max=20, n_atoms=21)
RAINBOW = RainbowConfig(**FAST, v_min=0, v_max=20, n_atoms=21)
IQN = IQNConfig(**FAST, n_tau=8, n_tau_target=8, n_tau_act=8, n_cosines=16)
ALL = {"dqn": DQN, "cat_dqn": C51, "iqn": IQN, "rainbow": RAINBOW}
EACH = pytest.mark.parametrize("config", ALL.values(), ids=ALL)
DISTRIBUTIONAL = pytest.mark.parametrize("config", [C51, IQN, RAINBOW], ids=["cat_dqn", "iqn", "rainbow"])


def shaken(algo):
    """The algorithm, its online network moved away from its target."""
    torch.manual_seed(1)
    with torch.no_grad():
        for p in algo.rule.model.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return algo


def wandering(config, **changes):
    """A learner that has seen a little of an env with all kinds of ends, and learned nothing."""
    config = replace(config, min_steps_learn=10**6, **changes)
    return shaken(train(WanderConfig(), config, 10).algo)


def again(algo, call):
    """What ``call`` gives on the random numbers that come next, which then come again."""
    state = algo._draws.state()
    result = call()
    algo._draws.load_state(state)
    return result


# targets, slowly


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("n_step", [1, 3])
def test_c51_loss_and_priority_equal_a_slow_reference(double, n_step, dueling):
    config = {"double_dqn": double, "n_step_return": n_step, "dueling": dueling, "v_min": -3, "v_max": 3, "n_atoms": 7}
    algo = wandering(C51, **config)
    batch = algo.replay.sample(64)
    z = [-3.0, -2, -1, 0, 1, 2, 3]

    def mean(p):
        return sum(z[i] * p[i].item() for i in range(7))

    losses, priorities = [], []
    for i in range(64):
        p_next = algo.rule.target.module.logits(batch.next_obs[i : i + 1])[0].softmax(-1)
        chooser = algo.rule.model.logits(batch.next_obs[i : i + 1])[0].softmax(-1) if double else p_next
        best = max(range(3), key=lambda a, c=chooser: mean(c[a]))
        m = [0.0] * 7
        for j in range(7):
            b = min(max(batch.return_[i].item() + batch.discount_n[i].item() * z[j], -3.0), 3.0) + 3
            low = min(int(b), 5)
            m[low] += (low + 1 - b) * p_next[best][j].item()
            m[low + 1] += (b - low) * p_next[best][j].item()
        log_p = algo.rule.model.logits(batch.obs[i : i + 1])[0][batch.action[i]].log_softmax(-1)
        losses.append(-sum(m[k] * log_p[k].item() for k in range(7)))
        priorities.append(losses[-1] + sum(x * math.log(x) for x in m if x > 1e-12))

    judged = algo.rule.judge(batch)
    torch.testing.assert_close(torch.tensor(losses), judged.loss.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.tensor(priorities), judged.priority, rtol=1e-3, atol=1e-4)
    assert bool((batch.discount_n == 0).any())
    assert bool((batch.discount_n > 0).any())
    assert bool((batch.return_ + 3 * batch.discount_n > 3).any()), "nothing lies beyond the atoms"


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("n_step", [1, 3])
def test_iqn_loss_equals_a_slow_reference(double, n_step):
    algo = wandering(IQN, double_dqn=double, n_step_return=n_step, n_tau=3, n_tau_target=4, n_tau_act=2, kappa=0.7)
    batch = algo.replay.sample(32)
    judged = again(algo, lambda: algo.rule.judge(batch))
    tau_target, tau = algo._draws.uniform(32, 4), algo._draws.uniform(32, 3)

    for i in range(32):
        next_obs, obs = batch.next_obs[i : i + 1], batch.obs[i : i + 1]
        chooser = algo.rule.model if double else algo.rule.target.module
        q = [chooser.quantiles(next_obs, torch.tensor([[0.25, 0.75]]))[0, :, a].mean().item() for a in range(3)]
        best = max(range(3), key=lambda a, q=q: q[a])
        z = algo.rule.target.module.quantiles(next_obs, tau_target[i : i + 1])[0, :, best]
        y = [batch.return_[i].item() + batch.discount_n[i].item() * value.item() for value in z]
        theta = algo.rule.model.quantiles(obs, tau[i : i + 1])[0, :, batch.action[i]]
        expected = 0.0
        for k in range(3):
            for target in y:
                d = target - theta[k].item()
                huber = 0.5 * d**2 if abs(d) <= 0.7 else 0.7 * (abs(d) - 0.35)
                expected += abs(tau[i, k].item() - (d < 0)) * huber / 0.7 / 4
        assert judged.loss[i].item() == pytest.approx(expected, rel=1e-3, abs=1e-4)
    torch.testing.assert_close(judged.loss.detach(), judged.priority)


def test_dqn_priority_is_the_size_of_the_error_beyond_delta_clip_too():
    algo = wandering(DQN, delta_clip=0.1)

    judged = algo.rule.judge(algo.replay.sample(64))

    torch.testing.assert_close(judged.delta.abs(), judged.priority)
    assert float(judged.priority.max()) > 0.1


@EACH
def test_error_and_value_are_those_of_the_action_values(config):
    algo = wandering(config, noisy=False)
    batch = algo.replay.sample(16)

    judged = algo.rule.judge(batch)

    if config is not IQN:  # whose loss has quantiles at random places
        q = algo.rule.model(batch.obs).gather(1, batch.action[:, None])[:, 0].detach()
        torch.testing.assert_close(q, judged.q)
    assert (16,) == judged.loss.shape == judged.priority.shape == judged.delta.shape == judged.q.shape
    assert judged.loss.requires_grad
    assert not any(x.requires_grad for x in (judged.priority, judged.delta, judged.q))
    assert bool((judged.priority >= 0).all())


# prioritized replay


@EACH
def test_importance_weights_multiply_the_losses(config):
    algo = wandering(config)
    batch = replace(algo.replay.sample(32), weight=torch.linspace(0, 1, 32))
    judged = again(algo, lambda: algo.rule.judge(batch))

    metrics = algo.rule.gradient_step(batch, 1, 0)

    assert metrics["loss"] == pytest.approx((torch.linspace(0, 1, 32) * judged.loss).mean().item(), rel=1e-5)
    assert metrics["loss"] != pytest.approx(judged.loss.mean().item(), rel=1e-2)


@EACH
def test_transitions_of_weight_nothing_teach_nothing(config):
    first, second = wandering(config), wandering(config)
    batch = first.replay.sample(2)
    other = replace(batch, return_=batch.return_ + torch.tensor([0.0, 5.0]))
    weight = torch.tensor([1.0, 0.0])

    first.rule.gradient_step(replace(batch, weight=weight), 1, 0)
    second.rule.gradient_step(replace(other, weight=weight), 1, 0)

    for a, b in zip(first.rule.model.parameters(), second.rule.model.parameters(), strict=True):
        torch.testing.assert_close(a, b)


@EACH
def test_each_gradient_step_reports_its_priorities(config, monkeypatch):
    algo = wandering(config)
    batch = algo.replay.sample(32)
    reported = []
    monkeypatch.setattr(algo.replay, "update_priorities", lambda *given: reported.append(given))
    judged = again(algo, lambda: algo.rule.judge(batch))

    algo.rule.gradient_step(batch, 1, 0)

    ((row, env, priority),) = reported
    assert row is batch.row
    assert env is batch.env
    torch.testing.assert_close(judged.priority, priority)


@EACH
def test_prioritized_replay_draws_by_the_priorities_that_learning_gave(config):
    config = replace(config, min_steps_learn=0, replay_ratio=8)
    _, algo = build(WanderConfig(), config, replay=PrioritizedReplayConfig(size=2_000, alpha=1.0))
    source = train(WanderConfig(), replace(DQN, min_steps_learn=10**6), 1, batch_T=60)
    algo.update(source.samples, step=source.step)

    drawn = algo.replay.sample(64)

    assert algo.n_updates > 10
    assert float(drawn.weight.min()) < 0.5  # not all alike any more
    assert 1.0 == float(drawn.weight.max())


@EACH
def test_a_prioritized_replay_hears_the_env_steps_so_far_at_each_gradient_step(config, monkeypatch):
    config = replace(config, min_steps_learn=0, replay_ratio=8)
    _, algo = build(WanderConfig(), config, replay=PrioritizedReplayConfig(size=2_000))
    source = train(WanderConfig(), replace(DQN, min_steps_learn=10**6), 1, batch_T=60)
    steps, sample = [], algo.replay.sample
    monkeypatch.setattr(algo.replay, "sample", lambda n, step: (steps.append(step), sample(n, step))[1])

    algo.update(source.samples, step=5_000)

    assert {5_000} == set(steps)
    assert algo.n_updates == len(steps) > 10


# noise


@dataclass
class Call:
    network: str
    obs: str
    noise: torch.Tensor


def noises(loss, algo, batch, monkeypatch, draws):
    """The noise of each pass through the online and the target network in one call of the loss."""
    calls = []
    for name, network in (("online", algo.rule.model), ("target", algo.rule.target.module)):
        for method in ("logits", "quantiles", "forward"):
            if not hasattr(network, method):
                continue
            original = getattr(type(network), method)

            def spy(obs, *rest, original=original, network=network, name=name, method=method):
                noise = rest[-1] if rest else None
                outer = method != "forward" or type(network).__name__ == "QNetwork"
                if outer:
                    calls.append(Call(name, "next" if obs is batch.next_obs else "now", noise))
                return original(network, obs, *rest)

            monkeypatch.setattr(network, method, spy)
    loss(algo.rule.model, algo.rule.target.module, batch, draws)
    return calls


LOSSES = {
    "dqn": (DQN, ExpectedLoss(True, 1.0)),
    "cat_dqn": (C51, CategoricalLoss(True)),
    "iqn": (IQN, QuantileLoss(True, 8, 8, 1.0)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_online_target_and_choosing_network_have_noise_of_their_own_drawn_anew_each_step(name, monkeypatch):
    config, loss = LOSSES[name]
    algo = wandering(config, noisy=True, dueling=True, double_dqn=True)
    batch, draws = algo.replay.sample(8), Draws(0)

    calls = noises(loss, algo, batch, monkeypatch, draws)
    with monkeypatch.context() as patch:
        calls += noises(loss, algo, batch, patch, draws)[:3]

    where = [(call.network, call.obs) for call in calls[:3]]
    assert {("online", "now"), ("online", "next"), ("target", "next")} == set(where)
    drawn = torch.cat([call.noise for call in calls])
    assert (1, algo.rule.model.n_noise) == tuple(calls[0].noise.shape)
    assert len(calls) == len(drawn.unique(dim=0)), "some noise was used twice"


@EACH
def test_noise_is_drawn_anew_in_each_gradient_step_if_there_is_any(config):
    algo = wandering(config, noisy=config is not DQN)
    batch = algo.replay.sample(8)

    first, second = algo.rule.judge(batch).loss, algo.rule.judge(batch).loss

    assert torch.equal(first, second) == (config is DQN)


# the rest


@EACH
def test_action_space_that_does_not_suit_is_refused_by_name(config):
    (problem,) = config.spec_problems(probe(GymConfig("Pendulum-v1")))

    assert f"algo: {config.name} needs one Discrete action, env has Box" in problem


def test_atoms_that_do_not_rise_are_refused():
    (problem,) = CatDQNConfig(v_min=1, v_max=1).problems()

    assert "v_max: 1 must be > v_min, which is 1" == problem


@EACH
def test_learner_goes_on_with_the_same_random_numbers(config):
    algo = wandering(config)
    algo._draws.uniform(3)
    state = algo.progress()
    expected = algo._draws.uniform(5)

    _, fresh = build(WanderConfig(), config)
    fresh.load_progress(state, 0)

    assert torch.equal(expected, fresh._draws.uniform(5))


@EACH
def test_batch_of_one_is_learned_from(config):
    algo = wandering(config)

    metrics = algo.rule.gradient_step(algo.replay.sample(1), 1, 0)

    assert set(algo.metrics) == set(metrics)
    assert all(math.isfinite(value) for value in metrics.values())
    assert isinstance(algo.replay.sample(1), ReplayBatch)
