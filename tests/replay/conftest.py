"""Index environments: every observation, action and reward says which row of which environment it is.

A stream is a word for each environment, one letter a row:
``.`` a step, ``T`` terminated, ``U`` truncated, ``B`` both (a filler row follows all three), ``L`` a life lost
(terminated, the game goes on), ``_`` a filler row, ``C`` a cut (a filler row that ends the game of the row before),
``0`` a filler row in which nothing was seen.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

from rlcli.core.samples import Samples
from rlcli.core.spec import EnvSpec
from rlcli.core.tree import index
from rlcli.replay.config import UniformReplayConfig

CHUNK, SIDE = 2, 3  # two channels a frame, so that frames and channels cannot be confused


def frame(row, env):
    """[CHUNK, SIDE, SIDE] uint8 that names (row, env); never 0, and the channels differ."""
    number = (7 * (row + 40) + 3 * env) % 120 + 1
    return np.stack([np.full((SIDE, SIDE), number + 120 * c, np.uint8) for c in range(CHUNK)])


FILLERS = "_C0"


def is_game_start(word, row):
    return row > 0 and word[row] not in FILLERS and word[row - 1] in FILLERS


def stack(words, row, env, k):
    """The observation of a row as the environment shows it: frames of this game, zeros before its first.

    Row 0 is deep inside a game whose earlier frames have negative row numbers.
    """
    frames = [frame(row, env)]
    while len(frames) < k:
        word = words[env] + "."
        if is_game_start(word, row) or not frames[0].any():
            frames.insert(0, np.zeros_like(frames[0]))
        else:
            row -= 1
            frames.insert(0, frame(row, env))
    return np.concatenate(frames)


def index_obs(row, env):
    return np.array([row, env], np.float32)


def reward(row, env):
    return float((row * 5 + env) % 11 - 4)


def state(row, env):
    """The recurrent state before a row."""
    return {"h": [row, env, 0.5], "c": [[row * 100 + env]]}


def states(rows, envs):
    """[T, B, ...] states before rows of environments."""
    made = [[state(t, b) for b in envs] for t in rows]
    return {key: torch.tensor([[s[key] for s in row] for row in made], dtype=torch.float32) for key in ("h", "c")}


INITIAL = {"h": torch.full((1, 3), -1.0), "c": torch.full((1, 1, 1), -2.0)}


def action(row, env):
    return row * 10 + env


class Stream:
    """The batches of some words, and what a replay of them must give back."""

    def __init__(self, words, frame_stack=1):
        self.words, self.k = words, frame_stack
        self.n_rows, self.n_envs = len(words[0]), len(words)
        if frame_stack == 1:
            space, example = Box(-1e6, 1e6, (2,)), np.zeros(2, np.float32)
        else:
            shape = (frame_stack * CHUNK, SIDE, SIDE)
            space, example = Box(0, 255, shape, np.uint8), np.zeros(shape, np.uint8)
        self.spec = EnvSpec(space, Discrete(10**6), example, np.zeros((), np.int64), frame_stack)

    def obs(self, row, env):
        if self.words[env][row : row + 1] == "0":
            return np.zeros_like(self.spec.example_obs)
        return index_obs(row, env) if self.k == 1 else stack(self.words, row, env, self.k)

    def flag(self, letters, rows):
        return torch.tensor([[word[t] in letters for word in self.words] for t in rows])

    def samples(self, start, stop):
        rows, envs = range(start, stop), range(self.n_envs)
        obs = np.stack([np.stack([self.obs(t, b) for b in envs]) for t in (*rows, stop)])
        return Samples(
            obs=torch.from_numpy(obs),
            action=torch.tensor([[action(t, b) for b in envs] for t in rows]),
            reward=torch.tensor([[reward(t, b) for b in envs] for t in rows]),
            terminated=self.flag("TBL", rows),
            truncated=self.flag("UBC", rows),
            valid=self.flag(".TUBL", rows),
            record={"state": states(rows, envs)},
            state=index(states([start], envs), 0),
        )

    def batches(self, batch_T):
        return [(t, min(t + batch_T, self.n_rows)) for t in range(0, self.n_rows, batch_T)]

    def window(self, row, env, head, n, discount):
        """(return, discount, bootstrap row) by the definition, or None if the window is not all there."""
        word, total = self.words[env], 0.0
        if word[row] in FILLERS:
            return None
        for m in range(n):
            if row + m + 1 >= head:
                return None
            total += discount**m * reward(row + m, env)
            if word[row + m] in "TBL":
                return total, 0.0, row + m + 1
            if word[row + m] == "U" or word[row + m + 1] == "C":
                return total, discount ** (m + 1), row + m + 1
        return total, discount**n, row + n

    def stack_is_stored(self, row, env, oldest):
        for _ in range(self.k - 1):
            if is_game_start(self.words[env], row):
                return True
            row -= 1
            if row < oldest:
                return False
        return True

    def expected(self, head, capacity_rows, n, discount):
        """{(row, env): window} of everything that may be drawn after ``head`` rows."""
        oldest = max(0, head - capacity_rows)
        found = {}
        for row in range(oldest, head):
            for env in range(self.n_envs):
                window = self.window(row, env, head, n, discount)
                if window is not None and self.stack_is_stored(row, env, oldest):
                    found[row, env] = window
        return found

    def check(self, replay, head, capacity_rows, n, discount):
        """Everything that can be drawn, and nothing else, comes back as it was."""
        expected = self.expected(head, capacity_rows, n, discount)
        row, env = replay.eligible()
        assert sorted(expected) == sorted(zip(row.tolist(), env.tolist(), strict=True))
        self.check_batch(replay.batch_at(row, env), expected)
        return len(expected)

    def check_batch(self, batch, expected):
        places = list(zip(batch.row.tolist(), batch.env.tolist(), strict=True))
        for i, (row, env) in enumerate(places):
            total, discount_n, bootstrap = expected[row, env]
            np.testing.assert_array_equal(self.obs(row, env), batch.obs[i])
            np.testing.assert_array_equal(self.obs(bootstrap, env), batch.next_obs[i])
            assert action(row, env) == batch.action[i]
            assert batch.return_[i].item() == pytest.approx(total, rel=1e-6, abs=1e-6)
            assert batch.discount_n[i].item() == pytest.approx(discount_n, rel=1e-6)


def built(kind, settings, spec, n_envs, seed=0, discount=0.5, n_step=1, n_steps=1000):
    """A replay of a config class; that of sequences has states as the streams have them."""
    more = {"state": INITIAL} if kind.draws == "sequences" else {}
    return kind(**settings).build(spec, n_envs, seed=seed, discount=discount, n_step=n_step, n_steps=n_steps, **more)


@pytest.fixture
def make_stream():
    return Stream


@pytest.fixture
def make_replay():
    """Builds a replay and closes it at the end of the test."""
    made = []

    def build(spec, n_envs, size, n_step=1, discount=0.5, seed=0, kind=UniformReplayConfig, n_steps=1000, **settings):
        made.append(built(kind, settings | {"size": size}, spec, n_envs, seed, discount, n_step, n_steps))
        return made[-1]

    yield build
    for replay in made:
        replay.close()


@pytest.fixture
def atari_spec():
    """What Atari looks like: 4 frames of 84 x 84."""
    example = np.zeros((4, 84, 84), np.uint8)
    return EnvSpec(Box(0, 255, (4, 84, 84), np.uint8), Discrete(6), example, np.zeros((), np.int64), frame_stack=4)


@pytest.fixture
def dict_case():
    """A Dict observation with a spec and a batch of it: (spec, samples)."""
    T, B = 4, 2
    example = {"camera": np.zeros((2, 3), np.uint8), "inner": {"x": np.zeros(3, np.float32)}}
    space = Dict({"camera": Box(0, 255, (2, 3), np.uint8), "inner": Dict({"x": Box(-1, 1, (3,))})})
    spec = EnvSpec(space, Box(-1, 1, (2,)), example, np.zeros(2, np.float32), frame_stack=2)
    count = torch.arange((T + 1) * B).reshape(T + 1, B)
    no = torch.zeros(T, B, dtype=torch.bool)
    obs = {
        "camera": count[..., None, None].expand(-1, -1, 2, 3).to(torch.uint8),
        "inner": {"x": count[..., None].expand(-1, -1, 3).to(torch.float32)},
    }
    act = count[:T, :, None].expand(-1, -1, 2).to(torch.float32)
    samples = Samples(obs, act, torch.zeros(T, B), no, no, ~no, record=None, state=None)
    return SimpleNamespace(spec=spec, samples=samples, n_envs=B)
