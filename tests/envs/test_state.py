import gc
import multiprocessing
from dataclasses import replace
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from rlcli.core.errors import EnvError, InexactError
from rlcli.core.tree import leaves
from rlcli.envs.config import AtariConfig, GymConfig
from rlcli.envs.gym import random_action
from rlcli.envs.probe import probe
from rlcli.envs.state import capture, restore
from rlcli.envs.vector import InProcessVectorEnv
from rlcli.record.tree_file import read_tree, write_tree
from tests.envs.rolling import FIELDS
from tests.envs.state_probes import CELLS, LEVELS, HiddenConfig, MazeConfig, MazeEnv, Slotted
from tests.probes import DictConfig, IndexConfig, LivesConfig, NoiseConfig, TupleConfig, empty_obs

PONG = AtariConfig(game="pong", sticky=0.25, image_size=20, frame_stack=2)
SPECS = {}


def vector(config, env_ids=(0,), seed=0):
    key = repr(config)
    if key not in SPECS:
        SPECS[key] = probe(config)
    return InProcessVectorEnv(config, env_ids, seed, spec=SPECS[key])


def drive(env, n_steps, seed, *, fresh=False, autoreset=True):
    """Observations and flags of random steps as bytes, and the last observation."""
    obs, rng, found = empty_obs(env.spec, len(env.env_ids)), np.random.default_rng(seed), []
    if fresh:
        env.reset(obs)
    for _ in range(n_steps):
        env.send(np.stack([random_action(env.spec.action_space, rng) for _ in env.env_ids]), autoreset)
        step = env.recv(obs)
        found.append([leaf.tobytes() for _, leaf in leaves(obs)] + [getattr(step, name).tobytes() for name in FIELDS])
    return found


def assert_goes_on(config, n_before, n_after, *, seed=1, n_other=7, **rest):
    """What was saved in one env goes on in another, which has done something else."""
    first, other = vector(config, [0]), vector(config, [1], seed=5)
    drive(first, n_before, seed, fresh=True, **rest)
    drive(other, n_other, seed + 1, fresh=True)
    state = first.state()
    wanted = drive(first, n_after, seed + 2)

    other.load_state(state)
    got = drive(other, n_after, seed + 2)

    first.close()
    other.close()
    assert wanted == got
    return wanted


@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1", "Pendulum-v1", "FrozenLake-v1"])
@pytest.mark.parametrize("n_before", [1, 13])
def test_a_classic_env_goes_on_in_another_instance(name, n_before):
    assert_goes_on(GymConfig(name, max_episode_steps=20), n_before, 60)


@pytest.mark.parametrize("config", [NoiseConfig(), LivesConfig(), DictConfig(), TupleConfig()])
def test_plain_python_envs_go_on(config):
    assert_goes_on(config, 4, 40)


