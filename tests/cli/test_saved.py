"""From a file back to a configuration and to an agent that acts."""

import shutil
import sys

import numpy as np
import pytest
import torch

import rlcli
from rlcli.cli.main import main
from rlcli.cli.saved import LoadedAgent, load_saved
from rlcli.core.errors import ConfigError, EnvError
from rlcli.core.protocols import Act
from rlcli.core.rng import Purpose, integer_seed
from rlcli.envs.probe import probe
from rlcli.record.snapshot import read_snapshot, write_snapshot
from tests.cli.saved_probes import CARTPOLE, DQN, bare_trap, of, train, trap
from tests.probes import IndexConfig


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    return train(
        tmp_path_factory.mktemp("saved") / "a=1, b", *CARTPOLE, *DQN, "snapshot_mode=last_gap", "snapshot_gap=1"
    )


@pytest.fixture(scope="module")
def shades(tmp_path_factory):
    return train(tmp_path_factory.mktemp("saved") / "shades", *of("Shades"), *DQN)


def test_a_file_alone_gives_the_configuration_in_any_folder(cartpole, tmp_path, monkeypatch):
    shutil.copy(cartpole / "params.pkl", tmp_path / "copy.pkl")
    monkeypatch.chdir(tmp_path)

    saved = load_saved("copy.pkl")

    assert load_saved(cartpole).config == saved.config
    assert (1_000, "CartPole-v1") == (saved.config.replay.size, saved.config.env.id)
    assert saved.run is None


def test_a_run_gives_params_pkl_and_without_it_the_newest_that_was_kept(cartpole, tmp_path):
    run = shutil.copytree(cartpole, tmp_path / "run")
    kept = sorted(int(path.stem.removeprefix("itr_")) for path in run.glob("itr_*.pkl"))

    assert run / "params.pkl" == load_saved(run).path
    assert run == load_saved(run).run
    (run / "params.pkl").unlink()
    assert run / f"itr_{kept[-1]}.pkl" == load_saved(run).path
    assert kept[0] == load_saved(run, itr=kept[0]).snapshot["itr"]


def test_a_missing_iteration_is_answered_with_those_there_are(cartpole):
    kept = sorted(int(path.stem.removeprefix("itr_")) for path in cartpole.glob("itr_*.pkl"))

    with pytest.raises(ConfigError, match=f"no itr_7777.pkl; there are: {', '.join(map(str, kept))}"):
        load_saved(cartpole, itr=7777)


def test_the_best_is_taken_where_a_run_has_kept_it(cartpole, tmp_path):
    run = shutil.copytree(cartpole, tmp_path / "run")

    with pytest.raises(ConfigError, match=r"has no best\.pkl"):
        load_saved(run, best=True)
    shutil.copy(run / "params.pkl", run / "best.pkl")
    assert run / "best.pkl" == load_saved(run, best=True).path


@pytest.mark.parametrize("make", [trap, bare_trap])
@pytest.mark.parametrize("verb", ["eval", "play", "export"])
def test_an_untrusted_pickle_is_refused_unexecuted_by_every_verb(make, verb, cartpole, tmp_path, capsys):
    run, canary = shutil.copytree(cartpole, tmp_path / "run"), tmp_path / "canary"
    file = make(run / "params.pkl", canary)
    video = ["--video", str(tmp_path / "a.mp4")] if verb == "play" else []

    assert 2 == main([verb, str(run), *video])
    assert 2 == main([verb, str(file), *video])

    assert not canary.exists()
    assert capsys.readouterr().err.startswith(f"rlcli {verb}: {file}: ")
    assert [run] == list(tmp_path.iterdir())


def test_the_trap_is_one(tmp_path):
    canary = tmp_path / "canary"

    with trap(tmp_path / "a.pkl", canary).open("rb") as file:
        torch.load(file, weights_only=False)

    assert canary.exists()


def test_a_run_made_on_a_gpu_acts_on_the_cpu(cartpole, tmp_path):
    snapshot = read_snapshot(cartpole / "params.pkl")
    snapshot["config"]["device"] = "cuda:7"
    snapshot["config"]["resume"] = "/nowhere/params.pkl"
    write_snapshot(tmp_path / "gpu.pkl", snapshot)

    loaded = rlcli.load(tmp_path / "gpu.pkl", device="cpu")

    assert loaded.act(np.zeros(4, np.float32)) in (0, 1)


USER_MODULE = """
from dataclasses import dataclass
import rlcli
from tests.probes import IndexEnv

@rlcli.register("env", "users")
@dataclass
class UsersConfig:
    length: int = 5
    def build(self):
        return IndexEnv([self.length], False)
"""


