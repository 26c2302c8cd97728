"""Every file in conf/experiment/ runs, and those that are a reference have its values."""

import csv
import dataclasses
import math

import pytest

import rlcli
from rlcli.cli import paths
from rlcli.cli.argv import Request
from rlcli.cli.compose import plan, prepare

EXPERIMENTS = paths.options([paths.conf_dir()], "experiment")
"""Read off the folder: a new file is tested without a line here."""
EXTRAS = ("mujoco", "minatar")
"""Packages that experiments need whose names begin so."""
RUN = ["sampler=serial", "logger.ui=quiet", "device=cpu", "torch_threads=1", "eval.interval_steps=0"]
RUN += ["log_interval_steps=1", "checkpoint_interval_steps=0"]
SMALL = {
    "sampler.batch_T": 16,
    "sampler.batch_B": 2,
    "sampler.max_decorrelation_steps": 2,
    "algo.min_steps_learn": 1,
    "algo.random_steps": 5,
    "algo.batch_size": 2,
    "algo.replay_ratio": 0.4,
    "algo.epochs": 2,
    "algo.minibatches": 2,
    "replay.size": 400,
    "replay.burn_in_T": 1,
    "replay.train_T": 2,
    "replay.state_interval": 2,
}
"""At most so much of each, where the experiment has it: a run of two short batches that learns in both."""


def composed(*words):
    """The configuration of a run with these words."""
    request = Request(list(words))
    prepare(request)
    return plan(request).configs[0]


def value_at(config, key):
    for name in key.split("."):
        config = getattr(config, name, None)
    return config


