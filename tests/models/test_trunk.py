import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlcli.core.errors import ConfigError
from rlcli.core.tree import as_torch
from rlcli.envs.vector import InProcessVectorEnv
from rlcli.models.config import AutoModelConfig
from rlcli.models.heads import PolicyValueNetwork, QNetwork
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
    small = AutoModelConfig(conv_channels=[4], conv_kernels=[2], conv_strides=[1], conv_hidden=8, mlp_hidden=[16])
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
        Trunk(AutoModelConfig(), spaces.Box(0, 255, (1, 16, 16), np.uint8))


def test_space_without_a_model_is_named():
    with pytest.raises(ConfigError, match="Text"):
        Trunk(AutoModelConfig(), spaces.Text(5))


def test_dueling_subtracts_the_mean_advantage():
    network = QNetwork(Trunk(AutoModelConfig(mlp_hidden=[]), VECTOR), 2, dueling=True)
    with torch.no_grad():
        network.advantage.weight.zero_()
        network.advantage.bias.copy_(torch.tensor([1.0, 5.0]))
        network.value.weight.zero_()
        network.value.bias.fill_(10.0)

    # mean advantage 3: 10 + 1 - 3, 10 + 5 - 3
    torch.testing.assert_close(torch.tensor([[8.0, 12.0]]), network(torch.zeros(1, 3)))


def test_policy_starts_near_uniform():
    network = PolicyValueNetwork(Trunk(AutoModelConfig(), VECTOR), 4)

    logits, value = network(torch.randn(6, 3))

    torch.testing.assert_close(torch.full((6, 4), 0.25), logits.softmax(-1), atol=0.02, rtol=0)
    assert (6,) == tuple(value.shape)
