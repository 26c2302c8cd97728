"""Tasks whose values or best actions are known, for every algorithm.

One observation and a reward of 1 for ever are worth 1 / (1 - 0.9) = 10. What the clock ends is worth the same. What
dies is worth less: a truncation taken for a death, or a death for a truncation, is another number.
"""

from dataclasses import replace

import gymnasium
import pytest
import torch
from gymnasium import spaces

from rlcli.algos.sac_v_config import SACVConfig
from tests.algos.r2d1_probes import R2D1, REPLAY, h, h_inverse, running
from tests.algos.test_a2c import FAST as A2C
from tests.algos.test_actor_critic import ALGOS as BOX
from tests.algos.test_ppo import FAST as PPO
from tests.algos.test_q_learning import ALL, C51, DQN, IQN, RAINBOW
from tests.box_probes import BanditEnv, EnvConfig
from tests.box_probes import ConstantEnv as ConstantBoxEnv
from tests.box_probes import train as train_box
from tests.learning_probes import ConstantEnv, train

QUICK = {"min_steps_learn": 0, "target_update_interval": 5}
LARGE = {**QUICK, "batch_size": 128, "replay_ratio": 64}
"""Batches in which deaths are as many as in the long run, nearly."""
EPS = 1e-3
"""Of R2D1's squashed scale."""


class OneAction(ConstantEnv):
    """With nothing to choose: the best of several noisy values would be too high."""

    action_space = spaces.Discrete(1)


class EndsAtRandom(gymnasium.Wrapper):
    """Over after each step with probability ``p``, of which nothing that is seen tells: by death or by the clock."""

    def __init__(self, env, dies, p):
        super().__init__(env)
        self.dies, self.p = dies, p

    def step(self, action):
        obs, reward, *_ = self.env.step(action)
        over = self.np_random.random() < self.p
        return obs, reward, over and self.dies, over and not self.dies, {}


def ends_at_random(make, dies, p):
    return EndsAtRandom(make(dies), dies, p)


def one_step(make, dies):
    return EnvConfig(ends_at_random, (make, dies, 1.0))


def twenty_steps(make, dies):
    return EnvConfig(make, (dies,))


def value(config, env, n_iterations, batch_T=21):
    """What the trained network says of the one observation; 21 rows are an episode of 20 steps and its filler row."""
    agent, *_ = train(env, config, n_iterations, batch_T)
    out = agent.model(torch.ones(1, 2))
    return out[1].item() if isinstance(out, tuple) else out.max().item()


def box_value(config, env, n_iterations, **changes):
    """What the first critic says of the one observation and the action in the middle."""
    changes = {"critic_learning_rate": 1e-2, "tau": 0.2, "replay_ratio": 16.0, "random_steps": 10**6} | changes
    if isinstance(config, SACVConfig):
        changes["value_learning_rate"] = 2e-2
    algo = train_box(env, replace(config, **changes), n_iterations, batch_T=21).algo
    with torch.no_grad():
        q = algo.rule.critic(torch.ones(1, 2), torch.zeros(1, 1))
    return (q[0] if isinstance(q, tuple) else q).item()


def r2d1_value(env, n_iterations, **changes):
    """The mean value, on the squashed scale, over all that is stored and drawn alike."""
    config = replace(R2D1, tau=0.3, target_update_interval=2, batch_size=32, replay_ratio=32, **changes)
    with running(config, env, batch_T=20, replay_config=replace(REPLAY, prioritized=False)) as (algo, collect):
        collect(n_iterations)
        judged = algo.rule.judge(algo.replay.batch_at(*algo.replay.eligible()))
    return judged.q[judged.valid].mean().item()


# the clock ends what would go on


@pytest.mark.parametrize("episodes", [twenty_steps, one_step])
@pytest.mark.parametrize("config", [*ALL.values(), replace(DQN, n_step_return=3)], ids=[*ALL, "dqn_3_step"])
def test_value_of_an_endless_task_cut_by_the_clock_is_ten(config, episodes):
    assert value(replace(config, **QUICK), episodes(ConstantEnv, False), 8) == pytest.approx(10.0, abs=0.3)


@pytest.mark.parametrize("episodes", [twenty_steps, one_step])
@pytest.mark.parametrize(("config", "n"), [(A2C, 100), (PPO, 25)], ids=["a2c", "ppo"])
def test_value_of_an_endless_task_cut_by_the_clock_is_ten_by_a_policy(config, n, episodes):
    assert value(config, episodes(ConstantEnv, False), n) == pytest.approx(10.0, abs=0.3)


@pytest.mark.parametrize("episodes", [twenty_steps, one_step])
@pytest.mark.parametrize("config", BOX.values(), ids=BOX)
def test_value_of_an_endless_task_cut_by_the_clock_is_ten_in_a_box(config, episodes):
    # the entropy's part is 0.01 * 0.69 * 9
    n = 20 if episodes is one_step else 12

    assert box_value(config, episodes(ConstantBoxEnv, False), n) == pytest.approx(10.0, abs=0.4)


# of episodes that are all one step long the state behind the step is never one that is acted from, and R2D1 never
# learns its value: see docs/algos/r2d1.md; here every second one is
@pytest.mark.parametrize("p", [0.05, 0.5])
def test_value_of_an_endless_task_cut_by_the_clock_is_ten_on_the_squashed_scale(p):
    env = EnvConfig(ends_at_random, (OneAction, False, p))

    assert r2d1_value(env, 15) == pytest.approx(h(10, EPS), abs=0.12)


def test_return_beyond_the_atoms_is_learned_as_the_last_atom():
    env = twenty_steps(ConstantEnv, False)

    assert value(replace(C51, v_max=5, **QUICK), env, 8) == pytest.approx(5.0, abs=0.1)