def shrunk(config):
    """Words that make its run small, and how many rows a batch then has."""
    own = {key: value_at(config, key) for key in SMALL}
    small = {key: min(own[key], most) for key, most in SMALL.items() if own[key] is not None}
    small["sampler.batch_T"] = SMALL["sampler.batch_T"]  # of one row each nothing could be drawn
    n_rows = small["sampler.batch_T"] * small["sampler.batch_B"]
    return [f"{key}={value}" for key, value in small.items()], n_rows


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_takes_two_iterations_and_learns(name, tmp_path):
    for extra in EXTRAS:
        if name.startswith(extra):
            pytest.importorskip(extra)
    config = composed(f"experiment={name}")
    words, n_rows = shrunk(config)

    run = rlcli.train([f"experiment={name}", *RUN, *words, f"n_steps={n_rows + 1}", f"run_dir={tmp_path}/run"])

    with (run / "progress.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [1, 2] == [int(row["Iteration"]) for row in found]
    assert 0 < int(found[0]["CumUpdates"]) < int(found[1]["CumUpdates"])
    losses = [name for name in found[1] if name.endswith("LossAverage") or name == "lossAverage"]
    assert losses
    assert all(math.isfinite(float(row[loss])) for row in found for loss in losses)
    if getattr(config.algo, "learning_rate_schedule", "constant") == "constant":  # a line is at 0 in the last step
        assert found[0]["WeightsHash"] != found[1]["WeightsHash"]


ATARI_Q = {
    "n_steps": 50_000_000,
    "sampler.batch_T": 2,
    "sampler.batch_B": 16,
    "sampler.max_decorrelation_steps": 1000,
    "algo.discount": 0.99,
    "algo.batch_size": 128,
    "algo.replay_ratio": 8,
    "algo.learning_rate": 1e-4,
    "algo.clip_grad_norm": 10,
    "algo.min_steps_learn": 50_000,
    "algo.target_update_interval": 312,
    "algo.tau": 1,
    "algo.n_step_return": 1,
    "algo.double_dqn": False,
    "algo.dueling": False,
    "algo.noisy": False,
    "epsilon.init": 1,
    "epsilon.final": 0.01,
    "epsilon.start_steps": 50_000,
    "epsilon.end_steps": 1_000_000,
    "epsilon.eval": 0.001,
    "replay.size": 1_000_000,
    "model.conv_channels": [32, 64, 64],
    "model.conv_kernels": [8, 4, 3],
    "model.conv_strides": [4, 2, 1],
    "model.conv_paddings": [0, 1, 1],
    "model.conv_hidden": 512,
    "env.frame_stack": 4,
    "env.frame_skip": 4,
    "env.episodic_life": True,
    "env.clip_reward": True,
    "env.max_frames": 4 * 27_000,
    "eval.n_envs": 4,
    "eval.n_episodes": 100,
    "eval.max_steps": 125_000,
}
ATARI_PG = {
    "n_steps": 50_000_000,
    "sampler.batch_B": 32,
    "sampler.max_decorrelation_steps": 1000,
    "algo.discount": 0.99,
    "algo.entropy_loss_coeff": 0.01,
    "algo.clip_grad_norm": 1,
    "algo.normalize_advantage": False,
    "algo.adam_eps": 1e-8,
    "model.conv_channels": [16, 32],
    "model.conv_kernels": [8, 4],
    "model.conv_strides": [4, 2],
    "model.conv_paddings": [0, 1],
    "model.conv_hidden": 512,
    "model.shared_trunk": True,
    "env.frame_stack": 4,
    "env.clip_reward": True,
}
A2C = {
    "sampler.batch_T": 5,
    "algo.learning_rate": 3e-4,
    "algo.learning_rate_schedule": "constant",
    "algo.value_loss_coeff": 0.5,
    "algo.gae_lambda": 1,
}
PPO = {
    "sampler.batch_T": 64,
    "algo.learning_rate": 1e-3,
    "algo.learning_rate_schedule": "linear",
    "algo.ratio_clip": 0.1,
    "algo.ratio_clip_schedule": "linear",
    "algo.value_loss_coeff": 1,
    "algo.gae_lambda": 0.98,
    "algo.epochs": 4,
    "algo.minibatches": 4,
    "algo.clip_value_loss": False,
}
LSTM = {"model.recurrent": "lstm", "model.recurrent_hidden": 512, "model.adds_previous": True}
MUJOCO = {
    "n_steps": 1_000_000,
    "log_interval_steps": 10_000,
    "sampler.batch_T": 1,
    "sampler.batch_B": 1,
    "sampler.max_decorrelation_steps": 0,
    "algo.discount": 0.99,
    "algo.min_steps_learn": 10_000,
    "algo.n_step_return": 1,
    "algo.clip_grad_norm": None,  # rlpyt: 1e8 and 1e9
    "algo.adam_eps": 1e-8,
    "replay.size": 1_000_000,
    "model.activation": "relu",
    "eval.interval_steps": 10_000,
    "eval.n_episodes": 50,
    "eval.max_steps": 51_000,
}
BATCH_100 = {
    "algo.batch_size": 100,
    "algo.replay_ratio": 100,
    "algo.actor_learning_rate": 1e-3,
    "algo.critic_learning_rate": 1e-3,
    "algo.noise_std": 0.1,
    "model.mlp_hidden": [400, 300],
}
BATCH_256 = {
    "algo.batch_size": 256,
    "algo.replay_ratio": 256,
    "algo.tau": 0.005,
    "algo.actor_learning_rate": 3e-4,
    "algo.critic_learning_rate": 3e-4,
    "model.mlp_hidden": [256, 256],
}
C51 = {"algo.v_min": -10, "algo.v_max": 10, "algo.n_atoms": 51, "algo.adam_eps": 0.01 / 128}
REFERENCES = {
    "atari_dqn": ATARI_Q | {"algo.delta_clip": 1, "algo.adam_eps": 0.01 / 128},
    "atari_cat_dqn": ATARI_Q | C51 | {"algo.learning_rate": 2.5e-4},
    "atari_ernbw": ATARI_Q
    | C51
    | {
        "algo.learning_rate": 6.25e-5,
        "algo.n_step_return": 3,
        "algo.double_dqn": True,
        "algo.dueling": True,
        "replay.alpha": 0.6,
        "replay.beta": 0.4,
        "replay.beta_final": 1,
        "replay.beta_steps": None,  # n_steps, 50 million
    },
    "atari_r2d1": {
        **{key: value for key, value in ATARI_Q.items() if key != "algo.noisy"},
        **LSTM,
        "n_steps": 100_000_000,
        "sampler.batch_T": 30,
        "sampler.batch_B": 32,
        "env.clip_reward": False,
        "algo.discount": 0.997,
        "algo.batch_size": 32,
        "algo.replay_ratio": pytest.approx(4 * 80 / (40 + 80), rel=2e-4),
        "algo.adam_eps": 1e-3,
        "algo.clip_grad_norm": 80,
        "algo.min_steps_learn": 100_000,
        "algo.target_update_interval": 2500,
        "algo.n_step_return": 5,
        "algo.double_dqn": True,
        "algo.dueling": True,
        "algo.head_hidden": [512],
        "algo.delta_clip": None,
        "algo.value_rescale_eps": 1e-3,
        "algo.input_priorities": True,
        "epsilon.start_steps": 100_000,
        "replay.burn_in_T": 40,
        "replay.train_T": 80,
        "replay.state_interval": 40,
        "replay.prioritized": True,
        "replay.alpha": 0.9,
        "replay.beta": 0.6,
        "replay.beta_final": 0.6,
        "replay.eta": 0.9,
        "eval.max_steps": 161_000,
    },
    "atari_a2c": ATARI_PG | A2C,
    "atari_lstm_a2c": ATARI_PG | A2C | LSTM | {"sampler.batch_T": 20, "env.frame_stack": 1},
    "atari_ppo": ATARI_PG | PPO,
    "atari_lstm_ppo": ATARI_PG | PPO | LSTM | {"env.frame_stack": 1},
    "mujoco_ddpg": MUJOCO | BATCH_100 | {"algo.tau": 0.01, "eval.n_envs": 5},
    "mujoco_td3": MUJOCO
    | BATCH_100
    | {
        "algo.tau": 0.005,
        "algo.policy_delay": 2,
        "algo.target_noise_std": 0.2,
        "algo.target_noise_clip": 0.5,
        "eval.n_envs": 6,
    },
    "mujoco_sac": MUJOCO
    | BATCH_256
    | {
        "algo.alpha_learning_rate": 3e-4,
        "algo.fixed_alpha": None,
        "algo.init_alpha": 1,
        "algo.target_entropy": None,
        "eval.n_envs": 4,
    },
    "mujoco_sac_v": MUJOCO
    | BATCH_256
    | {
        "algo.value_learning_rate": 3e-4,
        "algo.reward_scale": 5,
        "algo.alpha": 1,
        "algo.policy_regularization": 1e-3,
        "eval.n_envs": 6,
    },
    "mujoco_ppo": {
        "n_steps": 1_000_000,
        "log_interval_steps": 10 * 2048,
        "sampler.batch_T": 2048,
        "sampler.batch_B": 1,
        "sampler.max_decorrelation_steps": 0,
        "model.mlp_hidden": [64, 64],
        "model.activation": "tanh",
        "model.shared_trunk": False,
        "algo.discount": 0.99,
        "algo.learning_rate": 3e-4,
        "algo.learning_rate_schedule": "linear",
        "algo.ratio_clip": 0.2,
        "algo.ratio_clip_schedule": "linear",
        "algo.clip_grad_norm": None,  # rlpyt: 1e6
        "algo.value_loss_coeff": 1,
        "algo.entropy_loss_coeff": 0,
        "algo.gae_lambda": 0.95,
        "algo.minibatches": 32,
        "algo.epochs": 10,
        "algo.normalize_advantage": True,
    },
}
"""By experiment: the values of rlpyt 0.1.2, from the file and key in its header and the defaults of its classes."""


@pytest.mark.parametrize("name", REFERENCES)
def test_reference_configs_have_rlpyts_values(name):
    config = composed(f"experiment={name}")

    found = {key: value_at(config, key) for key in REFERENCES[name]}
    assert REFERENCES[name] == found


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name.startswith(("atari_", "mujoco_"))])
def test_header_of_a_reference_config_names_its_source_and_departures(name):
    lines = (paths.conf_dir() / "experiment" / f"{name}.yaml").read_text().splitlines()
    header = " ".join(line.removeprefix("# ") for line in lines[1:] if line.startswith("# "))

    assert "Source: " in header
    assert "Departs" in header
    assert name in REFERENCES or "Hessel 2018, table 1" in header
    if name in REFERENCES:
        assert "Source: rlpyt, experiments/configs/" in header


def test_sequence_replay_begins_with_the_priorities_of_r2d2():
    replay = composed("algo=r2d1", "env=cartpole").replay

    named = ("alpha", "beta", "beta_final", "eta", "burn_in_T", "train_T", "state_interval")
    assert (0.9, 0.6, 0.6, 0.9, 40, 80, 40) == tuple(dataclasses.asdict(replay)[name] for name in named)
