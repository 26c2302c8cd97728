"""Starting from a file of rlpyt: what it decides about the configuration, and what is loaded."""

import copy
from dataclasses import replace

import pytest
import torch

from rlcli.algos.a2c_config import A2CConfig
from rlcli.algos.dqn_config import DQNConfig
from rlcli.cli.warm_start import adapted, given_keys, start_from
from rlcli.core.errors import ConfigError
from rlcli.envs.config import AtariConfig, GymConfig
from rlcli.models.config import AutoModelConfig
from tests.rlpyt_probes import RlpytRun
from tests.warm_start_probes import DATA, config_for, in_vectors, learn, of_shape, save


def target_of(agent, algo):
    """The slow copy of the model that the learner would save."""
    network = copy.deepcopy(agent.model)
    network.load_state_dict(algo.state_dict()["target"])
    return network


@pytest.mark.parametrize("name", ["atari_dqn", "atari_dqn_dueling"])
def test_rlpyt_file_gives_the_action_values_that_rlpyt_gave(name):
    config, _ = adapted(config_for(DATA / f"{name}.pkl"), set())
    agent, algo = of_shape(config, (4, 104, 80))
    obs = torch.load(DATA / "atari_inputs.pkl", weights_only=True)["observation"]
    expected = torch.load(DATA / f"{name}.expected.pkl", weights_only=True)

    start_from(config.resume, agent, algo, "cpu")

    with torch.no_grad():
        torch.testing.assert_close(expected["q"], agent.model(obs), atol=1e-5, rtol=0)
        torch.testing.assert_close(expected["target_q"], target_of(agent, algo)(obs), atol=1e-5, rtol=0)


def test_rlpyt_file_decides_on_network_and_screens():
    path = DATA / "atari_dqn_dueling.pkl"

    config, lines = adapted(config_for(path, env=AtariConfig(frame_stack=3, grayscale=False)), set())

    model = AutoModelConfig(conv_paddings=[0, 1, 1], conv_hidden=16)
    env = AtariConfig(image_size=104, image_width=80)
    assert (model, env, DQNConfig(dueling=True)) == (config.model, config.env, config.algo)
    assert lines == [
        f"taken from {path}: model.conv_hidden=16, algo.dueling=true, env.frame_stack=4, env.grayscale=true, "
        "model.conv_paddings=[0, 1, 1], env.image_size=104, env.image_width=80"
    ]


@pytest.mark.parametrize(
    ("shape", "n_actions", "sizes"),
    [
        ((4, 84, 84), 6, {"dueling": True}),
        ((2, 104, 80), 18, {"hidden": 24, "channels": (8, 12, 20)}),
        ((1, 64, 64), 3, {"hidden": 8, "dueling": True}),
        ((3, 210, 160), 4, {"channels": (4, 4, 4), "kernels": (8, 4, 3)}),
    ],
)
def test_rlpyt_file_of_another_size_gives_the_same_values_too(tmp_path, shape, n_actions, sizes):
    run = RlpytRun(shape, n_actions, **sizes)
    path = run.save(tmp_path / "params.pkl")
    # no file says how large the screens were where that is not clear from the dense layer
    given = {"env.image_size": shape[1], "env.image_width": shape[2]} if shape[1] in (64, 210) else {}
    env = AtariConfig(**{key.partition(".")[2]: value for key, value in given.items()})

    config, _ = adapted(config_for(path, env=env), set(given))
    agent, algo = of_shape(config, (config.env.frame_stack, *shape[1:]), n_actions)
    start_from(config.resume, agent, algo, "cpu")

    assert shape == (config.env.frame_stack, config.env.image_size, config.env.image_width or config.env.image_size)
    with torch.no_grad():
        torch.testing.assert_close(run.model(run.obs), agent.model(run.obs), atol=1e-5, rtol=0)
        torch.testing.assert_close(run.target(run.obs), target_of(agent, algo)(run.obs), atol=1e-5, rtol=0)


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("step_is_a_number", [False, True])
def test_adam_goes_on_from_rlpyts_state(tmp_path, dueling, step_is_a_number):
    run = RlpytRun(dueling=dueling)
    content = copy.deepcopy(run.content())
    if step_is_a_number:  # as torch had it in rlpyt's time
        for moments in content["optimizer_state_dict"]["state"].values():
            moments["step"] = int(moments["step"])
    torch.save(content, tmp_path / "params.pkl")
    algo = DQNConfig(learning_rate=1e-3, adam_eps=1e-4, clip_grad_norm=None)
    config, _ = adapted(config_for(tmp_path / "params.pkl", algo=algo), set())
    agent, learner = of_shape(config, (4, 104, 80))
    start_from(config.resume, agent, learner, "cpu")

    run.step()
    learn(agent, learner, run.obs)

    with torch.no_grad():
        torch.testing.assert_close(run.model(run.obs), agent.model(run.obs), atol=1e-5, rtol=0)
    assert 3 == float(learner.optimizer_state_dict()["state"][0]["step"])


