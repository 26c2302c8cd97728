"""The same bytes from every sampler: what an env does and how it explores hangs on its global id alone."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from rlcli.agents.epsilon_config import ApexEpsilon, LinearEpsilon
from rlcli.agents.q import QAgent
from rlcli.core.rng import Purpose, UniformStreams
from rlcli.envs.config import AtariConfig
from tests.sampler_modes import ONE_OF_EACH, OTHERS, assert_same_run, config, run
from tests.sampler_probes import ImageTableAgent, TableNetwork, make_setup

ODD = {"batch_T": 20, "batch_B": 5, "max_decorrelation_steps": 13}
"""Neither two halves nor two workers divide 5 environments."""


@cache
def wander(mode, reset, **options):
    return run(config(mode, **ODD, reset=reset, **options), make_setup(), 15, evaluate=True)


@pytest.mark.parametrize("reset", ["mid_batch", "between_batches"])
@pytest.mark.parametrize("mode", OTHERS)
def test_every_sampler_gives_the_bytes_statistics_and_evaluations_of_serial(mode, reset):
    serial = wander("serial", reset)

    assert any(bool(b.samples.terminated.any()) for b in serial.batches)
    assert any(bool(b.samples.truncated.any()) for b in serial.batches)
    assert_same_run(serial, wander(mode, reset))


@pytest.mark.parametrize(
    ("mode", "start_method"),
    [("cpu of 2", "spawn"), ("gpu of 2", "forkserver"), ("async alternating of 2", "forkserver")],
)
def test_start_method_changes_nothing(mode, start_method):
    got = run(config(mode, **ODD, reset="mid_batch", start_method=start_method), make_setup(), 15, evaluate=True)

    assert_same_run(wander("serial", "mid_batch"), got)


@pytest.mark.parametrize("mode", ["alternating of 2", "alternating of 2, no overlap", "async alternating of 2"])
def test_halves_of_one_environment_give_what_serial_gives(mode):
    expected, got = (run(config(m, 10, 2), make_setup(), 5) for m in ("serial", mode))

    assert_same_run(expected, got)


def table_q(epsilon, n_envs):
    """Exploration as DQN's, on values that are exact."""
    return make_setup(agent=QAgent(TableNetwork(), epsilon, n_envs))


@pytest.mark.parametrize(
    "epsilon",
    [ApexEpsilon(base=0.6, alpha=3.0), LinearEpsilon(init=1.0, final=0.5, final_min=0.01, end_steps=300)],
    ids=["apex", "linear with final_min"],
)
def test_vector_epsilon_hangs_on_the_global_id_in_every_sampler(epsilon):
    expected = run(config("serial", 20, 7), table_q(epsilon, 7), 5, evaluate=True)

    for mode in OTHERS:
        assert_same_run(expected, run(config(mode, 20, 7), table_q(epsilon, 7), 5, evaluate=True))


def test_env_explores_as_often_as_its_own_epsilon_says():
    # Env i of 7 has epsilon 0.6 ** (1 + 3 i / 6); it acts at random where its first uniform is below.
    uniforms = torch.from_numpy(UniformStreams(0, Purpose.EXPLORE, range(7), 2).block(100))
    epsilon = torch.tensor([0.6 ** (1 + 3 * i / 6) for i in range(7)], dtype=torch.float64)
    explores = uniforms[..., 0] < epsilon

    for mode in ONE_OF_EACH:
        s = run(config(mode, 100, 7), table_q(ApexEpsilon(0.6, 3.0), 7), 1).batches[0].samples
        greedy = TableNetwork()(s.obs[:-1].flatten(0, 1)).argmax(-1).view(100, 7)
        expected = torch.where(explores, (uniforms[..., 1] * 3).long(), greedy)
        assert torch.equal(expected, s.action), mode


@cache
def atari_setup(game, backend):
    env = AtariConfig(game=game, backend=backend, image_size=20, frame_stack=2, max_frames=240)
    return make_setup(env, ImageTableAgent(), eval_n_episodes=1, eval_n_envs=1, eval_max_steps=30)


@cache
def atari(game, backend, mode):
    return run(config(mode, 40, 3, max_decorrelation_steps=10), atari_setup(game, backend), 3, evaluate=True)


@pytest.mark.parametrize("mode", ["serial", "gpu of 2", "alternating of 2", "cpu of 2", "async gpu of 2"])
@pytest.mark.parametrize("game", ["pong", "breakout"])
def test_ale_backend_gives_the_bytes_of_the_python_backend(game, mode):
    python = atari(game, "python", "serial")

    assert any(bool(b.samples.truncated.any()) for b in python.batches)  # the clock
    assert game == "pong" or any(bool(b.samples.terminated.any()) for b in python.batches)  # lives
    assert_same_run(python, atari(game, "ale", mode))


@pytest.mark.parametrize("mode", ["gpu of 2", "alternating of 2"])
def test_python_backend_in_workers_gives_the_bytes_of_serial(mode):
    assert_same_run(atari("breakout", "python", "serial"), atari("breakout", "python", mode))


@pytest.mark.parametrize("mode", ONE_OF_EACH)
def test_evaluation_leaves_training_as_it_was(mode):
    setup = make_setup()
    without = run(config(mode, 15, 3), setup, 4)
    evaluated = run(config(mode, 15, 3), setup, 4, evaluate=True)

    assert_same_run(without, replace(evaluated, evaluations=[]))
