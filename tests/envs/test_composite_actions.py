"""Actions of Dict and Tuple spaces at the border: trees of arrays inside the program, the space's own outside."""

from dataclasses import dataclass

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlcli.core.errors import EnvError
from rlcli.core.tree import index, map_tree
from rlcli.envs.gym import action_converter, random_action
from rlcli.envs.probe import probe
from rlcli.envs.vector import InProcessVectorEnv
from tests.probes import COMPOSITE


class SeenEnv(gymnasium.Env):
    """Insists on its action space and keeps what it is given."""

    observation_space = spaces.Box(0, np.inf, (1,), np.float32)

    def __init__(self, kind):
        self.action_space, self.seen = COMPOSITE[kind], []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.seen.append(action)
        return np.zeros(1, np.float32), 1.0, False, False, {}


@dataclass
class SeenConfig:
    kind: str

    def build(self):
        return SeenEnv(self.kind)


def stepped(env, *actions):
    """The env after steps with these trees of one action."""
    obs = np.zeros((1, 1), np.float32)
    env.reset(obs)
    for action in actions:
        env.send(map_tree(lambda leaf: np.asarray(leaf)[None], action))
        env.recv(obs)
    return env._envs[0]


def test_a_dict_comes_as_a_dict_and_counts_as_the_environment_does():
    env = stepped(InProcessVectorEnv(SeenConfig("dict"), [0], 0), {"turn": 2, "push": np.float32([1, -1])})

    (action,) = env.seen
    assert (7, [1, -1]) == (action["turn"], action["push"].tolist())


def test_a_tuple_comes_as_a_tuple_in_the_environments_order():
    action = {"1": 1, "2": np.int8([0, 1]), "0": np.array([1, 2])}

    ((several, one, lights),) = stepped(InProcessVectorEnv(SeenConfig("tuple"), [0], 0), action).seen

    assert ([2, 1], 1, [0, 1]) == (several.tolist(), one, lights.tolist())


@pytest.mark.parametrize("kind", COMPOSITE)
def test_random_actions_are_ones_that_the_env_takes(kind):
    env = InProcessVectorEnv(SeenConfig(kind), [0], seed=0)
    env.reset(np.zeros((1, 1), np.float32))

    env.decorrelate(np.zeros((1, 1), np.float32), 100, seed=0)

    assert len(env._envs[0].seen) > 10


@pytest.mark.parametrize("kind", COMPOSITE)
def test_the_example_action_has_the_shapes_and_dtypes_of_what_an_agent_gives(kind):
    example = probe(SeenConfig(kind)).example_action

    given = random_action(COMPOSITE[kind], np.random.default_rng(1))
    assert map_tree(lambda a: (a.dtype, a.shape), example) == map_tree(lambda a: (a.dtype, a.shape), given)


@pytest.mark.parametrize(
    ("action", "line"),
    [
        ({"turn": 3, "push": np.zeros(2, np.float32)}, r"action\.turn is 3, allowed are 0 to 2"),
        ({"turn": 0, "push": np.float32([0, np.nan])}, r"action\.push\[1\] is nan, it must be finite"),
        ({"turn": 0}, r"action must have the keys \['push', 'turn'\], it is the keys \['turn'\]"),
        (3, r"action must have the keys \['push', 'turn'\], it is 3"),
    ],
)
def test_an_action_that_the_space_does_not_have_is_named_by_its_part(action, line):
    with pytest.raises(EnvError, match=line):
        action_converter(COMPOSITE["dict"])(action)


def test_actions_are_copied_when_sent():
    env = InProcessVectorEnv(SeenConfig("dict"), [0], seed=0)
    obs = np.zeros((1, 1), np.float32)
    env.reset(obs)
    action = {"turn": np.array([2]), "push": np.zeros((1, 2), np.float32)}
    env.send(action)
    action["turn"][0], action["push"][:] = 0, 9

    env.recv(obs)

    assert (7, [0, 0]) == (env._envs[0].seen[0]["turn"], env._envs[0].seen[0]["push"].tolist())


def test_a_wrong_number_of_actions_is_refused_by_the_part():
    env = InProcessVectorEnv(SeenConfig("dict"), [0, 1], seed=0)

    with pytest.raises(ValueError, match="push: expected 2 actions, got 3"):
        env.send({"turn": np.zeros(2, np.int64), "push": np.zeros((3, 2), np.float32)})


def test_random_actions_of_a_seed_hang_on_nothing_else():
    first, second = (random_action(COMPOSITE["nested"], np.random.default_rng(3)) for _ in range(2))

    assert repr(first) == repr(second)
    assert ["0", "1"] == list(index(first, ())["pair"])
