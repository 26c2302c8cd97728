"""Rainbow as a whole, one batch: double, dueling, distributional, noisy, three steps, prioritized.

The reference is written out in numpy and float64 from the stream that was lived through, the weights' names and the
numbers that the noise is made of.
"""

import contextlib

import numpy as np
import pytest
import torch

from rlcli.algos.cat_dqn_config import RainbowConfig
from rlcli.models.config import AutoModelConfig
from rlcli.replay.config import PrioritizedReplayConfig
from rlcli.samplers.config import SerialConfig
from tests.learning_probes import build
from tests.sampler_modes import copy_of
from tests.sampler_probes import WanderConfig, make_setup

ATOMS = np.arange(-3.0, 4.0)
N_ACTIONS, DISCOUNT, ALPHA, EPS, STEP = 3, 0.9, 0.5, 0.01, 2_500
BETA = 0.4 + 0.6 * STEP / 10_000
CONFIG = RainbowConfig(
    discount=DISCOUNT, v_min=-3, v_max=3, n_atoms=7, min_steps_learn=10**9, learning_rate=1e-3, clip_grad_norm=None
)
REPLAY = PrioritizedReplayConfig(size=2_000, alpha=ALPHA, beta=0.4, beta_final=1.0, priority_eps=EPS)


@pytest.fixture
def lived(monkeypatch):
    """(algo, stream, heard): a learner that has not learned, what it stored, and a list of the priorities it tells."""
    agent, algo = build(WanderConfig(), CONFIG, model=AutoModelConfig(mlp_hidden=[8, 6]), replay=REPLAY)
    kept = []
    with contextlib.closing(SerialConfig(20, 4).build(make_setup(WanderConfig(), agent))) as sampler:
        for step in (80, 160, 240):
            kept.append(copy_of(sampler.collect(step).samples))
            algo.update(kept[-1], step=step)
    names = ("obs", "action", "reward", "terminated", "truncated")
    stream = {name: torch.cat([getattr(s, name)[:20] for s in kept]).numpy() for name in names}
    stream["obs"] = np.concatenate([stream["obs"], kept[-1].obs[20:].numpy()])
    torch.manual_seed(1)
    with torch.no_grad():
        for network in (algo.rule.model, algo.rule.target.module):
            for p in network.parameters():
                p.add_(0.3 * torch.randn_like(p))
            network.trunk.mlp[0].weight.mul_(0.05)  # observations go up to 100
    row, env = (torch.from_numpy(places) for places in algo.replay.eligible())
    algo.replay.update_priorities(row, env, priority_of(row, env) - EPS)
    heard, tell = [], algo.replay.update_priorities
    monkeypatch.setattr(algo.replay, "update_priorities", lambda *told: (heard.append(told), tell(*told)))
    return algo, stream, heard


def priority_of(row, env):
    """Any numbers."""
    return 1.0 + (7 * row + 3 * env) % 11


def logits(network, obs, noise):
    """[A, M] of one observation; each noisy layer takes its inputs' and then its outputs' numbers, advantage first."""
    w = {name: tensor.double().numpy() for name, tensor in network.state_dict().items()}
    noise = iter(np.sign(noise) * np.sqrt(np.abs(noise)))
    features = np.maximum(w["trunk.mlp.0.weight"] @ obs + w["trunk.mlp.0.bias"], 0)

    def stream(name):
        x = features
        for layer in (0, 2):
            mu, sigma = w[f"streams.{name}.{layer}.weight"], w[f"streams.{name}.{layer}.weight_sigma"]
            into = np.array([next(noise) for _ in range(mu.shape[1])])
            out = np.array([next(noise) for _ in range(mu.shape[0])])
            bias = w[f"streams.{name}.{layer}.bias"] + w[f"streams.{name}.{layer}.bias_sigma"] * out
            x = (mu + sigma * np.outer(out, into)) @ (x if layer == 0 else np.maximum(x, 0)) + bias
        return x

    advantage, value = stream("advantage").reshape(N_ACTIONS, -1), stream("value")
    assert not list(noise)
    return value + advantage - advantage.mean(axis=0)


def softmax(x):
    p = np.exp(x - x.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def window(stream, row, env):
    """(return, discount, observation behind the window)."""
    return_, discount = 0.0, 1.0
    for t in range(row, row + 3):
        return_ += discount * stream["reward"][t, env]
        discount *= DISCOUNT
        if stream["terminated"][t, env]:
            return return_, 0.0, stream["obs"][t + 1, env]
        if stream["truncated"][t, env]:
            break
    return return_, discount, stream["obs"][t + 1, env]


def judged(algo, stream, row, env, noise):
    """(cross-entropy, divergence, error, value) of one transition; ``noise`` of target, choice and prediction."""
    return_, discount, next_obs = window(stream, row, env)
    online, target = algo.rule.model, algo.rule.target.module
    best = int(np.argmax(softmax(logits(online, next_obs, noise[1])) @ ATOMS))
    m = np.zeros(7)
    for z, p in zip(ATOMS, softmax(logits(target, next_obs, noise[0]))[best], strict=True):
        b = min(max(return_ + discount * z, -3.0), 3.0) + 3.0
        low = min(int(b), 5)
        m[low] += p * (low + 1 - b)
        m[low + 1] += p * (b - low)
    prediction = softmax(logits(online, stream["obs"][row, env], noise[2]))[stream["action"][row, env]]
    loss = -(m * np.log(prediction)).sum()
    return loss, loss + sum(x * np.log(x) for x in m if x > 0), m @ ATOMS - prediction @ ATOMS, prediction @ ATOMS


def test_a_gradient_step_on_one_batch_equals_a_slow_reference(lived):
    algo, stream, heard = lived
    batch = algo.replay.sample(64, STEP)
    places = list(zip(batch.row.tolist(), batch.env.tolist(), strict=True))
    before, n_noise = algo._draws.state(), algo.rule.model.n_noise
    noise = [algo._draws.normal(n_noise).double().numpy() for _ in range(3)]
    algo._draws.load_state(before)
    found = np.array([judged(algo, stream, row, env, noise) for row, env in places])
    everything = [priority_of(row, env) ** ALPHA for row, env in zip(*algo.replay.eligible(), strict=True)]
    share = np.array([priority_of(row, env) ** ALPHA for row, env in places]) / sum(everything)
    weight = (len(everything) * share) ** -BETA
    weight /= weight.max()

    metrics = algo.rule.gradient_step(batch, 1, STEP)

    loss, divergence, error, q = found.T
    ((row, env, priority),) = heard
    assert metrics["loss"] == pytest.approx((weight * loss).mean(), rel=1e-5)
    assert metrics["tdAbsErr"] == pytest.approx(np.abs(error).mean(), rel=1e-4)
    assert metrics["q"] == pytest.approx(q.mean(), rel=1e-4)
    assert row is batch.row
    assert env is batch.env
    np.testing.assert_allclose(priority, divergence, rtol=1e-3, atol=1e-5)


def test_the_batch_has_what_sets_the_parts_of_rainbow_apart(lived):
    algo, stream, _ = lived
    batch = algo.replay.sample(64, STEP)
    windows = [window(stream, *place) for place in zip(batch.row.tolist(), batch.env.tolist(), strict=True)]

    ends = {round(discount, 4) for _, discount, _ in windows}
    assert {0.0, 0.9, 0.81, 0.729} == ends
    assert any(abs(return_) + 3 * discount > 3.5 for return_, discount, _ in windows), "nothing lies beyond the atoms"
    assert batch.weight.min() < 0.7