@pytest.mark.parametrize("n_before", range(10, 60, 7))
def test_an_env_with_state_in_many_places_goes_on(n_before):
    assert_goes_on(MazeConfig(), n_before, 60, n_other=n_before // 2)


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Hopper-v5", "Ant-v5", "Humanoid-v5"])
def test_a_mujoco_env_goes_on(name):
    assert_goes_on(GymConfig(name, max_episode_steps=30), 12, 40)


def test_a_mujoco_model_that_changes_with_the_episode_goes_on():
    first, other = (GymConfig("Hopper-v5").build() for _ in range(2))
    first.reset(seed=1)
    other.reset(seed=2)
    first.unwrapped.model.body_mass[:] *= 1.5
    first.unwrapped.model.opt.gravity[:] = [0, 0, -5]
    state = capture(first)

    restore(other, state)

    action = np.full(3, 0.5, np.float32)
    for _ in range(5):
        np.testing.assert_array_equal(first.step(action)[0], other.step(action)[0])


def test_contacts_are_there_before_the_next_step():
    first, other = (GymConfig("HalfCheetah-v5").build() for _ in range(2))
    first.reset(seed=1)
    other.reset(seed=2)
    while first.unwrapped.data.ncon < 2:
        first.step(np.zeros(6, np.float32))

    restore(other, capture(first))

    np.testing.assert_array_equal(first.unwrapped.data.contact.dist, other.unwrapped.data.contact.dist)


@pytest.mark.parametrize(
    "config",
    [
        PONG,
        replace(PONG, grayscale=False, frame_skip=1, noop_max=0),
        replace(PONG, max_frames=500),
        GymConfig("ALE/Pong-v5"),
    ],
    ids=["pong", "colour", "truncated", "of gymnasium"],
)
def test_an_atari_game_goes_on(config):
    assert_goes_on(config, 90, 130, n_other=20)


def test_an_atari_game_goes_on_from_just_after_its_end():
    config = replace(PONG, game="breakout")
    first, other = vector(config, [0]), vector(config, [1])
    obs, rng = empty_obs(first.spec, 1), np.random.default_rng(0)
    first.reset(obs)
    drive(other, 30, 1, fresh=True)
    ended = False
    while not ended:
        first.send(rng.integers(0, 4, 1))
        ended = bool(first.recv(obs).ended[0])

    state = first.state()
    wanted = drive(first, 60, 3)
    other.load_state(state)

    assert wanted == drive(other, 60, 3)


def test_lives_are_those_of_the_game_that_goes_on():
    first, other = (replace(PONG, game="breakout").build() for _ in range(2))
    first.reset(seed=0)
    other.reset(seed=1)
    rng = np.random.default_rng(0)
    while first.ale.lives() > 3:
        first.step(int(rng.integers(4)))

    restore(other, capture(first))

    assert 3 == other.ale.lives()
    np.testing.assert_array_equal(first.ale.getRAM(), other.ale.getRAM())


def test_an_idle_env_goes_on_idling():
    config = GymConfig("CartPole-v1", max_episode_steps=6)
    first, other = vector(config, [0]), vector(config, [1])
    drive(first, 9, 1, fresh=True, autoreset=False)
    drive(other, 2, 1, fresh=True)
    other.load_state(first.state())
    obs, other_obs = np.zeros((1, 4), np.float32), np.zeros((1, 4), np.float32)

    first.reset_idle(obs)
    other.reset_idle(other_obs)
    np.testing.assert_array_equal(obs, other_obs)
    assert obs.any()


def test_an_idle_env_goes_on_showing_its_last_observation():
    config = GymConfig("CartPole-v1", max_episode_steps=6)
    first, other = vector(config, [0]), vector(config, [1])
    drive(first, 9, 1, fresh=True, autoreset=False)
    drive(other, 2, 1, fresh=True)
    other.load_state(first.state())

    assert drive(first, 2, 0, autoreset=False) == drive(other, 2, 0, autoreset=False)


def test_steps_go_on_being_counted():
    first, other = vector(IndexConfig([9]), [0]), vector(IndexConfig([9]), [1])
    drive(first, 4, 3, fresh=True)
    drive(other, 2, 3, fresh=True)
    other.load_state(first.state())
    other.send(np.full(1, 99))

    with pytest.raises(EnvError, match=r"^env 1, step 5: action is 99"):
        other.recv(np.zeros((1, 2), np.float32))


def test_an_env_that_was_never_reset_is_seeded_at_its_first_reset():
    first, other = vector(NoiseConfig()), vector(NoiseConfig())
    drive(other, 5, 3, fresh=True)
    other.load_state(first.state())

    assert drive(first, 5, 3, fresh=True) == drive(other, 5, 3, fresh=True)


def _wrapped(name):
    wrappers = gymnasium.wrappers
    env = gymnasium.make("CartPole-v1", max_episode_steps=15, disable_env_checker=True)
    box = Box(-9, 9, (4,), np.float64)
    offsets = [1.0]

    def shift(obs):
        offsets[0] += 0.5  # the function around it remembers
        return obs + offsets[0]

    return {
        "record": lambda: wrappers.RecordEpisodeStatistics(env),
        "normalize observation": lambda: wrappers.NormalizeObservation(env),
        "normalize reward": lambda: wrappers.NormalizeReward(env),
        "stack": lambda: wrappers.FrameStackObservation(env, 3),
        "transform": lambda: wrappers.TransformObservation(env, shift, box),
        "sticky": lambda: wrappers.StickyAction(env, 0.4),
        "delay": lambda: wrappers.DelayObservation(env, 2),
        "dict": lambda: wrappers.TransformObservation(
            wrappers.RecordEpisodeStatistics(env), lambda obs: {"a": obs, "b": 1}, Dict(a=box, b=Discrete(2))
        ),
    }[name]()


@pytest.mark.parametrize(
    "name",
    ["record", "normalize observation", "normalize reward", "stack", "transform", "sticky", "delay", "dict"],
)
def test_wrappers_of_gymnasium_go_on(name):
    assert_goes_on(SimpleNamespace(build=lambda: _wrapped(name), name=name), 20, 50, n_other=4)


def maze(seed, n_steps):
    env = MazeEnv()
    env.reset(seed=seed)
    for i in range(n_steps):
        env.step(i % 3)
    return env


def test_what_is_shared_stays_shared():
    first, other = maze(0, 9), maze(1, 2)
    other.also_shared = [5]
    other.row = np.zeros(4)

    restore(other, capture(first))

    assert other.shared is other.also_shared
    assert np.shares_memory(other.row, other.grid)
    assert other.draw.__self__ is other.np_random
    ring = [cell := other.cell]
    while (cell := cell.neighbours[0]) is not ring[0]:
        ring.append(cell)
    assert len({id(cell) for cell in ring}) >= 2


def test_what_is_not_shared_does_not_become_shared():
    first, other = maze(0, 9), maze(1, 2)
    first.also_shared = list(first.shared)
    first.row = first.row.copy()

    restore(other, capture(first))

    assert other.shared is not other.also_shared
    assert not np.shares_memory(other.row, other.grid)


def test_constants_of_a_module_are_not_written_to():
    first, other = maze(0, 2), maze(0, 2)
    first.level, other.level = LEVELS[0], LEVELS[1]
    first.start, other.start = CELLS

    restore(other, capture(first))

    assert [[1, 2], [3, 4]] == [level.tolist() for level in LEVELS]
    assert [1, 2] == [cell.value for cell in CELLS]
    assert [1, 2] == other.level.tolist()
    assert 1 == other.start.value


class SlottedMaze(MazeEnv):
    __slots__ = ("unset",)


def test_attributes_and_slots_that_were_not_there_go():
    first, other = SlottedMaze(), SlottedMaze()
    other.extra, other.unset = 1, 2

    restore(other, capture(first))

    assert not hasattr(other, "extra")
    assert not hasattr(other, "unset")


def test_a_state_is_a_plain_copy():
    env = maze(0, 9)
    state = capture(env)
    before = repr(state)
    for _ in range(5):
        env.step(1)

    assert repr(state) == before
    todo = [state]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            assert all(type(key) is str for key in value)
            todo += value.values()
        elif type(value) in (list, tuple):
            todo += value
        else:
            assert type(value) in (str, int, float, bool, type(None), bytes, np.ndarray), type(value)
            assert not getattr(value, "dtype", np.dtype(int)).hasobject


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, "U3", "M8[s]", [("a", "i4"), ("b", "f8", 2)]])
def test_arrays_keep_dtype_layout_and_values(dtype, order):
    first, other = maze(0, 1), maze(1, 1)
    first.array = np.zeros((2, 3, 4), dtype, order)
    first.array.reshape(-1)[::2] = np.ones((), dtype if dtype != "M8[s]" else "i8").astype(dtype)
    first.reverse, first.column = first.array[::-1, :, 1:3], first.array[:, 1]
    first.fixed = np.arange(3)
    first.fixed.flags.writeable = False
    first.swapped = first.array.transpose(1, 0, 2).copy(order="K")

    restore(other, capture(first))

    for name in ("array", "reverse", "column", "fixed", "swapped"):
        np.testing.assert_array_equal(getattr(first, name), getattr(other, name))
        assert getattr(first, name).strides == getattr(other, name).strides
        assert getattr(first, name).flags.writeable == getattr(other, name).flags.writeable
        assert getattr(first, name).dtype == getattr(other, name).dtype
    other.array[0] = np.zeros((), dtype)
    assert (other.reverse[-1] == np.zeros((), dtype)).all()


