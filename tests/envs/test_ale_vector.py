import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlcli.core.errors import ConfigError, EnvError, InexactError
from rlcli.core.options import range_problems
from rlcli.core.pulse import Pulse
from rlcli.core.rng import Purpose
from rlcli.core.spec import Step
from rlcli.envs.ale_vector import AleVectorEnv
from rlcli.envs.build import build_vector_env, has_native_vector
from rlcli.envs.config import AtariConfig, GymConfig
from rlcli.envs.probe import probe
from rlcli.envs.vector import InProcessVectorEnv

ALE = AtariConfig(game="breakout", image_size=20, frame_stack=2, backend="ale")
"""Small screens keep the copies in the tests small; lives, no-ops, FIRE and clipping are on."""
CALM = replace(ALE, noop_max=0)
"""Nothing is drawn at random."""
SPECS = {}
STEP_FIELDS = [field.name for field in fields(Step)]


def ale_env(config, env_ids, seed=7, **rest):
    """Without a probe for each test: loading a game takes long."""
    key = repr(config)
    if key not in SPECS:
        SPECS[key] = probe(config)
    return AleVectorEnv(config, env_ids, seed, spec=SPECS[key], **rest)


def both(config, env_ids=(5, 2), seed=7, **rest):
    """The envs of both backends, which are to do the same."""
    ale = ale_env(config, env_ids, seed, n_threads=2, **rest)
    return InProcessVectorEnv(config, env_ids, seed, spec=ale.spec, **rest), ale


def memory(env):
    return np.zeros((len(env.env_ids), *env.spec.example_obs.shape), np.uint8)


def actions(env, n_steps, seed=0):
    """[n_steps, B]; those of an env hang on its id alone."""
    streams = [np.random.default_rng((seed, i)) for i in env.env_ids]
    return np.stack([rng.integers(0, env.spec.n_actions, n_steps) for rng in streams], axis=1)


def rows(env, obs, action, autoreset=True):
    """Each row's observations and Step, as arrays [n_steps, B, ...] by name."""
    found = {name: [] for name in ("obs", *STEP_FIELDS)}
    for a in action:
        env.send(a, autoreset)
        got = env.recv(obs)
        found["obs"].append(obs.copy())
        for name in STEP_FIELDS:
            found[name].append(getattr(got, name).copy())
    return {name: np.stack(values) for name, values in found.items()}


def play(env, n_steps, *, decorrelation=0):
    obs = memory(env)
    env.reset(obs)
    env.decorrelate(obs, decorrelation, seed=3)
    first = obs.copy()
    found = rows(env, obs, actions(env, n_steps))
    return {**found, "obs": np.concatenate([first[None], found["obs"]])}


def assert_same(expected, got):
    for name, values in expected.items():
        np.testing.assert_array_equal(got[name], values, err_msg=name)
        assert got[name].dtype == values.dtype


@pytest.mark.parametrize(
    ("changes", "n_steps", "n_ended", "n_lives"),
    [
        ({"image_size": 84, "frame_stack": 4}, 250, 1, 4),  # the defaults of all keys
        ({"sticky": 0.25}, 400, 2, 8),
        ({"game": "frogger"}, 300, 1, 3),  # shows 0 lives before its end
        ({"game": "space_invaders", "clip_reward": False, "episodic_life": False, "max_frames": 402}, 210, 4, 0),
        ({"game": "pong", "sticky": 0.25, "grayscale": False, "frame_stack": 3, "max_frames": 40}, 50, 8, 0),
        ({"game": "freeway", "frame_skip": 3, "noop_max": 7, "max_frames": 70, "full_action_space": True}, 80, 6, 0),
    ],
)
def test_every_row_equals_the_python_backends(changes, n_steps, n_ended, n_lives):
    python, ale = both(replace(ALE, **changes))
    expected = play(python, n_steps, decorrelation=20)

    got = play(ale, n_steps, decorrelation=20)

    assert expected["ended"].sum() >= n_ended
    assert (expected["terminated"] & ~expected["ended"]).sum() >= n_lives
    assert_same(expected, got)


@pytest.mark.parametrize("grayscale", [True, False])
def test_screens_that_are_not_square_are_those_of_atari_env(grayscale):
    python, ale = both(replace(ALE, game="pong", image_size=104, image_width=80, grayscale=grayscale))

    expected, got = play(python, 25), play(ale, 25)

    assert (104, 80) == got["obs"].shape[-2:]
    assert_same(expected, got)


def test_the_games_states_are_hidden():
    env = ale_env(ALE, [0])

    with pytest.raises(InexactError, match="in C\\+\\+, whose state cannot be read"):
        env.state()
    with pytest.raises(InexactError, match="in C\\+\\+, whose state cannot be read"):
        env.load_state([None])


def test_a_life_lost_in_the_step_that_truncates_is_told_as_both():
    config = replace(CALM, fire_reset=True)
    env = config.build()
    env.reset(seed=0)
    n_steps = 1
    while not env.step(1)[4]["rlcli.life_lost"]:
        n_steps += 1
    python, ale = both(replace(config, max_frames=4 * n_steps), env_ids=(0,))
    action = np.ones((n_steps + 3, 1), np.int64)
    obs = memory(python)
    python.reset(obs)
    expected = rows(python, obs, action)
    assert (expected["terminated"] & expected["truncated"]).sum() == 1

    ale.reset(obs)

    assert_same(expected, rows(ale, obs, action))


