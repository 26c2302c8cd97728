"""Real frames of a real game through the real sampler: what comes back is what the environment showed."""

import numpy as np
import pytest
import torch

from rlcli.core.protocols import Act
from rlcli.envs.config import AtariConfig
from rlcli.envs.probe import probe
from rlcli.samplers.config import SerialConfig
from rlcli.samplers.setup import SamplerSetup

N_ENVS, SIZE, DISCOUNT = 3, 3 * 40, 0.9


class RandomAgent:
    n_uniforms = 1

    def __init__(self, n_actions):
        self._n = n_actions

    def initial_state(self, n_envs):
        return None

    def act(self, obs, state, uniforms, *, env_ids, step, explore):
        return Act((uniforms[:, 0] * self._n).long(), None, None)


@pytest.fixture(params=["mid_batch", "between_batches"])
def sampler(request):
    env = AtariConfig(game="breakout", image_size=12, frame_stack=4, noop_max=8, max_frames=4 * 37)
    spec = probe(env, 0)
    config = SerialConfig(batch_T=7, batch_B=N_ENVS, max_decorrelation_steps=20, reset=request.param)
    setup = SamplerSetup(
        env=env,
        eval_env=env,
        spec=spec,
        agent=RandomAgent(spec.action_space.n),
        seed=3,
        discount=DISCOUNT,
        eval_n_envs=0,
        eval_n_episodes=1,
        eval_max_steps=1,
    )
    sampler = config.build(setup)
    sampler.spec = spec
    yield sampler
    sampler.close()


@pytest.mark.parametrize("n_step", [1, 3])
def test_atari_stacks_come_back_as_the_environment_showed_them(sampler, make_replay, n_step):
    replay = make_replay(sampler.spec, N_ENVS, size=SIZE, n_step=n_step, discount=DISCOUNT)
    obs, reward, terminated, truncated, valid = [], [], [], [], []
    n_checked = 0
    for _ in range(30):
        samples = sampler.collect(0).samples
        replay.append(samples)
        for kept, new in [(obs, samples.obs[:-1]), (reward, samples.reward), (terminated, samples.terminated)]:
            kept.extend(new.clone())
        truncated.extend(samples.truncated.clone())
        valid.extend(samples.valid.clone())
        row, env = replay.eligible()
        batch = replay.batch_at(row, env)
        for i, (t, b) in enumerate(zip(row.tolist(), env.tolist(), strict=True)):
            m = next((k for k in range(1, n_step) if (terminated[t + k - 1] | truncated[t + k - 1])[b]), n_step)
            assert valid[t][b]
            assert torch.equal(obs[t][b], batch.obs[i])
            assert torch.equal(obs[t + m][b], batch.next_obs[i])
            bootstrap = 0.0 if any(terminated[t + k][b] for k in range(m)) else DISCOUNT**m
            assert bootstrap == pytest.approx(batch.discount_n[i].item())
            total = sum(DISCOUNT**k * reward[t + k][b].item() for k in range(m))
            assert total == pytest.approx(batch.return_[i].item(), abs=1e-6)
        n_checked += len(row)

    ends = np.array([torch.stack(x).sum() for x in (terminated, truncated)])
    assert (ends >= 3).all(), "the stream must hold lost lives and truncations"
    assert n_checked > 1000