def test_adams_state_finds_its_parameters_whatever_their_order_in_the_file(tmp_path):
    run = RlpytRun(dueling=True)
    content = copy.deepcopy(run.content())
    agent, state = content["agent_state_dict"], content["optimizer_state_dict"]["state"]
    agent["model"] = dict(reversed(agent["model"].items()))
    content["optimizer_state_dict"]["state"] = {len(state) - 1 - i: moments for i, moments in state.items()}
    torch.save(content, tmp_path / "params.pkl")
    config, _ = adapted(config_for(tmp_path / "params.pkl"), set())
    agent, algo = of_shape(config, (4, 104, 80))

    start_from(config.resume, agent, algo, "cpu")

    names = [name for name, _ in agent.model.named_parameters()]
    moments = algo.optimizer_state_dict()["state"]
    ours, theirs = moments[names.index("streams.value.2.weight")], run.adam.state[run.model.head.value.model[2].weight]
    assert torch.equal(theirs["exp_avg"], ours["exp_avg"])
    assert torch.equal(run.model.head.advantage_out.weight, agent.model.streams.advantage[2].weight)


def test_adam_without_its_state_would_not(tmp_path):
    run = RlpytRun()
    algo = DQNConfig(learning_rate=1e-3, adam_eps=1e-4, clip_grad_norm=None)
    config, _ = adapted(config_for(run.save(tmp_path / "params.pkl"), algo=algo), set())
    agent, learner = of_shape(config, (4, 104, 80))

    lines = start_from(config.resume, agent, learner, "cpu", optimizer=False)
    run.step()
    learn(agent, learner, run.obs)

    assert "weights; optimizer, step counters, schedules and replay begin anew" in lines[0]
    with torch.no_grad():
        assert not torch.allclose(run.model(run.obs), agent.model(run.obs), atol=1e-4)


def test_empty_optimizer_state_of_rlpyt_is_told(tmp_path):
    config, _ = adapted(config_for(DATA / "atari_dqn_dueling.pkl"), set())
    agent, algo = of_shape(config, (4, 104, 80))

    (line,) = start_from(config.resume, agent, algo, "cpu")

    assert "(rlpyt's DQN agent, iteration 1,249, 5,000 steps): weights; the file has no optimizer state that" in line
    learn(agent, algo, torch.zeros(1, 4, 104, 80, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("model.conv_hidden", 512, "model.conv_hidden: 512 was given, but {} has 16"),
        ("model.conv_channels", [16, 64, 64], "model.conv_channels: [16, 64, 64] was given, but {} has [32, 64, 64]"),
        ("algo.dueling", True, "algo.dueling: True was given, but {} has False"),
        ("env.frame_stack", 1, "env.frame_stack: 1 was given, but {} has 4"),
        ("env.grayscale", False, "env.grayscale: False was given, but {} has True"),
        (
            "env.image_size",
            84,
            "env.image_size: image_size=84 was given, but {} needs a height and width that give 108 cells after the "
            "convolutions, such as 104x80, ",
        ),
    ],
)
def test_key_that_contradicts_the_file_is_refused_by_name(key, value, line):
    path = DATA / "atari_dqn.pkl"
    config = config_for(path)
    group, _, name = key.partition(".")
    config = replace(config, **{group: replace(getattr(config, group), **{name: value})})

    with pytest.raises(ConfigError) as caught:
        adapted(config, {key})

    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(line.format(path))


def test_key_that_says_what_the_file_has_is_welcome():
    model = AutoModelConfig(conv_hidden=16)

    config, lines = adapted(config_for(DATA / "atari_dqn.pkl", model=model), {"model.conv_hidden"})

    assert 16 == config.model.conv_hidden
    assert "conv_hidden" not in lines[0]


def test_image_size_of_the_run_is_taken_where_it_fits(tmp_path):
    path = RlpytRun((4, 90, 70)).save(tmp_path / "params.pkl")

    config, _ = adapted(config_for(path, env=AtariConfig(image_size=90, image_width=70)), set())

    assert (90, 70) == (config.env.image_size, config.env.image_width)


