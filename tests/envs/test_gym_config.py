import sys

import gymnasium
import pytest

from rlcli.core.errors import ConfigError, EnvError
from rlcli.envs.config import AtariConfig, GymConfig, evaluation_config, short_name
from rlcli.envs.probe import probe
from tests.probes import IndexConfig

MODULE = """
import gymnasium
from gymnasium.spaces import Box, Discrete
import numpy as np

class Maze(gymnasium.Env):
    observation_space, action_space = Box(0, 1, (1,), np.float32), Discrete(2)
    def __init__(self, size=3, render_mode=None):
        self.size = size
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}
    def step(self, action):
        return np.zeros(1, np.float32), 0.0, False, False, {}

gymnasium.register("Maze-v0", Maze, max_episode_steps=9)
"""


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """Modules on the import path that are not rlcli's; what they register is forgotten afterwards."""
    (tmp_path / "outside_maze.py").write_text(MODULE)
    (tmp_path / "outside_needy.py").write_text("import not_installed_anywhere")
    (tmp_path / "outside_broken.py").write_text("raise RuntimeError('marker-7')")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [m for m in sys.modules if m.startswith("outside_")]:
        del sys.modules[name]
    gymnasium.registry.pop("Maze-v0", None)


@pytest.mark.parametrize(
    ("id_", "label"),
    [
        ("CartPole-v1", "cartpole"),
        ("ALE/MsPacman-v5", "mspacman"),
        ("my_pkg.envs:Maze-v0", "maze"),
        ("my_pkg:space/My Maze!-v12", "my_maze_"),
        ("NoVersion", "noversion"),
        ("", "gym"),
    ],
)
def test_label_is_safe_in_a_folders_name(id_, label):
    assert GymConfig(id=id_).label == label


def test_module_in_the_id_is_imported_and_kwargs_reach_the_constructor(outside):
    env = GymConfig(id="outside_maze:Maze-v0", kwargs={"size": 8}).build()

    assert env.unwrapped.size == 8


@pytest.mark.parametrize(("limit", "length"), [(None, 9), (4, 4)])
def test_max_episode_steps_replaces_the_registered_limit(outside, limit, length):
    env = GymConfig(id="outside_maze:Maze-v0", max_episode_steps=limit).build()
    env.reset()

    assert next(t for t in range(1, 20) if env.step(0)[3]) == length


@pytest.mark.parametrize(
    ("id_", "line"),
    [
        (
            "CartPol-v1",
            "env.id: no environment 'CartPol-v1' is registered; did you mean 'CartPole-v1' or ",
        ),
        ("ALE/Pongg-v5", "env.id: no environment 'ALE/Pongg-v5' is registered; did you mean 'ALE/Pong-v5'"),
        ("no_such_module:X-v0", "env.id: there is no module 'no_such_module' on the import path (PYTHONPATH)"),
        ("outside_maze.sub:X-v0", "env.id: there is no module 'outside_maze.sub' on the import path (PYTHONPATH)"),
        ("outside_maze:Mazy-v0", "env.id: no environment 'Mazy-v0' is registered; did you mean 'Maze-v0'"),
        ("outside_needy:X-v0", "env.id: module 'outside_needy' cannot be imported: No module named 'not_installed_any"),
        ("", "env.id: must be given, such as CartPole-v1 or my_module:MyEnv-v0"),
    ],
)
def test_what_cannot_be_found_is_refused_in_one_line(outside, id_, line):
    with pytest.raises(ConfigError) as caught:
        GymConfig(id=id_).build()

    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(line)


def test_a_module_that_fails_is_an_env_error_with_its_own_message(outside):
    with pytest.raises(EnvError, match="importing outside_broken raised RuntimeError: marker-7") as caught:
        GymConfig(id="outside_broken:X-v0").build()

    assert isinstance(caught.value.__cause__, RuntimeError)


def test_an_unknown_keyword_argument_is_named():
    with pytest.raises(ConfigError, match=r"^env\.kwargs\.colour: CartPole-v1 takes no such argument$"):
        GymConfig(id="CartPole-v1", kwargs={"colour": 1}).build()


def test_mujoco_missing_names_our_extra(monkeypatch):
    for name in [m for m in sys.modules if m.startswith("gymnasium.envs.mujoco")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mujoco", None)

    with pytest.raises(ConfigError, match=r"^env\.id: Hopper-v5 needs a package .*pip install 'rlcli\[mujoco\]'$"):
        GymConfig(id="Hopper-v5").build()


def test_box2d_missing_passes_on_gymnasiums_advice(monkeypatch):
    for name in [m for m in sys.modules if m.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "Box2D", None)

    with pytest.raises(ConfigError, match=r"^env\.id: LunarLander-v3 needs a package .*gymnasium\[box2d\]"):
        GymConfig(id="LunarLander-v3").build()


def test_atari_ids_run_as_registered_with_a_hint():
    spec = probe(GymConfig(id="ALE/Pong-v5"))

    assert spec.example_obs.shape == (210, 160, 3)
    assert any("env=atari env.game=pong gives the usual Atari preprocessing" in note for note in spec.notes)


def test_evaluation_uses_the_same_environment():
    config = GymConfig(id="CartPole-v1")

    assert config.for_evaluation() is config


def test_a_config_with_nothing_but_build_is_evaluated_and_named_too():
    config = IndexConfig()

    assert evaluation_config(config) is config
    assert short_name(config) == "index"


def test_a_config_that_says_more_is_asked():
    config = AtariConfig(game="ALE/MsPacman-v5")

    assert evaluation_config(config) == config.for_evaluation()
    assert short_name(config) == "ms_pacman"