# death ends what is then worth nothing


@pytest.mark.parametrize("config", ALL.values(), ids=ALL)
def test_value_of_a_step_that_ends_by_death_is_its_reward(config):
    assert value(replace(config, **QUICK), one_step(ConstantEnv, True), 4) == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize(("config", "n"), [(A2C, 100), (PPO, 25)], ids=["a2c", "ppo"])
def test_value_of_a_step_that_ends_by_death_is_its_reward_by_a_policy(config, n):
    assert value(config, one_step(ConstantEnv, True), n) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("config", BOX.values(), ids=BOX)
def test_value_of_a_step_that_ends_by_death_is_its_reward_in_a_box(config):
    assert box_value(config, one_step(ConstantBoxEnv, True), 6) == pytest.approx(1.0, abs=0.1)


def test_value_of_a_step_that_ends_by_death_is_its_reward_on_the_squashed_scale():
    env = EnvConfig(ends_at_random, (OneAction, True, 1.0))

    assert r2d1_value(env, 8) == pytest.approx(h(1, EPS), abs=0.05)


# The observation does not tell the time, so in episodes of 20 steps that end by death q = 1 + 0.9 (1 - 1 / 20) q: 6.90;
# with windows of three steps q = (17 (2.71 + 0.729 q) + 2.71 + 1.9 + 1) / 20: 6.79. (DQN with the squared error, for
# Huber's would follow the median of the targets.)
@pytest.mark.parametrize(
    ("config", "q"),
    [(replace(DQN, delta_clip=None), 6.90), (C51, 6.90), (RAINBOW, 6.79)],
    ids=["dqn", "cat_dqn", "rainbow"],
)
def test_value_of_a_task_that_dies_after_twenty_steps_is_lower(config, q):
    assert value(replace(config, **LARGE), twenty_steps(OneAction, True), 15) == pytest.approx(q, abs=0.5)


@pytest.mark.slow
def test_quantile_value_of_a_task_that_dies_is_that_of_hubers_quantiles():
    # for kappa = 1 the quantiles of the fixed point have mean 6.46, not 6.90: see docs/algos/iqn.md
    config = replace(IQN, batch_size=128, replay_ratio=64, learning_rate=3e-3, n_tau=32, n_tau_target=32, n_tau_act=32)

    assert value(config, twenty_steps(ConstantEnv, True), 50, batch_T=10) == pytest.approx(6.46, abs=0.4)


# With lambda = 0.95 the mean over k = 1 .. 20 steps to the end of G_k = 1 + 0.9 (0.05 V + 0.95 G_{k-1}), G_1 = 1, is
# V = 4.952 + 0.208 V: 6.25.
@pytest.mark.parametrize(("config", "n"), [(A2C, 100), (PPO, 40)], ids=["a2c", "ppo"])
def test_value_of_a_task_that_dies_after_twenty_steps_is_lower_by_a_policy(config, n):
    assert value(config, twenty_steps(ConstantEnv, True), n) == pytest.approx(6.25, abs=0.2)


@pytest.mark.parametrize("config", BOX.values(), ids=BOX)
def test_value_of_a_task_that_dies_after_twenty_steps_is_lower_in_a_box(config):
    q = box_value(config, twenty_steps(ConstantBoxEnv, True), 14, batch_size=128, replay_ratio=64.0)

    assert q == pytest.approx(6.90, abs=0.5)


def test_value_of_a_task_that_dies_at_random_is_lower_on_the_squashed_scale():
    # a memory could tell the time in episodes of 20 steps; here it is of no use: windows of two steps, over after each
    # with probability 1/5, of whose targets q is the mean
    q = 0.0
    for _ in range(200):
        q = 0.2 * h(1, EPS) + 0.8 * (0.2 * h(1.9, EPS) + 0.8 * h(1.9 + 0.81 * h_inverse(q, EPS), EPS))
    env = EnvConfig(ends_at_random, (OneAction, True, 0.2))

    assert 1.06 == pytest.approx(q, abs=0.01)
    assert r2d1_value(env, 12, learning_rate=3e-3) == pytest.approx(q, abs=0.12)


# more than one number


@pytest.mark.parametrize("name", ["sac", "sac_v"])
def test_entropy_counts_in_the_value_by_alpha(name):
    # nothing to gain but entropy: at most log 2 for a box of width 2, so q = 1 + 0.9 (q + log 2), 16.2; without the
    # tanh correction the entropy would go to its bound
    changes = {"fixed_alpha": 1.0} if name == "sac" else {"alpha": 1.0, "policy_regularization": 0.0}

    q = box_value(replace(BOX[name], **changes), twenty_steps(ConstantBoxEnv, False), 20)

    assert q == pytest.approx(16.2, abs=0.5)


@pytest.mark.parametrize(
    ("name", "best"),
    [
        ("ddpg", 2.2),
        ("td3", 0.3),
        *(pytest.param(*pair, marks=pytest.mark.slow) for pair in (("sac", 2.2), ("sac_v", 0.3))),
    ],
)
def test_best_action_of_a_continuous_bandit_is_found_within_1200_steps(name, best):
    # the box is [-1, 3]: 2.2 is out of reach without scaling
    config = replace(BOX[name], random_steps=300, actor_learning_rate=1e-3, critic_learning_rate=3e-3)
    agent, *_ = train_box(EnvConfig(BanditEnv, (best,)), config, 60, hidden=(32, 32))

    action = agent.act(torch.ones(1, 1), None, torch.full((1, 1), 0.5), env_ids=[0], step=10**6, explore=False).action

    assert action.item() == pytest.approx(best, abs=0.15)