def test_image_size_that_only_squares_fit_is_told_with_the_others(tmp_path):
    path = RlpytRun((4, 66, 66)).save(tmp_path / "params.pkl")

    config, lines = adapted(config_for(path), set())

    assert (60, None) == (config.env.image_size, config.env.image_width)  # 60 to 67 give 7 cells along a side
    assert "60x60 is the smallest square that fits; 61x61, " in lines[-1]
    assert "67x67 would fit too: env.image_size decides" in lines[-1]


def test_image_size_that_nothing_tells_is_refused_with_some_that_fit(tmp_path):
    path = RlpytRun((4, 100, 60)).save(tmp_path / "params.pkl")

    with pytest.raises(ConfigError, match=r"^env.image_size: .* does not say it .* such as \d+x\d+, .*; give env") as e:
        adapted(config_for(path), set())

    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algo": A2CConfig(), "choices": {"algo": "a2c"}}, "it needs algo=dqn, not algo=a2c"),
        ({"model": GymConfig(), "choices": {"model": "wide"}}, "it needs model=auto, not model=wide"),
    ],
)
def test_rlpyt_file_needs_its_algorithm_and_network(changes, words):
    with pytest.raises(ConfigError, match=f"is of rlpyt's DQN agent: {words}"):
        adapted(config_for(DATA / "atari_dqn.pkl", **changes), set())


def test_kernels_of_unknown_strides_are_refused_unless_the_strides_are_given(tmp_path):
    path = RlpytRun((4, 104, 80), kernels=(6, 4, 3)).save(tmp_path / "params.pkl")
    with pytest.raises(ConfigError, match=r"strides and paddings are known for kernels \[8, 4, 3\] only"):
        adapted(config_for(path), set())

    model = AutoModelConfig(conv_kernels=[6, 4, 3], conv_paddings=[0, 1, 1])
    given = {"model.conv_strides", "model.conv_paddings"}
    config, _ = adapted(config_for(path, model=model), given)

    assert (104, 80) == (config.env.image_size, config.env.image_width)


def test_other_number_of_actions_is_refused_with_both():
    config, _ = adapted(config_for(DATA / "atari_dqn.pkl"), set())
    agent, algo = of_shape(config, (4, 104, 80), n_actions=4)

    with pytest.raises(ConfigError, match=r"is for 6 actions, this run's env has 4; resume_keys=\[trunk"):
        start_from(config.resume, agent, algo, "cpu")


def test_environment_without_images_is_refused():
    config, _ = adapted(config_for(DATA / "atari_dqn.pkl"), set())

    with pytest.raises(ConfigError, match=r"atari_dqn\.pkl is for images, this run's network takes none"):
        start_from(config.resume, *in_vectors(6), "cpu")


def test_trunk_of_an_rlpyt_file_serves_another_number_of_actions():
    config, _ = adapted(config_for(DATA / "atari_dqn.pkl"), set(), ["trunk.*"])
    agent, algo = of_shape(config, (4, 104, 80), n_actions=4)

    lines = start_from(config.resume, agent, algo, "cpu", keys=["trunk.*"])

    assert "8 of 10 tensors" in lines[0]
    file = torch.load(config.resume, weights_only=True)["agent_state_dict"]
    assert torch.equal(file["model"]["conv.conv.0.weight"], agent.model.state_dict()["trunk.convs.0.conv.0.weight"])
    assert torch.equal(file["target"]["head.model.0.bias"], algo.state_dict()["target"]["trunk.convs.0.fc.bias"])


def test_with_resume_keys_what_the_user_set_stands():
    env = AtariConfig(image_size=84)

    config, _ = adapted(config_for(DATA / "atari_dqn.pkl", env=env), {"env.image_size"}, ["trunk.convs.0.conv.*"])

    assert (84, None) == (config.env.image_size, config.env.image_width)
    assert [0, 1, 1] == config.model.conv_paddings


def test_environment_without_screens_is_left_alone():
    config, _ = adapted(config_for(DATA / "atari_dqn.pkl", env=GymConfig("CartPole-v1")), set())

    assert GymConfig("CartPole-v1") == config.env


def test_file_of_rlcli_decides_nothing(tmp_path):
    config = config_for(save(tmp_path / "params.pkl", *in_vectors()))

    assert (config, []) == adapted(config, set())
    assert (replace(config, resume=None), []) == adapted(replace(config, resume=None), set())


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (["rlcli", "train", "env.image_size=84", "++algo.dueling=true"], {"env.image_size", "algo.dueling"}),
        (["model={conv_hidden: 5, conv_kernels: [8]}"], {"model", "model.conv_hidden", "model.conv_kernels"}),
        (["--resume", "x.pkl", "-m"], set()),
    ],
)
def test_keys_that_the_user_set(words, keys):
    assert keys == given_keys(words)
