"""Where acting restarts a recurrent state and where training does are the same rows."""

import contextlib
from dataclasses import dataclass, replace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlcli.algos.rollout import Rows, episode_begins, minibatches, pick_envs, pick_rows
from rlcli.envs.gym import LIFE_LOST
from tests.sampler_modes import config, copy_of
from tests.sampler_probes import TableAgent, WanderConfig, make_setup


class LivesEnv(gymnasium.Env):
    """Loses a life every 3 steps, ends after 3 to 10; observes (episode, t, 0, 0)."""

    observation_space = spaces.Box(0, np.inf, (4,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self):
        self.episode = -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        self.length = int(self.np_random.integers(3, 11))
        return self._obs(), {}

    def step(self, action):
        self.t += 1
        over = self.t == self.length
        dies = bool(self.np_random.integers(2))
        return self._obs(), 1.0, over and dies, over and not dies, {LIFE_LOST: self.t % 3 == 0}

    def _obs(self):
        return np.array([self.episode, self.t, 0, 0], np.float32)


@dataclass
class LivesConfig:
    def build(self):
        return LivesEnv()

    def for_evaluation(self):
        return self


@pytest.mark.parametrize("mode", ["serial", "cpu of 2", "alternating of 2"])
@pytest.mark.parametrize("env", [WanderConfig(), LivesConfig()], ids=["wander", "lives"])
@pytest.mark.parametrize("reset", ["mid_batch", "between_batches"])
def test_counting_the_rows_of_an_episode_in_training_gives_what_acting_counted(env, mode, reset):
    setup = make_setup(env, TableAgent())
    n_begun, step = 0, 0
    with contextlib.closing(config(mode, 13, 4, reset=reset).build(setup)) as sampler:
        for _ in range(4):
            got = sampler.collect(step)
            step += got.n_steps
            samples = copy_of(got.samples)
            begins = episode_begins(samples.terminated, samples.valid)
            count = samples.state["count"]
            for t in range(13):
                count = torch.where(begins[t], 0, count)
                assert torch.equal(count, samples.record["count"][t])
                count = count + 1
            n_begun += int(begins.sum())

    assert n_begun > 10


def flags(*words):
    """A word for each environment, a letter a row: . a step, T terminated, L a lost life, U truncated, _ filler."""
    terminated, valid = (
        torch.tensor([[w[t] in letters for w in words] for t in range(len(words[0]))]) for letters in ("TL", ".TLU")
    )
    return terminated, valid


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("....", "     "),
        (".T_.", "   b "),  # the filler row still belongs to the episode, the row after it begins the next
        (".U_.", "   b "),
        (".L..", "  b  "),
        ("...U", "     "),
        ("__..", " bb  "),
        (".T__", "   bb"),
        ("_...", " b   "),
    ],
)
def test_episodes_begin_where_the_table_says(word, expected):
    begins = episode_begins(*flags(word))[:, 0]

    assert expected == "".join("b" if b else " " for b in begins.tolist())


ROWS = Rows(
    obs={"x": torch.arange(6).view(3, 2)},
    action=torch.arange(6).view(3, 2) * 10,
    valid=torch.ones(3, 2, dtype=torch.bool),
    begins=torch.zeros(3, 2, dtype=torch.bool),
    state=None,
)


def test_rows_are_picked_by_their_number_through_the_batch():
    picked = pick_rows(ROWS, torch.tensor([5, 0, 3]))

    assert [[5, 0, 3]] == picked.obs["x"].tolist()
    assert [[50, 0, 30]] == picked.action.tolist()


def test_environments_are_picked_whole_with_their_state():
    picked = pick_envs(replace(ROWS, state={"h": torch.tensor([[7.0], [8.0]])}), torch.tensor([1]))

    assert [[1], [3], [5]] == picked.obs["x"].tolist()
    assert [[8.0]] == picked.state["h"].tolist()


@pytest.mark.parametrize(
    ("n", "n_parts", "expected"), [(10, 4, [2, 2, 3, 3]), (8, 4, [2] * 4), (3, 4, [1] * 3), (5, 1, [5])]
)
def test_minibatches_are_a_partition_into_sizes_that_differ_by_one(n, n_parts, expected):
    parts = minibatches(n, n_parts, torch.Generator().manual_seed(0))

    assert expected == sorted(len(part) for part in parts)
    assert list(range(n)) == sorted(torch.cat(parts).tolist())


def test_minibatches_are_shuffled_from_the_generator():
    first, second = torch.Generator().manual_seed(0), torch.Generator().manual_seed(0)

    a, b = (torch.cat(minibatches(100, 4, g)) for g in (first, second))

    assert torch.equal(a, b)
    assert not torch.equal(a, torch.cat(minibatches(100, 4, first)))
    assert list(range(100)) != a.tolist()
