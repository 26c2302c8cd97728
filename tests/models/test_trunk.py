import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlcli.core.errors import ConfigError
from rlcli.core.tree import as_torch
from rlcli.envs.vector import InProcessVectorEnv
from rlcli.models.config import AutoModelConfig
from rlcli.models.heads import QNetwork
from rlcli.models.policy import PolicyValueNetwork
from rlcli.models.trunk import Trunk
from tests.probes import TupleConfig, empty_obs

IMAGE = spaces.Box(0, 255, (4, 84, 84), np.uint8)
VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)


def test_image_gets_the_nature_network():
    trunk = Trunk(AutoModelConfig(), IMAGE)

    sizes = {name: tuple(p.shape) for name, p in trunk.named_parameters() if name.endswith("weight")}

    assert list(sizes.values()) == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 3136)]
    assert trunk.n_features == 512


def test_uint8_image_is_scaled_to_one():
    trunk = Trunk(AutoModelConfig(), IMAGE)
    floats = Trunk(AutoModelConfig(), spaces.Box(0.0, 1.0, (4, 84, 84), np.float32))
    floats.load_state_dict(trunk.state_dict())
    image = torch.full((1, 4, 84, 84), 255, dtype=torch.uint8)

    torch.testing.assert_close(floats(torch.ones(1, 4, 84, 84)), trunk(image))


def test_observation_memory_is_left_as_it_was():
    obs = torch.ones(2, 4, 84, 84)

    Trunk(AutoModelConfig(), spaces.Box(0.0, 1.0, (4, 84, 84), np.float32))(obs)

    assert bool((obs == 1).all())


def test_channels_last_image_is_turned_round():
    first = Trunk(AutoModelConfig(), spaces.Box(0, 255, (3, 96, 80), np.uint8))
    last = Trunk(AutoModelConfig(), spaces.Box(0, 255, (96, 80, 3), np.uint8))
    last.load_state_dict(first.state_dict())
    image = torch.randint(0, 256, (2, 3, 96, 80), dtype=torch.uint8)

    torch.testing.assert_close(last(image.permute(0, 2, 3, 1)), first(image))


@pytest.mark.parametrize(
    ("space", "obs", "expected"),
    [
        (spaces.Discrete(3), torch.tensor([2, 0]), [[0, 0, 1], [1, 0, 0]]),
        (spaces.Discrete(3, start=5), torch.tensor([5, 7]), [[1, 0, 0], [0, 0, 1]]),
        (spaces.MultiDiscrete([2, 3], start=[1, 4]), torch.tensor([[2, 4]]), [[0, 1, 1, 0, 0]]),
        (spaces.MultiDiscrete([2, 3]), torch.tensor([[1, 2]]), [[0, 1, 0, 0, 1]]),
        (spaces.MultiBinary(2), torch.tensor([[1, 0]], dtype=torch.int8), [[1, 0]]),
        (spaces.Box(0, 1, (2, 2)), torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), [[1, 2, 3, 4]]),
        (spaces.Box(0, 1, ()), torch.tensor([0.5]), [[0.5]]),
    ],
)
def test_vector_input(space, obs, expected):
    from rlcli.models.trunk import VectorInput

    module = VectorInput(space)

    torch.testing.assert_close(torch.tensor(expected, dtype=torch.float32), module(obs))
    assert module.n_features == len(expected[0])


def test_tuple_observations_of_an_env_reach_every_part_of_the_network():
    env = InProcessVectorEnv(TupleConfig(), [0, 1], seed=0)
    obs = empty_obs(env.spec, 2)
    env.reset(obs)
    convs = {"conv_channels": [4], "conv_kernels": [2], "conv_strides": [1], "conv_paddings": [0]}
    small = AutoModelConfig(**convs, conv_hidden=8, mlp_hidden=[16])
    trunk = Trunk(small, env.spec.observation_space)
    first = trunk(as_torch(obs)).detach()

    env.send(np.zeros(2, np.int64))
    env.recv(obs)

    after = trunk(as_torch(obs)).detach()
    assert (2, 8 + 16) == tuple(after.shape)
    assert not torch.equal(first[:, :8], after[:, :8])  # the image, part 0
    assert not torch.equal(first[:, 8:], after[:, 8:])  # the pair in part 1


def test_dict_joins_images_and_one_mlp_of_the_rest():
    space = spaces.Dict({"camera": IMAGE, "pose": VECTOR, "inner": spaces.Dict({"door": spaces.Discrete(4)})})
    trunk = Trunk(AutoModelConfig(mlp_hidden=[16]), space)

    out = trunk(
        {
            "camera": torch.zeros(5, 4, 84, 84, dtype=torch.uint8),
            "pose": torch.zeros(5, 3),
            "inner": {"door": torch.zeros(5, dtype=torch.int64)},
        }
    )

    assert (5, 512 + 16) == tuple(out.shape)
    assert trunk.mlp[0].in_features == 7


def test_image_too_small_for_the_convolutions_is_refused_with_its_size():
    with pytest.raises(ConfigError, match=r"model.conv_kernels: .* 16x16"):
        Trunk(AutoModelConfig(conv_kernels=[8, 4, 4]), spaces.Box(0, 255, (1, 16, 16), np.uint8))


def test_space_without_a_model_is_named():
    with pytest.raises(ConfigError, match="Text"):
        Trunk(AutoModelConfig(), spaces.Text(5))


