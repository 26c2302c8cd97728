import numpy as np
import pytest
import torch

from rlcli.algos.reward_scale import RewardScale
from rlcli.core.samples import Samples
from tests.algos.test_lost_rows import stream


def samples_of(words, rewards):
    """One batch of as many rows as the words have letters; see `tests.algos.test_lost_rows`."""
    made = stream([word.ljust(8, ".") for word in words])[0]
    n_rows = len(words[0])
    leaves = {name: getattr(made, name)[:n_rows] for name in ("action", "terminated", "truncated", "valid")}
    reward = torch.tensor(rewards, dtype=torch.float32).view(len(words), n_rows).T.contiguous()
    return Samples(obs=made.obs[: n_rows + 1], reward=reward, record=None, state=None, **leaves)


def test_returns_run_forward_from_zero_at_each_episode_and_fillers_count_for_nothing():
    scale = RewardScale(0.5)
    samples = samples_of(["..T_.U_."], [1, 2, 3, 99, 4, 5, 99, 6])

    scaled = scale(samples)

    # 1, 2 + 1/2, 3 + 5/4 | 4, 5 + 2 | 6
    returns = np.array([1, 2.5, 4.25, 4, 7, 6])
    assert returns.var() == pytest.approx(scale.variance)
    assert 2 / returns.std() == pytest.approx(scaled[1, 0].item())


def test_statistics_are_those_of_all_batches_at_once_per_environment():
    rng = np.random.default_rng(0)
    rewards = rng.normal(1000, 5, (3, 2, 8))
    scale, returns, running = RewardScale(0.9), [], np.zeros(2)
    for batch in rewards:
        scale(samples_of(["........", "........"], batch))
        for t in range(8):
            running = 0.9 * running + batch.astype(np.float32)[:, t]
            returns.append(running)

    assert np.var(returns) == pytest.approx(scale.variance)


def test_a_cut_begins_the_return_anew():
    scale = RewardScale(0.9)
    scale(samples_of([".C."], [4.0, 99.0, 2.0]))

    assert np.var([4.0, 2.0]) == pytest.approx(scale.variance)


def test_scaled_rewards_are_clipped_at_ten():
    scale = RewardScale(0.0)

    scaled = scale(samples_of(["." * 8] * 32, [[1e4] + [0.0] * 7] + [[0.0] * 8] * 31))

    assert 10.0 == scaled.max().item()


def test_a_batch_without_a_valid_row_changes_nothing_but_the_running_return():
    scale = RewardScale(0.9)
    scale(samples_of(["......"], [3, 1, 4, 1, 5, 9]))
    before = scale.variance

    scale(samples_of(["CCCCCC"], [99] * 6))

    assert before == scale.variance


def test_going_on_from_progress_is_going_on():
    scale, other = RewardScale(0.9), RewardScale(0.9)
    scale(samples_of(["..T_.."], [3, 1, 4, 1, 5, 9]))
    other.load_progress(scale.progress())
    batch = samples_of(["......"], [2, 6, 5, 3, 5, 8])

    assert torch.equal(scale(batch), other(batch))
    assert scale.progress()["count"] == other.progress()["count"]
