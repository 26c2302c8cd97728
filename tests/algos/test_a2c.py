from dataclasses import replace

import pytest
import torch

from rlcli.agents.policy import PolicyAgent
from rlcli.algos.a2c_config import A2CConfig
from tests.learning_probes import ConstantConfig, train
from tests.sampler_probes import WanderConfig

FAST = A2CConfig(discount=0.9, learning_rate=3e-2, gae_lambda=0.95, clip_grad_norm=None)


def test_value_of_an_endless_task_cut_by_the_clock_is_ten():
    agent, *_ = train(ConstantConfig(dies=False), FAST, 150)

    assert agent.model(torch.ones(1, 2))[1].item() == pytest.approx(10.0, abs=0.3)


def test_value_of_a_task_that_dies_is_lower():
    agent, *_ = train(ConstantConfig(dies=True), FAST, 150)

    assert agent.model(torch.ones(1, 2))[1].item() < 8.5


def test_loss_equals_a_slow_reference():
    config = replace(FAST, learning_rate=1e-9, entropy_loss_coeff=0.3)
    agent, _, _, samples, metrics = train(WanderConfig(), config, 3, batch_T=12, n_envs=3)
    logits, value = agent.model(samples.obs.flatten(0, 1))
    logits, value = logits.view(13, 3, -1).detach(), value.view(13, 3).detach()

    policy, squares, entropies = [], [], []
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
            policy.append(-log_p[samples.action[t, b]] * following)
            squares.append(0.5 * following**2)
            entropies.append(-(log_p.exp() * log_p).sum())
    mean = [torch.stack([torch.as_tensor(x) for x in xs]).mean().item() for xs in (policy, squares, entropies)]

    assert bool((~samples.valid).any())
    assert metrics["loss"][0] == pytest.approx(mean[0] + 0.5 * mean[1] - 0.3 * mean[2], rel=1e-4, abs=1e-4)
    assert metrics["entropy"][0] == pytest.approx(mean[2], rel=1e-4)


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