def test_generators_spawn_as_they_would_have():
    first, other = maze(0, 1), maze(1, 1)
    first.np_random.spawn(2)

    restore(other, capture(first))

    assert first.np_random.spawn(1)[0].random() == other.np_random.spawn(1)[0].random()


@pytest.mark.parametrize("name", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_every_stream_of_numpy_goes_on(name):
    first, other = maze(0, 1), maze(1, 1)
    first.np_random = np.random.Generator(getattr(np.random, name)(5))
    first.np_random.integers(9, size=3, dtype=np.int32)

    restore(other, capture(first))

    draws = [env.np_random.integers(2**31, size=9, dtype=np.int32).tolist() for env in (first, other)]
    assert draws[0] == draws[1]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("generator", r"HiddenEnv\.parts\['deep'\]\[1\] is a generator, which cannot be saved"),
        ("module stream", r"HiddenEnv\.parts\['deep'\]\[1\] is a module, which cannot be saved"),
        ("global stream", r"HiddenEnv\.parts\['deep'\]\[1\]\.__self__ is a RandomState of numpy\.random\.mtrand, .*"),
        ("iterator", r"HiddenEnv\.parts\['deep'\]\[1\] is a list_iterator, which cannot be saved"),
        ("bytes of others", r"HiddenEnv\.parts\['deep'\]\[1\] is a memoryview, which cannot be saved"),
        ("set of objects", r"HiddenEnv\.parts\['deep'\]\[1\] is a set in the order of its elements' addresses; .*"),
    ],
)
def test_what_cannot_be_saved_is_named_by_its_place(kind, message):
    env = vector(HiddenConfig(kind), [4])
    drive(env, 2, 0, fresh=True)

    with pytest.raises(InexactError, match=f"^env 4: {message}$"):
        env.state()


