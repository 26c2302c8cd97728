"""R2D1's learner against a slow reference, and its agent against the learner."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rlcli.core.errors import ConfigError
from rlcli.core.tree import map_tree
from rlcli.replay.config import UniformReplayConfig
from rlcli.replay.sequences import SequenceBatch
from tests.algos.r2d1_probes import (
    BURN_IN,
    LSTM,
    R2D1,
    REPLAY,
    TRAIN,
    N,
    apart,
    h,
    h_inverse,
    learner,
    running,
)
from tests.algos.test_rollout import LivesConfig
from tests.learning_probes import ConstantConfig, build
from tests.policy_probes import SMALL, CueConfig
from tests.sampler_probes import WanderConfig

NEVER = replace(R2D1, min_steps_learn=10**9)
# . a step, T terminated, U truncated, B both, _ filler; burn-in | trained | bootstrap
WORDS = [
    "...|....|..",
    ".T_|....|..",
    "..U|_...|..",
    ".._|..T_|..",
    "T..|T.T.|..",  # lost lives
    "...|..._|..",  # a cut
    "_..|.U_T|_.",
    "...|...U|_.",
    "...|...B|_.",
    "...|....|T_",
    "___|___.|U_",
    "..T|....|..",
]


def batch_of(words, seed=0):
    """A batch whose numbers are random; observations as `ConstantEnv`'s with the previous action and reward."""
    words = [word.replace("|", "") for word in words]
    random = torch.Generator().manual_seed(seed)
    L, n = len(words[0]), len(words)
    obs = {"obs": torch.rand(L + 1, n, 2, generator=random)}
    obs["previous_action"] = torch.rand(L + 1, n, 2, generator=random)
    obs["previous_reward"] = torch.rand(L + 1, n, 1, generator=random)
    flags = (
        torch.tensor([[word[t] in letters for word in words] for t in range(L)]) for letters in ("TB", "UB", ".TUB")
    )
    return SequenceBatch(
        obs,
        torch.randint(2, (L, n), generator=random),
        torch.randn(L, n, generator=random) * 3,
        *flags,
        state={key: torch.randn(n, 16, generator=random) for key in ("h", "c")},
        weight=torch.rand(n, generator=random),
        row=torch.arange(n),
        env=torch.zeros(n, dtype=torch.int64),
    )


def slow_values(network, batch, i):
    """[L, A] of sequence i, one row at a time; the state begins anew by hand."""
    state, values = {key: leaf[i : i + 1] for key, leaf in batch.state.items()}, []
    for t in range(batch.reward.shape[0]):
        if t:
            ended = not batch.valid[t - 1, i] or (batch.terminated[t - 1, i] and batch.valid[t, i])
            state = {key: leaf * (0 if ended else 1) for key, leaf in state.items()}
        obs = map_tree(lambda leaf, t=t: leaf[t : t + 1, i : i + 1], batch.obs)
        q, state = network.unroll(obs, state)
        values.append(q[0, 0])
    return torch.stack(values).tolist()


@torch.no_grad()
def slow_target(algo, batch, i, t):
    """Of row t of sequence i, reward by reward."""
    config = algo.rule._config
    online, slow = slow_values(algo.rule.model, batch, i), slow_values(algo.rule.target.module, batch, i)
    return_, discount = 0.0, 1.0
    for k in range(t, t + config.n_step_return):
        return_ += discount * batch.reward[k, i].item()
        discount *= config.discount
        if batch.terminated[k, i]:
            return h(return_, config.value_rescale_eps)
        if batch.truncated[k, i] or not batch.valid[k + 1, i]:
            break
    chooser = online if config.double_dqn else slow
    greedy = int(np.argmax(chooser[k + 1]))
    bootstrap = h_inverse(slow[k + 1][greedy], config.value_rescale_eps)
    return h(return_ + discount * bootstrap, config.value_rescale_eps)


# ---- targets and values


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"double_dqn": False},
        {"n_step_return": 1},
        {"value_rescale_eps": None},
        {"dueling": False},
        {"n_step_return": 6},
    ],
    ids=str,
)
def test_targets_and_values_of_valid_rows_equal_a_slow_reference(changes):
    _, algo = learner(replace(R2D1, **changes))
    words = [word + "." * (algo.rule._config.n_step_return - N) for word in WORDS]
    if algo.rule._config.n_step_return < N:
        words = [word[: algo.rule._config.n_step_return - N] for word in words]
    batch = batch_of(words)
    judged = apart(algo).rule.judge(batch)

    assert (TRAIN, len(WORDS)) == judged.target.shape
    assert torch.equal(batch.valid[BURN_IN : BURN_IN + TRAIN], judged.valid)
    for i in range(len(words)):
        with torch.no_grad():
            values = slow_values(algo.rule.model, batch, i)
        for t in range(BURN_IN, BURN_IN + TRAIN):
            if batch.valid[t, i]:
                q, y = values[t][batch.action[t, i]], slow_target(algo, batch, i, t)
                assert pytest.approx(q, abs=1e-4) == judged.q[t - BURN_IN, i].item()
                assert pytest.approx(y, abs=2e-4) == judged.target[t - BURN_IN, i].item(), (i, t)
                assert pytest.approx(y - q, abs=3e-4) == judged.delta[t - BURN_IN, i].item()
                assert pytest.approx((y - q) ** 2 / 2, abs=3e-3) == judged.loss[t - BURN_IN, i].item()


