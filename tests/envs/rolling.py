"""What in-process environments do over some steps, for tests."""

import pickle

import numpy as np

from tests.probes import empty_obs

FIELDS = ("reward", "raw_reward", "terminated", "truncated", "ended", "valid")


def roll(env, n_steps, actions=None, autoreset=True, seed=None):
    """Observations [n + 1, B, ...] and a dict of [n, B] arrays."""
    obs = empty_obs(env.spec, len(env.env_ids))
    env.reset(obs, seed)
    rows, steps = [pickle.loads(pickle.dumps(obs))], []
    for t in range(n_steps):
        env.send(np.zeros(len(env.env_ids), np.int64) if actions is None else actions[t], autoreset)
        step = env.recv(obs)
        steps.append([getattr(step, name).copy() for name in FIELDS])
        rows.append(pickle.loads(pickle.dumps(obs)))
    columns = [np.stack(column) for column in zip(*steps, strict=True)]
    return (rows if isinstance(obs, dict) else np.stack(rows)), dict(zip(FIELDS, columns, strict=True))
