"""Environments lost with their worker, and memory that the sampler writes over: neither changes what is learned.

A stream is a word for each environment, one letter a row: . a step, T terminated, U truncated, _ filler, C cut,
0 a filler row in which nothing was seen.
"""

import dataclasses

import pytest
import torch

from rlcli.algos.a2c_config import A2CConfig
from rlcli.algos.dqn_config import DQNConfig
from rlcli.algos.replay_learner import ReplayLearner
from rlcli.core.samples import Samples
from rlcli.core.tree import map_tree
from tests.learning_probes import ConstantConfig, build

BATCH_T = 8
A2C = A2CConfig(discount=0.9, learning_rate=3e-2, gae_lambda=0.95)
DQN = DQNConfig(
    discount=0.9, learning_rate=3e-2, batch_size=8, min_steps_learn=0, replay_ratio=4, n_step_return=3, delta_clip=None
)
ALGOS = pytest.mark.parametrize("config", [A2C, DQN], ids=["a2c", "dqn"])


def stream(words):
    """Batches of 8 rows; what happens in a row depends on row and environment alone, not on the letters."""
    n_rows = len(words[0])
    columns = []
    for env in range(len(words)):
        random = torch.Generator().manual_seed(env)
        obs = torch.rand(n_rows + 1, 2, generator=random)
        obs[torch.tensor([letter == "0" for letter in words[env] + "."])] = 0.0
        action = torch.randint(2, (n_rows,), generator=random)
        columns.append((obs, action, torch.randn(n_rows, generator=random)))
    obs, action, reward = (torch.stack(leaf, dim=1) for leaf in zip(*columns, strict=True))
    terminated, truncated, valid = (
        torch.tensor([[word[t] in letters for word in words] for t in range(n_rows)]) for letters in ("T", "UC", ".TU")
    )
    return [
        Samples(
            obs[t : t + BATCH_T + 1].clone(),
            *(leaf[t : t + BATCH_T].clone() for leaf in (action, reward, terminated, truncated, valid)),
            record=None,
            state=None,
        )
        for t in range(0, n_rows, BATCH_T)
    ]


def learn(config, batches):
    """(algorithm, metrics of each update)."""
    n_envs = batches[0].valid.shape[1]
    _, algo = build(ConstantConfig(dies=False), config, n_envs)
    return algo, update(algo, batches)


def update(algo, batches):
    return [dict(algo.update(samples, step=100)) for samples in batches]


def weights(algo):
    model = algo.rule.model if isinstance(algo, ReplayLearner) else algo._model
    return torch.cat([p.detach().flatten() for p in model.parameters()]).clone()


CUTS = [
    pytest.param(["...C....", "........"], ["..U_....", "........"], id="mid_batch"),
    pytest.param(["..T_..C.", "..C..T_."], ["..T_.U_.", ".U_..T_."], id="two_environments"),
    pytest.param(["..T_..C...C....U", "......UC......TC"], ["..T_.U_..U_....U", "......U_......T_"], id="behind_ends"),
]


@ALGOS
@pytest.mark.parametrize(("cut", "truncated"), CUTS)
def test_cut_teaches_what_a_truncation_of_the_row_before_it_teaches(config, cut, truncated):
    expected, expected_metrics = learn(config, stream(truncated))
    algo, metrics = learn(config, stream(cut))

    assert expected_metrics[-1]["loss"]
    assert expected_metrics == metrics
    assert torch.equal(weights(expected), weights(algo))
    assert expected.n_consumed == algo.n_consumed


def test_cut_in_the_first_row_of_a_batch_truncates_what_dqn_stored_in_the_batch_before():
    expected, expected_metrics = learn(DQN, stream(["..T_...U_.......", "................"]))
    _, metrics = learn(DQN, stream(["..T_....C.......", "................"]))

    assert expected_metrics[1] == metrics[1]
    assert expected.n_updates


@pytest.mark.parametrize("normalize", [False, True])
def test_lost_slice_teaches_a2c_nothing(normalize):
    config = dataclasses.replace(A2C, normalize_advantage=normalize)
    kept = "..T_.U_...C....."
    expected, expected_metrics = learn(config, stream([kept]))
    algo, metrics = learn(config, stream([kept, "C0000000C0000000"]))

    for wanted, got in zip(expected_metrics, metrics, strict=True):
        assert {name: pytest.approx(values, rel=1e-4) for name, values in wanted.items()} == got
    torch.testing.assert_close(weights(expected), weights(algo))
    assert 13 == expected.n_consumed == algo.n_consumed


def test_lost_slice_teaches_dqn_nothing():
    kept = "..T_.U_...C....."
    losses = []
    for words in ([kept], [kept, "C0000000C0000000"]):
        _, algo = build(ConstantConfig(False), dataclasses.replace(DQN, min_steps_learn=10**6), len(words))
        update(algo, stream(words))
        losses.append(algo.rule.judge(algo.replay.batch_at(*algo.replay.eligible())).loss)

    # rows 3, 6 and 10 are fillers; the windows of 13, 14 and 15 are not over
    assert 10 == len(losses[0])
    torch.testing.assert_close(losses[0], losses[1])


@ALGOS
def test_batch_without_a_valid_row_takes_no_gradient_step(config):
    first, lost, last = stream(["........C0000000........", "........C0000000........"])
    algo, _ = learn(config, [first])
    before, n_updates = weights(algo), algo.n_updates

    assert n_updates
    assert [{name: [] for name in algo.metrics}] == update(algo, [lost])
    assert torch.equal(before, weights(algo))
    assert n_updates == algo.n_updates
    assert update(algo, [last])[0]["loss"]
    assert torch.isfinite(weights(algo)).all()


@ALGOS
def test_run_that_begins_with_a_lost_batch_goes_on_with_the_next(config):
    algo, metrics = learn(config, stream(["C0000000........", "C0000000........"]))

    assert [] == metrics[0]["loss"]
    assert metrics[1]["loss"]
    assert torch.isfinite(weights(algo)).all()


@ALGOS
def test_memory_of_the_samples_may_be_written_over_after_update(config):
    words = ["..T_.U_...C...........T_", "......C0.......T_......."]
    expected, expected_metrics = learn(config, stream(words))
    _, algo = build(ConstantConfig(dies=False), config, 2)
    metrics = []
    for samples in stream(words):
        memory = map_tree(torch.Tensor.share_memory_, {name: getattr(samples, name) for name in samples.__slots__[:6]})
        metrics += update(algo, [samples])
        for leaf in memory.values():
            leaf.copy_(~leaf if leaf.dtype == torch.bool else torch.full_like(leaf, 10**6))

    assert expected_metrics == metrics
    assert torch.equal(weights(expected), weights(algo))
