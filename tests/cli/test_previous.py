"""A recurrent policy sees its previous action and reward in every verb."""

import numpy as np
import pytest

import rlcli
from rlcli.core.errors import ConfigError

LSTM = ["algo=ppo", "env=cartpole", "model.recurrent=lstm", "model.recurrent_hidden=8", "sampler.batch_B=4"]
LSTM += ["n_steps=200", "logger.ui=quiet", "hash_iterations=3", "device=cpu"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return rlcli.train([*LSTM, f"run_dir={tmp_path_factory.mktemp('lstm')}/run"])


def test_a_loaded_agent_takes_what_its_environment_shows(run):
    agent = rlcli.load(run)
    env = agent.config.task.build()
    obs, _ = env.reset(seed=0)

    actions = []
    for _ in range(3):
        actions.append(int(agent.act(obs)))
        obs, *_ = env.step(actions[-1])

    assert ["obs", "previous_action", "previous_reward"] == list(env.observation_space.spaces)
    assert set(actions) <= {0, 1}
    assert np.eye(2)[actions[-1]].tolist() == obs["previous_action"].tolist()
    assert [1.0] == obs["previous_reward"].tolist()


def test_it_can_be_evaluated_and_resumed(run):
    rlcli.evaluate(run, episodes=4)
    rlcli.resume(run, ["n_steps=400"])


def test_the_native_backend_is_refused_before_anything_is_made(tmp_path):
    with pytest.raises(ConfigError, match=r"^env\.backend: ale cannot add"):
        rlcli.train(["algo=ppo", "env=pong", "env.backend=ale", "model.recurrent=lstm", f"run_dir={tmp_path}/run"])
    assert not (tmp_path / "run").exists()