def test_a_users_environment_is_found_where_its_module_can_be_imported(tmp_path, monkeypatch):
    code, conf = tmp_path / "code", tmp_path / "code" / "conf"
    (conf / "env").mkdir(parents=True)
    (code / "users_own.py").write_text(USER_MODULE)
    (conf / "env" / "users.yaml").write_text("defaults: [/schema/env/users@_here_]\nlength: 3\n")
    keys = ["n_steps=20", "sampler.batch_B=1", "device=cpu", "logger.ui=quiet", f"run_dir={tmp_path}/run", *DQN]

    def forget():
        sys.modules.pop("users_own", None)
        monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(code)])
        monkeypatch.setattr(sys.modules["rlcli.register"], "_classes", {})

    forget()
    monkeypatch.chdir(code)
    assert 0 == main(["train", "-cd", "conf", "imports=[users_own]", "env=users", *keys])
    forget()
    monkeypatch.chdir("/")
    assert 6.0 == rlcli.evaluate(tmp_path / "run", episodes=4).mean  # where the run began
    forget()
    elsewhere = code.rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="imports: cannot import 'users_own'"):
        load_saved(tmp_path / "run")
    monkeypatch.syspath_prepend(elsewhere)
    assert 6.0 == rlcli.evaluate(tmp_path / "run", episodes=4).mean  # 1 + 2 + 3


def test_an_own_loop_with_a_loaded_agent_plays_the_first_game_of_an_evaluation(cartpole):
    agent = rlcli.load(cartpole, device="cpu")
    env = agent.config.env.build()
    obs, _ = env.reset(seed=integer_seed(agent.config.seed, Purpose.EVAL_ENV, 0))
    score, over = 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(agent.act(obs))
        score, over = score + reward, terminated or truncated

    assert score == rlcli.evaluate(cartpole, episodes=1, overrides=["eval.n_envs=1"]).mean


def test_actions_repeat_with_the_seed_also_where_they_are_random(cartpole):
    agent = rlcli.load(cartpole, device="cpu")

    def actions(seed):
        agent.reset(seed)
        return [agent.act(np.zeros(4, np.float32), explore=True) for _ in range(60)]

    first = actions(3)
    assert {0, 1} == set(first)  # epsilon is near 1 after 200 steps
    assert first == actions(3)
    assert first != actions(4)


def test_loading_and_acting_leave_the_global_random_streams_alone(cartpole):
    torch_before, numpy_before = torch.random.get_rng_state(), np.random.get_state()[1].copy()

    rlcli.load(cartpole, device="cpu").act(np.zeros(4, np.float32), explore=True)

    assert torch.equal(torch_before, torch.random.get_rng_state())
    assert np.array_equal(numpy_before, np.random.get_state()[1])


def test_a_dict_observation_is_taken_as_the_env_gives_it_and_actions_are_the_envs_own(shades):
    agent = rlcli.load(shades, device="cpu")
    env = agent.config.env.build()
    obs, _ = env.reset(seed=1)

    assert obs["place"].dtype == np.float64
    actions = {agent.act(obs, explore=True) for _ in range(50)}
    assert {3, 4, 5} == actions
    assert {int} == {type(a) for a in actions}


def test_an_observation_of_another_shape_is_refused_by_name(shades):
    agent = rlcli.load(shades, device="cpu")

    with pytest.raises(EnvError, match=r"obs\.place: expected float32 \(3,\), got float64 \(2,\)"):
        agent.act({"place": np.zeros(2), "kind": 0})


class CountingAgent:
    """Its recurrent state is the number of steps, its action whether that is odd."""

    n_uniforms = 1

    def initial_state(self, n_envs):
        return torch.zeros(n_envs, dtype=torch.int64)

    def act(self, obs, state, uniforms, *, env_ids, step, explore):
        return Act(action=state % 2, record=None, state=state + 1)


def test_the_recurrent_state_goes_on_until_reset(cartpole):
    agent = LoadedAgent(CountingAgent(), load_saved(cartpole), probe(IndexConfig()))
    obs = np.zeros(2, np.float32)

    assert [0, 1, 0] == [agent.act(obs) for _ in range(3)]
    agent.reset()
    assert 0 == agent.act(obs)


def test_weights_that_do_not_fit_their_own_configuration_are_refused_by_name(cartpole, tmp_path):
    snapshot = read_snapshot(cartpole / "params.pkl")
    snapshot["config"]["model"]["mlp_hidden"] = [3]
    write_snapshot(tmp_path / "other.pkl", snapshot)

    with pytest.raises(ConfigError, match=r"agent\.model\.trunk.*file has .* this run needs"):
        rlcli.load(tmp_path / "other.pkl", device="cpu")