def test_an_open_file_is_refused(tmp_path):
    env = maze(0, 1)
    with (tmp_path / "log").open("w") as env.log, pytest.raises(InexactError, match=r"^MazeEnv\.log is a TextIO"):
        capture(env)


def test_a_subclass_with_hidden_state_in_c_is_refused():
    env = maze(0, 1)
    env.strange = type("Strange", (bytes,), {})(b"x")

    with pytest.raises(InexactError, match=r"^MazeEnv\.strange is a Strange of "):
        capture(env)


def test_a_long_chain_is_refused_not_a_crash():
    env = maze(0, 1)
    env.chain = None
    for _ in range(5000):
        env.chain = [env.chain]

    with pytest.raises(InexactError, match="MazeEnv: its objects are nested too deeply"):
        capture(env)
    while env.chain:
        env.chain = env.chain[0]


def test_a_class_that_the_env_does_not_use_is_not_made():
    first, other = maze(0, 1), maze(0, 1)
    first.part = Slotted()
    state = capture(first)
    record = state["objects"][next(v[0] for k, v in state["objects"][0]["fields"].items() if k == "part")]
    record["class"] = "subprocess:Popen"

    with pytest.raises(InexactError, match=r"MazeEnv\.part: subprocess:Popen is not among the classes"):
        restore(other, state)


def test_an_env_of_another_class_is_refused():
    state = capture(maze(0, 1))

    with pytest.raises(InexactError, match=r"the state is one of .*:MazeEnv, not of .*:HiddenEnv"):
        restore(HiddenConfig("").build(), state)


def test_another_format_is_refused():
    with pytest.raises(InexactError, match="format 99, this rlcli reads 1"):
        restore(maze(0, 1), {**capture(maze(0, 1)), "format": 99})


def test_a_state_in_the_middle_of_a_step_is_a_mistake():
    env = vector(NoiseConfig())
    drive(env, 1, 0, fresh=True)
    env.send(np.zeros(1, np.int64))

    with pytest.raises(RuntimeError, match="between send"):
        env.state()


def test_as_many_states_as_envs_are_asked_for():
    env = vector(NoiseConfig(), [0, 1])

    with pytest.raises(ValueError, match="expected 2 states, got 0"):
        env.load_state([])


def _go_on(config, env_ids, states, n_steps, queue):
    env = vector(config, env_ids)
    drive(env, 2, 9, fresh=True)
    env.load_state(states)
    obs, rows = empty_obs(env.spec, len(env_ids)), []
    for _ in range(n_steps):
        env.send(np.ones(len(env_ids), np.int64))
        env.recv(obs)
        rows.append(obs.copy())
    queue.put(np.stack(rows))


@pytest.mark.parametrize("config", [MazeConfig(), replace(PONG, game="breakout")], ids=["maze", "breakout"])
def test_other_slices_in_other_processes_go_on_as_all_in_one(config, tmp_path):
    env = vector(config, [0, 1, 2])
    drive(env, 30, 0, fresh=True)
    write_tree(tmp_path / "envs", env.state())
    states = read_tree(tmp_path / "envs")
    obs, wanted = empty_obs(env.spec, 3), []
    for _ in range(40):
        env.send(np.ones(3, np.int64))
        env.recv(obs)
        wanted.append(obs.copy())

    context = multiprocessing.get_context("spawn")
    queue, parts = context.Queue(), []
    for lo, hi in ((0, 2), (2, 3)):
        args = (config, range(lo, hi), states[lo:hi], 40, queue)
        process = context.Process(target=_go_on, args=args)
        process.start()
        parts.append(queue.get(timeout=60))
        process.join(30)
    queue.close()
    gc.collect()

    np.testing.assert_array_equal(np.stack(wanted), np.concatenate(parts, axis=1))