def test_burn_in_takes_no_gradient_and_the_trained_rows_do():
    _, algo = learner()
    batch = batch_of(["...|....|.."] * 3)
    seen = batch.obs["obs"].requires_grad_()
    algo.rule.judge(batch).loss.sum().backward()

    per_row = seen.grad.abs().sum(dim=(1, 2))
    assert 0 == per_row[:BURN_IN].max()
    assert (per_row[BURN_IN : BURN_IN + TRAIN] > 0).all()
    assert 0 == per_row[BURN_IN + TRAIN :].max()


@pytest.mark.parametrize(
    ("word", "rows"),
    [
        ("...|....|..", [0, 1, 2, 3]),
        (".T_|....|..", []),
        ("..T|....|..", []),
        ("..U|_...|..", [0]),
        ("...|.T_.|..", [0, 1, 2]),
    ],
)
def test_stored_state_matters_up_to_the_end_of_its_episode(word, rows):
    _, algo = learner()
    batch = batch_of([word])
    other = replace(batch, state=map_tree(torch.neg, batch.state))
    differs = algo.rule.judge(batch).q != algo.rule.judge(other).q
    assert rows == differs[:, 0].nonzero()[:, 0].tolist()


def test_fillers_teach_nothing():
    _, algo = learner()
    batch = batch_of(["...|.._.|.."])
    batch.reward[BURN_IN + 2] = 1e6
    judged = algo.rule.judge(batch)
    loss = algo.rule.gradient_step(batch, 1, 0)["loss"]

    kept = judged.loss.detach()[[0, 1, 3], 0]
    assert kept.max() < 1e3
    assert pytest.approx((kept.mean() * batch.weight[0]).item(), rel=1e-5) == loss


# ---- the gradient step


class Spy:
    """Hears priorities."""

    def update_priorities(self, row, env, priority):
        self.heard = row, env, priority


def test_loss_is_the_weighted_mean_and_priorities_are_told():
    _, algo = learner()
    algo.rule._replay = Spy()
    batch = batch_of(WORDS)
    judged = algo.rule.judge(batch)
    metrics = algo.rule.gradient_step(batch, 1, 0)

    total, n_valid, priorities = 0.0, 0, []
    for i in range(len(WORDS)):
        rows = judged.valid[:, i].nonzero()[:, 0].tolist()
        errors = [abs(judged.delta[t, i].item()) for t in rows]
        total += batch.weight[i].item() * sum(e * e / 2 for e in errors)
        n_valid += len(rows)
        priorities.append(0.9 * max(errors) + 0.1 * sum(errors) / len(errors))
    assert pytest.approx(total / n_valid, rel=1e-5) == metrics["loss"]
    row, env, priority = algo.rule._replay.heard
    assert torch.equal(batch.row, row)
    assert torch.equal(batch.env, env)
    assert [pytest.approx(p, rel=1e-5) for p in priorities] == priority.tolist()
    assert set(algo.metrics) == set(metrics)


def test_priorities_of_drawn_sequences_reach_the_replay():
    with running(R2D1) as (algo, collect):
        collect(8)
        leaves = algo.replay._selector._tree.leaves().copy()
        batch = algo.replay.sample(4, 0)
        algo.rule.gradient_step(batch, 1, 0)
    changed = algo.replay._selector._tree.leaves() != leaves
    assert 0 < changed.sum() <= 4


def test_gradient_is_clipped_to_its_norm():
    _, algo = learner(replace(R2D1, clip_grad_norm=1e-3))
    before = algo.rule.gradient_step(batch_of(WORDS), 1, 0)["gradNorm"]
    after = torch.cat([p.grad.flatten() for p in algo.rule.model.parameters()]).norm().item()
    assert before > 0.1
    assert pytest.approx(1e-3, rel=1e-3) == after


def test_target_is_copied_every_so_many_gradient_steps():
    def same():
        pairs = zip(algo.rule.model.parameters(), algo.rule.target.module.parameters(), strict=True)
        return all(torch.equal(a, b) for a, b in pairs)

    with running(replace(R2D1, target_update_interval=3, replay_ratio=1)) as (algo, collect):
        assert same()
        found = []
        while algo.n_updates < 7:
            before = algo.n_updates
            collect(1)
            if algo.n_updates == before + 1:
                found.append((algo.n_updates, same()))
    assert found
    assert all(equal == (n % 3 == 0) for n, equal in found)


# ---- with a sampler


