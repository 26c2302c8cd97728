from dataclasses import replace

import numpy as np
import pytest
import torch

from rlcli.agents.policy import PolicyAgent
from rlcli.algos.a2c_config import A2CConfig
from tests.learning_probes import train
from tests.policy_probes import Session
from tests.sampler_probes import WanderConfig

FAST = A2CConfig(discount=0.9, learning_rate=3e-2, gae_lambda=0.95, clip_grad_norm=None)


@pytest.mark.parametrize("normalized", [False, True])
def test_loss_equals_a_slow_reference(normalized):
    config = replace(FAST, learning_rate=1e-9, entropy_loss_coeff=0.3, normalize_advantage=normalized)
    agent, _, _, samples, metrics = train(WanderConfig(), config, 3, batch_T=12, n_envs=3)
    logits, value = agent.model(samples.obs.flatten(0, 1))
    logits, value = logits.view(13, 3, -1).detach(), value.view(13, 3).detach()

    log_probs, found, entropies = [], [], []
    for b in range(3):
        following = 0.0
        for t in reversed(range(12)):
            if not samples.valid[t, b]:
                following = 0.0
                continue
            alive = 0.0 if samples.terminated[t, b] else 1.0
            delta = samples.reward[t, b] + 0.9 * alive * value[t + 1, b] - value[t, b]
            ends = bool(samples.terminated[t, b] | samples.truncated[t, b])
            following = delta + (0.0 if ends else 0.9 * 0.95 * following)
            log_p = logits[t, b].log_softmax(-1)
            log_probs.append(log_p[samples.action[t, b]].item())
            found.append(float(following))
            entropies.append(-(log_p.exp() * log_p).sum().item())
    advantage, entropy = np.array(found), np.mean(entropies)
    value_loss = 0.5 * (advantage**2).mean()  # the target is value plus advantage as it was before it was normalised
    if normalized:
        advantage = (advantage - advantage.mean()) / advantage.std()
    policy_loss = -(np.array(log_probs) * advantage).mean()

    assert bool((~samples.valid).any())
    assert metrics["loss"][0] == pytest.approx(policy_loss + 0.5 * value_loss - 0.3 * entropy, rel=1e-4, abs=1e-4)
    assert metrics["valueLoss"][0] == pytest.approx(value_loss, rel=1e-4)
    assert metrics["entropy"][0] == pytest.approx(entropy, rel=1e-4)


def test_scaled_rewards_reach_the_targets():
    scaled, plain = (
        Session(WanderConfig(), replace(FAST, normalize_reward=scales), batch_T=12, n_envs=3)
        for scales in (True, False)
    )
    (got,), (same,) = scaled.collected(1), plain.collected(1)
    metrics = scaled.algo.update(got.samples, step=36)
    deviation = scaled.algo._scale.variance**0.5
    same.samples.reward.div_(deviation)

    expected = plain.algo.update(same.samples, step=36)

    assert deviation != pytest.approx(1.0, rel=0.05)
    assert metrics["valueLoss"][0] == pytest.approx(expected["valueLoss"][0], rel=1e-4)


def test_samples_consumed_are_the_valid_ones():
    _, algo, _, samples, _ = train(WanderConfig(), FAST, 1)

    assert int(samples.valid.sum()) == algo.n_consumed < samples.valid.numel()


def test_normalised_advantages_have_mean_zero_and_deviation_one_over_valid_rows():
    from rlcli.losses.policy import normalized_advantage

    advantage = torch.tensor([[1.0, 100.0], [3.0, 5.0]])
    valid = torch.tensor([[True, False], [True, True]])

    # 1, 3, 5: mean 3, deviation sqrt(8 / 3)
    expected = torch.tensor([-2.0, 0.0, 2.0]) / (8 / 3) ** 0.5
    torch.testing.assert_close(expected, normalized_advantage(advantage, valid)[valid])


def test_agent_records_the_value_that_the_model_gives():
    agent, _, _, samples, _ = train(WanderConfig(), replace(FAST, learning_rate=1e-12), 1)

    assert isinstance(agent, PolicyAgent)
    torch.testing.assert_close(agent.model(samples.obs[:-1].flatten(0, 1))[1].view(10, 4), samples.record["value"])