def test_a_slice_of_the_envs_gives_the_rows_of_all_together():
    config = replace(ALE, sticky=0.25, max_frames=120)
    together = play(ale_env(config, range(3), n_threads=2), 80, decorrelation=10)

    for ids in ([0, 1], [2]):
        alone = play(ale_env(config, ids), 80, decorrelation=10)
        assert_same({name: values[:, ids] for name, values in together.items()}, alone)


def test_resets_go_on_in_their_streams_and_a_seed_starts_them_anew():
    expected, got = [], []
    for env, found in zip(both(replace(ALE, sticky=0.25), [2]), (expected, got), strict=True):
        obs = memory(env)
        for seed in (None, None, 7, 8, None):
            env.reset(obs, seed)
            found.append(obs.copy())
            found.append(rows(env, obs, actions(env, 10))["obs"])

    for e, g in zip(expected, got, strict=True):
        np.testing.assert_array_equal(g, e)
    assert (expected[0] != expected[2]).any()
    np.testing.assert_array_equal(expected[0], expected[4])


def test_a_reset_abandons_the_step_under_way():
    python, ale = both(CALM)
    expected, obs = memory(python), memory(ale)
    python.reset(expected)
    ale.reset(obs)
    ale.send(np.ones(2, np.int64))

    ale.reset(obs, seed=7)

    np.testing.assert_array_equal(obs, expected)
    with pytest.raises(RuntimeError, match="without send"):
        ale.recv(obs)


@pytest.mark.parametrize("rest", [{"incarnation": 1}, {"purpose": Purpose.EVAL_ENV}])
def test_purpose_and_incarnation_have_streams_of_their_own_the_python_backends(rest):
    config = replace(ALE, sticky=0.25)
    python, ale = both(config, [2], **rest)
    expected = play(python, 30, decorrelation=8)

    got = play(ale, 30, decorrelation=8)

    assert_same(expected, got)
    assert (play(ale_env(config, [2]), 30, decorrelation=8)["obs"] != got["obs"]).any()


def test_decorrelation_that_is_not_at_a_seeded_start_is_refused():
    env = ale_env(CALM, [0])
    obs = memory(env)
    env.reset(obs)
    env.reset(obs)

    env.decorrelate(obs, 0, seed=3)
    with pytest.raises(RuntimeError, match="must follow a reset"):
        env.decorrelate(obs, 5, seed=3)


def idle_play(env):
    """The rows of two batches between which idle envs are reset; at the end the first env no longer idles."""
    obs = memory(env)
    env.reset(obs)
    action = actions(env, 130)
    parts = [rows(env, obs, action[:65], autoreset=False)]
    env.reset_idle(obs)
    parts.append({"obs": obs[None].copy()})
    parts.append(rows(env, obs, action[65:], autoreset=False))
    autoreset = np.arange(len(env.env_ids)) == 0
    parts.append(rows(env, obs, actions(env, 20, seed=1), autoreset))
    return parts


def test_idle_envs_show_filler_rows_of_their_last_observation_as_the_python_backend_does():
    expected, got = map(idle_play, both(replace(CALM, max_frames=150)))

    for e, g in zip(expected, got, strict=True):
        assert_same(e, g)
    assert not expected[0]["valid"][38:].any()
    assert expected[3]["valid"][1:].sum(axis=0).tolist() == [19, 0]


def test_games_after_idling_hang_on_seed_and_env_alone():
    config = replace(ALE, sticky=0.25, max_frames=150)
    together = idle_play(ale_env(config, [0, 1], n_threads=2))

    alone = idle_play(ale_env(config, [0]))

    for e, g in zip(together, alone, strict=True):
        assert_same({name: values[:, :1] for name, values in e.items()}, g)


def test_what_is_sent_to_an_idle_env_changes_nothing():
    found = []
    for ignored in (0, 1):  # unseen, 1 would lose a whole game of Breakout, 0 a single life
        env = ale_env(ALE, [0])
        obs = memory(env)
        env.reset(obs)
        while not rows(env, obs, [np.array([1])])["ended"].any():
            pass
        rows(env, obs, np.full((160, 1), ignored), autoreset=False)
        env.reset_idle(obs)
        found.append(rows(env, obs, np.ones((20, 1), np.int64)))

    assert_same(*found)


EXPECTED = "actions must be integers (3,), one for each of the envs [0, 5, 2]"


@pytest.fixture(scope="module")
def after_two_steps():
    env = ale_env(CALM, (0, 5, 2))
    obs = memory(env)
    env.reset(obs)
    rows(env, obs, actions(env, 2))
    return env