@pytest.mark.parametrize("reset", ["mid_batch", "between_batches"])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("interval", [1, 2, 7])
@pytest.mark.parametrize("env", [WanderConfig(), LivesConfig(), CueConfig()], ids=["wander", "lives", "cue"])
def test_training_sees_the_values_that_acting_saw(env, interval, kind, reset):
    config = replace(REPLAY, state_interval=interval)
    with running(NEVER, env, model=replace(SMALL, recurrent=kind), reset=reset, replay_config=config) as (
        algo,
        collect,
    ):
        kept = collect(9)
    acted, valid = (torch.cat(leaf) for leaf in zip(*((s.record["q"], s.valid) for s in kept), strict=True))
    batch = algo.replay.batch_at(*algo.replay.eligible())
    judged = algo.rule.judge(batch)

    rows = batch.row + BURN_IN + torch.arange(TRAIN)[:, None]
    assert torch.equal(valid[rows, batch.env], judged.valid)
    assert judged.valid.sum() > 30
    difference = (judged.q - acted[rows, batch.env])[judged.valid]
    assert difference.abs().max() < 1e-4
    assert acted[valid].std() > 1e-2


@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize("env", [WanderConfig(), LivesConfig()], ids=["wander", "lives"])
def test_first_priorities_are_the_errors_that_the_learner_finds(env, n):
    with running(replace(NEVER, n_step_return=n), env, batch_T=20) as (algo, collect):
        (samples, *_) = collect(3)
    given = algo.rule.input_priority(samples)
    batch = algo.replay.batch_at(*algo.replay.eligible())
    batch_rows = batch.row + BURN_IN + torch.arange(TRAIN)[:, None]
    judged = algo.rule.judge(batch)
    known = ~given.isnan() & samples.valid
    n_compared = 0
    for t, i in (judged.valid & (batch_rows < 20)).nonzero().tolist():
        row, env_id = batch_rows[t, i].item(), batch.env[i].item()
        if known[row, env_id]:
            n_compared += 1
            assert pytest.approx(judged.delta[t, i].abs().item(), abs=2e-4) == given[row, env_id].item()
    assert n_compared > 20
    assert given.isnan()[20 - n :].any()
    assert not (given.isnan() & samples.valid)[: 20 - n].any()


@pytest.mark.parametrize("prioritized", [True, False])
@pytest.mark.parametrize("gives", [True, False])
def test_only_a_prioritized_replay_is_given_first_priorities(prioritized, gives):
    config = replace(R2D1, input_priorities=gives)
    with running(config, replay_config=replace(REPLAY, prioritized=prioritized)) as (algo, collect):
        collect(6)
        assert algo.n_updates
        assert (prioritized and gives) == (algo._priority is not None)
        if prioritized:
            stored = algo.replay._ring.take("priority", np.arange(10), np.zeros(10, np.int64))
            assert gives != np.isnan(stored).all()


def test_the_replay_hears_the_env_steps_so_far_at_each_gradient_step(monkeypatch):
    steps, n_valid = [], 0
    with running(R2D1, batch_T=20) as (algo, collect):
        sample = algo.replay.sample
        monkeypatch.setattr(algo.replay, "sample", lambda n, step: (steps.append(step), sample(n, step))[1])
        for _ in range(3):
            (samples,) = collect(1)
            n_valid += int(samples.valid.sum())
            assert n_valid == steps[-1]
    assert len(set(steps)) == 3


def test_replay_ratio_counts_trained_rows_alone():
    with running(replace(R2D1, replay_ratio=2), batch_T=20) as (algo, collect):
        n_valid = sum(int(samples.valid.sum()) for samples in collect(4))
    assert algo.n_updates * 8 * TRAIN == algo.n_consumed
    assert 0 <= 2 * n_valid - algo.n_consumed < 8 * TRAIN


@pytest.mark.parametrize(("interval", "prioritized"), [(0, True), (0, False), (3, False), (3, True)])
def test_every_kind_of_sequence_replay_can_be_learned_from(interval, prioritized):
    config = replace(REPLAY, state_interval=interval, prioritized=prioritized)
    with running(R2D1, replay_config=config) as (algo, collect):
        collect(8)
    assert algo.n_updates > 5
    assert all(torch.isfinite(p).all() for p in algo.rule.model.parameters())


# ---- what does not fit


def test_what_does_not_fit_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"^model.recurrent: algo r2d1 needs a recurrent model"):
        build(ConstantConfig(False), R2D1, model=SMALL, replay=REPLAY)
    with pytest.raises(ConfigError, match=r"^replay: it draws transitions, algo r2d1 learns from sequences"):
        build(ConstantConfig(False), R2D1, model=LSTM, replay=UniformReplayConfig())
    with pytest.raises(ConfigError, match=r"^model.init: 'orthogonal' is not for this algo"):
        build(ConstantConfig(False), R2D1, model=replace(LSTM, init="orthogonal"), replay=REPLAY)