def test_dueling_subtracts_the_mean_advantage():
    network = QNetwork(Trunk(AutoModelConfig(mlp_hidden=[]), VECTOR), 2, dueling=True)
    with torch.no_grad():
        network.streams.advantage[0].weight.copy_(torch.tensor([[1.0, 0.0, 0.0], [5.0, 0.0, 0.0]]))
        network.streams.advantage_bias.fill_(100.0)
        network.streams.value[0].weight.zero_()
        network.streams.value[0].bias.fill_(10.0)

    # advantages 101 and 105, their mean 103: 10 + 101 - 103, 10 + 105 - 103
    torch.testing.assert_close(torch.tensor([[8.0, 12.0]]), network(torch.tensor([[1.0, 0.0, 0.0]])))


def dueling_network(space, n_actions=2, **sizes):
    trunk = AutoModelConfig(**sizes).build_for_streams(space)
    return QNetwork(trunk, n_actions, dueling=True)


@pytest.mark.parametrize(
    ("space", "shapes"),
    [
        (IMAGE, {"value.0": (512, 3136), "value.2": (1, 512), "advantage.0": (512, 3136), "advantage.2": (2, 512)}),
        (VECTOR, {"value.0": (32, 64), "value.2": (1, 32), "advantage.0": (32, 64), "advantage.2": (2, 32)}),
        (
            spaces.Dict({"camera": IMAGE, "pose": VECTOR}),
            {"value.0": (544, 3200), "value.2": (1, 544), "advantage.0": (544, 3200), "advantage.2": (2, 544)},
        ),
    ],
)
def test_each_stream_of_a_dueling_network_has_a_dense_layer_of_its_own(space, shapes):
    network = dueling_network(space, mlp_hidden=[64, 32])

    weights = {name: tuple(p.shape) for name, p in network.streams.named_parameters() if name.endswith("weight")}

    assert {f"{name}.weight": shape for name, shape in shapes.items()} == weights
    assert not [name for name, _ in network.trunk.named_parameters() if "fc" in name or name.startswith("mlp.2")]


def test_dueling_streams_share_one_bias_of_the_advantages():
    names = dict(dueling_network(VECTOR, 5).streams.named_parameters())

    assert (1,) == tuple(names["advantage_bias"].shape)
    assert "advantage.2.bias" not in names


def test_gradient_of_the_streams_reaches_the_trunk_scaled_by_the_root_of_a_half():
    network = dueling_network(VECTOR, mlp_hidden=[8, 4])
    obs = torch.randn(5, 3)
    # the same function, written down without a head in between
    features = network.trunk(obs).detach().requires_grad_()
    advantage = network.streams.advantage(features) + network.streams.advantage_bias
    q = network.streams.value(features) + advantage - advantage.mean(-1, keepdim=True)
    (unscaled,) = torch.autograd.grad(q.pow(2).sum(), features)

    out = network(obs)
    out.pow(2).sum().backward()

    torch.testing.assert_close(q, out)
    given = [p.grad for p in network.trunk.parameters()]
    (features,) = [network.trunk(obs)]
    expected = torch.autograd.grad(features, list(network.trunk.parameters()), unscaled * 0.5**0.5)
    for a, b in zip(expected, given, strict=True):
        torch.testing.assert_close(a, b)


def test_model_from_outside_gets_streams_of_one_layer():
    trunk = torch.nn.Sequential(torch.nn.Linear(3, 7))
    trunk.n_features = 7

    network = QNetwork(trunk, 2, dueling=True)

    assert (2, 7) == tuple(network.streams.advantage[0].weight.shape)
    assert (4, 2) == tuple(network(torch.zeros(4, 3)).shape)


def test_plain_network_keeps_its_names_and_its_weights_for_a_seed():
    torch.manual_seed(0)
    network = QNetwork(Trunk(AutoModelConfig(), IMAGE), 6, dueling=False)

    state = network.state_dict()

    convs = [f"trunk.convs.0.conv.{i}" for i in (0, 2, 4)]
    modules = [*convs, "trunk.convs.0.fc", "advantage"]
    assert [f"{name}.{kind}" for name in modules for kind in ("weight", "bias")] == list(state)
    # as in the files that were written before there were paddings and streams
    assert float(state["advantage.bias"].sum()) == pytest.approx(-0.04155278205871582, abs=1e-6)


def test_paddings_change_the_size_of_what_the_convolutions_give():
    trunk = Trunk(AutoModelConfig(conv_paddings=[0, 1, 1]), spaces.Box(0, 255, (4, 104, 80), np.uint8))

    assert 64 * 12 * 9 == trunk.convs[0].fc.in_features  # 25x19, 12x9, 12x9
    assert (2, 512) == tuple(trunk(torch.zeros(2, 4, 104, 80, dtype=torch.uint8)).shape)


def test_paddings_make_room_for_a_kernel():
    config = AutoModelConfig(conv_channels=[4], conv_kernels=[5], conv_strides=[1], conv_paddings=[1])

    assert 4 * 1 * 1 == Trunk(config, spaces.Box(0, 255, (1, 3, 3), np.uint8)).convs[0].fc.in_features


@pytest.mark.parametrize("lists", [{"conv_paddings": [0]}, {"conv_strides": [1, 1]}])
def test_lists_of_the_convolutions_must_be_equally_long(lists):
    (problem,) = AutoModelConfig(**lists).problems()

    (name, values) = next(iter(lists.items()))
    assert f"{name} has {len(values)}" in problem


def test_policy_starts_near_uniform():
    network = PolicyValueNetwork(Trunk(AutoModelConfig(), VECTOR), 4)

    logits, value = network(torch.randn(6, 3))

    torch.testing.assert_close(torch.full((6, 4), 0.25), logits.softmax(-1), atol=0.02, rtol=0)
    assert (6,) == tuple(value.shape)