@pytest.mark.parametrize(
    ("action", "line"),
    [
        (np.array([0, 4, 0]), "env 5, step 3: action is 4, allowed are 0 to 3"),
        (np.array([0, 0, -1]), "env 2, step 3: action is -1, allowed are 0 to 3"),
        (np.array([0, 2**40, 9]), f"env 5, step 3: action is {2**40}, allowed are 0 to 3"),
        (
            np.zeros(3, np.float32),
            "actions must be integers (3,), one for each of the envs [0, 5, 2]; got float32 (3,)",
        ),
        (np.zeros(2, np.int64), "actions must be integers (3,), one for each of the envs [0, 5, 2]; got int64 (2,)"),
        (np.zeros((3, 1), int), "actions must be integers (3,), one for each of the envs [0, 5, 2]; got int64 (3, 1)"),
        (np.ones(3, bool), "actions must be integers (3,), one for each of the envs [0, 5, 2]; got bool (3,)"),
    ],
)
def test_an_invalid_action_does_not_reach_the_threads(after_two_steps, action, line):
    with pytest.raises(EnvError) as caught:
        after_two_steps.send(action)

    assert str(caught.value) == line
    after_two_steps.reset(memory(after_two_steps))  # nothing hangs


def test_actions_are_taken_as_they_are_when_sent():
    expected, env = both(CALM)
    obs, action = memory(env), np.array([2, 3])
    expected.reset(obs)
    wanted = rows(expected, obs, [action] * 5)["obs"][-1]
    env.reset(obs)

    for _ in range(5):
        sent = action.astype(np.uint8)
        env.send(sent)
        sent[:] = 0
        env.recv(obs)

    np.testing.assert_array_equal(obs, wanted)


@pytest.mark.parametrize("grayscale", [True, False])
def test_observations_go_to_a_slice_of_larger_memory(grayscale):
    env = ale_env(replace(CALM, grayscale=grayscale), (0, 1), seed=0)
    expected = memory(env)
    env.reset(expected)
    large = np.zeros((4, *expected.shape[1:]), np.uint8)

    env.reset(large[::2], seed=0)

    np.testing.assert_array_equal(large[::2], expected)
    assert not large[1::2].any()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"mode": 0}, "mode: backend=ale cannot set it, leave it at null or take env.backend=python"),
        ({"difficulty": 1}, "difficulty: backend=ale cannot set it, leave it at null or take env.backend=python"),
        ({"frame_skip": 1}, "frame_skip: 1 is not allowed with backend=ale, must be >= 2, or take env.backend=python"),
        ({"game": "pongg"}, "game: no Atari game 'pongg'; did you mean 'pong'?"),
        ({"backend": "alle"}, "backend: 'alle' is not allowed, must be one of python, ale"),
    ],
)
def test_what_the_backend_cannot_do_is_refused_by_name(changes, line):
    assert range_problems(replace(ALE, **changes)) == [line]
    if "backend" not in changes:
        with pytest.raises(ConfigError) as caught:
            build_vector_env(replace(ALE, **changes), [0], 0)
        assert caught.value.problems == [f"env.{line}"]


def n_threads():
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads in /proc")
def test_closing_ends_the_threads_also_in_the_middle_of_a_step():
    before = n_threads()
    env = ale_env(CALM, (0, 1), n_threads=2)
    env.reset(memory(env))
    env.send(np.ones(2, np.int64))
    assert n_threads() > before

    env.close()
    env.close()

    assert n_threads() == before


def test_the_pulse_tells_what_is_done_and_beats_at_each_step():
    pulse = Pulse()
    env = ale_env(CALM, [0], pulse=pulse)
    built = pulse.describe()
    obs = memory(env)
    env.reset(obs)
    reset, n_beats = pulse.describe(), pulse.n_beats

    rows(env, obs, actions(env, 3))

    assert (built, reset, pulse.describe()) == ("constructing env", "reset", "step")
    assert pulse.n_beats >= n_beats + 3


@dataclass
class OwnVectorConfig:
    """A config that offers something of its own for some of its values."""

    native: bool

    def build(self) -> gymnasium.Env[Any, Any]:
        return gymnasium.make("CartPole-v1")

    @property
    def native_vector(self) -> bool:
        return self.native

    def build_vector(self, env_ids, seed, **rest):
        return (list(env_ids), seed, rest) if self.native else None


def test_a_configs_own_vector_env_is_built_with_all_arguments():
    pulse = Pulse()

    got = build_vector_env(OwnVectorConfig(True), [3], 5, purpose=Purpose.EVAL_ENV, n_threads=2, pulse=pulse)

    rest = {"purpose": Purpose.EVAL_ENV, "spec": None, "n_threads": 2, "pulse": pulse, "incarnation": 0}
    assert got == ([3], 5, rest)


@pytest.mark.parametrize(
    ("config", "kind", "native"),
    [
        (ALE, AleVectorEnv, True),
        (replace(ALE, backend="python"), InProcessVectorEnv, False),
        (GymConfig(id="CartPole-v1"), InProcessVectorEnv, False),
        (OwnVectorConfig(False), InProcessVectorEnv, False),
    ],
)
def test_envs_step_one_after_another_unless_the_config_offers_better(config, kind, native):
    env = build_vector_env(config, [4], 0)

    assert type(env) is kind
    assert env.env_ids == (4,)
    assert has_native_vector(config) is native
    env.close()
