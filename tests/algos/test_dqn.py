import contextlib
import copy
from dataclasses import replace

import pytest
import torch

from rlcli.algos.dqn_config import DQNConfig
from rlcli.envs.probe import probe
from rlcli.samplers.config import SerialConfig
from tests.learning_probes import ConstantConfig, build, train
from tests.sampler_probes import WanderConfig, make_setup

FAST = DQNConfig(
    discount=0.9, learning_rate=3e-2, batch_size=32, min_steps_learn=100, target_update_interval=10, replay_ratio=32
)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("n_step", [1, 3])
def test_loss_equals_a_slow_reference(double, n_step):
    config = replace(FAST, double_dqn=double, n_step_return=n_step, min_steps_learn=10**6, delta_clip=0.7)
    algo = train(WanderConfig(), config, 10).algo
    torch.manual_seed(1)
    for p in algo.rule.model.parameters():
        p.data.add_(0.3 * torch.randn_like(p))
    batch = algo.replay.sample(64)

    expected = []
    for i in range(64):
        q_next = algo.rule.target.module(batch.next_obs[i : i + 1])[0]
        chooser = algo.rule.model(batch.next_obs[i : i + 1])[0] if double else q_next
        best = max(range(3), key=lambda a, c=chooser: c[a].item())
        target = batch.return_[i].item() + batch.discount_n[i].item() * q_next[best].item()
        error = abs(target - algo.rule.model(batch.obs[i : i + 1])[0][batch.action[i]].item())
        expected.append(0.5 * error**2 if error <= 0.7 else 0.7 * (error - 0.35))

    torch.testing.assert_close(torch.tensor(expected), algo.rule.judge(batch).loss.detach(), rtol=1e-4, atol=1e-4)
    assert bool((batch.discount_n == 0).any())
    assert bool((batch.discount_n > 0).any())


def gradient_step(algo):
    """One, on 32 transitions, counted as the loop counts."""
    algo._loop.n_updates += 1
    algo.rule.gradient_step(algo.replay.sample(32), algo.n_updates, 0)


def test_target_network_is_synced_at_its_interval_and_only_then():
    config = replace(FAST, target_update_interval=3)
    agent, algo = build(ConstantConfig(False), config)
    with contextlib.closing(SerialConfig(30, 4).build(make_setup(ConstantConfig(False), agent))) as sampler:
        algo.replay.append(sampler.collect(0).samples)
    start = copy.deepcopy(algo.rule.target.module.state_dict())

    def same(a, b):
        return all(torch.equal(x, y) for x, y in zip(a.values(), b.values(), strict=True))

    assert same(start, algo.rule.model.state_dict())
    for n in (1, 2):
        gradient_step(algo)
        assert same(start, algo.rule.target.module.state_dict()), n
        assert not same(start, algo.rule.model.state_dict())
    gradient_step(algo)
    assert same(algo.rule.model.state_dict(), algo.rule.target.module.state_dict())


def test_soft_update_moves_the_target_by_tau():
    config = replace(FAST, tau=0.25, target_update_interval=1)
    _, algo = build(ConstantConfig(False), config)
    before = algo.rule.target.module.advantage.bias.clone()
    with torch.no_grad():
        algo.rule.model.advantage.bias.add_(4.0)

    algo.rule.target.update()

    torch.testing.assert_close(before + 1.0, algo.rule.target.module.advantage.bias)


@pytest.mark.parametrize(("ratio", "batch_size"), [(8, 32), (1, 32), (0.3, 7), (64, 100)])
def test_replay_ratio_is_kept_to_the_last_batch(ratio, batch_size):
    config = replace(FAST, replay_ratio=ratio, batch_size=batch_size, min_steps_learn=200)
    agent, algo = build(ConstantConfig(False), config, 3)
    step = learned_from = 0
    with contextlib.closing(SerialConfig(7, 3).build(make_setup(ConstantConfig(False), agent))) as sampler:
        for _ in range(30):
            got = sampler.collect(step)
            step += got.n_steps
            learned_from += got.n_steps * (step >= 200)
            algo.update(got.samples, step=step)

            assert -1e-6 <= learned_from * ratio - algo.n_consumed <= batch_size + 1e-6


def test_nothing_is_learned_before_min_steps():
    _, algo, _, _, metrics = train(ConstantConfig(False), replace(FAST, min_steps_learn=10**6), 5)

    assert 0 == algo.n_updates
    assert {name: [] for name in algo.metrics} == dict(metrics)


def test_learning_rate_falls_on_a_line_to_zero_at_the_budget():
    config = replace(FAST, learning_rate=0.1, learning_rate_schedule="linear")
    _, algo = build(ConstantConfig(False), config)  # budget 10,000 steps

    assert pytest.approx([0.1, 0.05, 0.0]) == [algo.scalars(s)["LearningRate"] for s in (0, 5_000, 10_000)]


def test_loaded_optimizer_keeps_this_runs_learning_rate():
    old = train(ConstantConfig(False), replace(FAST, learning_rate=0.1), 10).algo
    _, new = build(ConstantConfig(False), replace(FAST, learning_rate=0.02))

    new.load_optimizer_state_dict(old.optimizer_state_dict())

    state = new.optimizer_state_dict()
    assert 0.02 == state["param_groups"][0]["lr"]
    assert float(old.optimizer_state_dict()["state"][0]["step"]) == float(state["state"][0]["step"]) > 0


def test_box_actions_are_refused_by_name():
    from rlcli.envs.config import GymConfig

    (problem,) = DQNConfig().spec_problems(probe(GymConfig("Pendulum-v1")))

    assert "dqn needs one Discrete action" in problem
    assert "Box" in problem


def test_gradient_is_clipped_by_its_global_norm():
    config = replace(FAST, clip_grad_norm=1e-3)
    _, algo, _, _, metrics = train(ConstantConfig(False), config, 4)

    norm = torch.cat([p.grad.flatten() for p in algo.rule.model.parameters()]).norm().item()

    assert max(metrics["gradNorm"]) > 1e-3
    assert norm == pytest.approx(1e-3, rel=1e-3)
