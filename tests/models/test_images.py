"""The networks for images: IMPALA's, that for small images, and what both do with pixels."""

import csv

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import rlcli
from rlcli.core.errors import ConfigError
from rlcli.models.config import AutoModelConfig, ImpalaConfig
from rlcli.models.images import ResidualBlock, Shape, residual_sections
from rlcli.models.trunk import Trunk

ATARI = spaces.Box(0, 255, (4, 84, 84), np.uint8)
MINATAR = spaces.Box(0, 1, (4, 10, 10), np.bool_)


def bytes_image(shape, n=2):
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (n, *shape), dtype=np.uint8))


def bool_image(shape, n=2):
    return torch.from_numpy(np.random.default_rng(0).random((n, *shape)) < 0.5)


def set_kernel(conv, bias, **weights):
    """Weights of a 3x3 convolution of one channel by their places, such as row0_col1; all others are 0."""
    with torch.no_grad():
        conv.weight.zero_()
        conv.bias.fill_(bias)
        for place, value in weights.items():
            conv.weight[0, 0, int(place[3]), int(place[8])] = value


# IMPALA's, by hand


def test_impala_has_the_parameters_of_the_paper():
    trunk = Trunk(ImpalaConfig(), ATARI)

    def conv(n_in, n_out):
        return n_in * n_out * 9 + n_out

    sections = [conv(4, 16) + 4 * conv(16, 16), conv(16, 32) + 4 * conv(32, 32), conv(32, 32) + 4 * conv(32, 32)]
    dense = 32 * 11 * 11 * 256 + 256  # 84, 42, 21, 11 pixels
    assert [9872, 41632, 46240] == sections
    assert 1_089_232 == sum(sections) + dense == sum(p.numel() for p in trunk.parameters())
    assert 15 == sum(isinstance(m, nn.Conv2d) for m in trunk.modules())  # "15 convolutional layers"


def test_residual_block_by_hand():
    block = ResidualBlock(1, "relu").double()
    set_kernel(block.residual[1], -1.0, row1_col1=2.0, row1_col2=1.0)
    set_kernel(block.residual[3], 0.25, row1_col1=-1.0, row0_col1=0.5)
    x = torch.tensor([[1.0, -2.0], [3.0, 0.5]], dtype=torch.float64)[None, None]

    out = block(x)

    # relu(x): [[1, 0], [3, .5]]; twice itself and its right neighbour, less 1: [[1, -1], [5.5, 0]]; relu: -1 becomes 0;
    # minus itself and half of what is above, and .25: [[-.75, .25], [-4.75, .25]]; x added
    expected = torch.tensor([[0.25, -1.75], [-1.75, 0.75]], dtype=torch.float64)
    torch.testing.assert_close(expected[None, None], out, rtol=0, atol=1e-15)
    assert -2.0 == float(x[0, 0, 0, 1])  # the input is left as it was


def test_section_pools_by_hand_and_pads_with_nothing():
    convs, shape = residual_sections(Shape(1, 3, 3), channels=[1], n_blocks=0, activation="tanh")
    set_kernel(convs[0], 0.0, row1_col1=1.0)
    image = (torch.arange(1.0, 10.0, dtype=torch.float64) - 10).reshape(1, 1, 3, 3) / 10  # -.9 to -.1

    out = convs.double()(image)

    assert (1, 2, 2) == shape
    # the largest of each corner's four: with zeros around the image all would be 0
    expected = torch.tensor([[-0.5, -0.4], [-0.2, -0.1]], dtype=torch.float64).tanh()
    torch.testing.assert_close(expected[None, None], out, rtol=0, atol=1e-15)


def test_sections_end_in_an_activation():
    torch.manual_seed(0)
    convs, _ = residual_sections(Shape(3, 16, 16), channels=[4, 4], n_blocks=1, activation="relu")

    out = convs(torch.randn(2, 3, 16, 16)).detach()

    assert 0.0 == float(out.min())
    assert float(out.max()) > 0


# IMPALA's, whole


@pytest.mark.parametrize(
    ("shape", "pixels"),
    [
        ((4, 84, 84), (11, 11)),
        ((3, 64, 64), (8, 8)),
        ((64, 96, 3), (8, 12)),  # channels last
        ((1, 5, 7), (1, 1)),
        ((10, 10, 10), (2, 2)),
    ],
)
@pytest.mark.parametrize("hidden", [True, False])
def test_impala_fits_images_of_many_sizes(shape, pixels, hidden):
    trunk = Trunk(ImpalaConfig(conv_hidden=40), spaces.Box(0, 255, shape, np.uint8), last_hidden=hidden)

    n_flat = 32 * pixels[0] * pixels[1]
    assert (2, 40 if hidden else n_flat) == tuple(trunk(bytes_image(shape)).shape)
    assert trunk.n_features == (40 if hidden else n_flat)
    assert trunk.head_hidden == ([] if hidden else [40])


def test_impala_sizes_are_options():
    trunk = Trunk(ImpalaConfig(conv_channels=[8], conv_blocks=3, conv_hidden=5), ATARI)

    convs = [tuple(m.weight.shape[:2]) for m in trunk.modules() if isinstance(m, nn.Conv2d)]

    assert [(8, 4), *[(8, 8)] * 6] == convs
    assert (5, 8 * 42 * 42) == tuple(trunk.convs[0].fc.weight.shape)


@pytest.mark.parametrize("channels_last", [True, False])
def test_gradient_of_impala_reaches_every_parameter(channels_last):
    torch.manual_seed(0)
    trunk = Trunk(ImpalaConfig(channels_last=channels_last), spaces.Box(0, 255, (3, 20, 20), np.uint8))

    trunk(bytes_image((3, 20, 20), 8)).pow(2).sum().backward()

    without = [name for name, p in trunk.named_parameters() if p.grad is None or not bool(p.grad.any())]
    assert [] == without


def test_features_of_impala_do_not_depend_on_the_batch_around_them():
    torch.manual_seed(0)
    trunk = Trunk(ImpalaConfig(), ATARI)
    images = bytes_image((4, 84, 84), 7)

    whole = trunk(images)

    for sizes in ([3, 4], [1] * 7, [6, 1]):
        parts = torch.cat([trunk(part) for part in images.split(sizes)])
        torch.testing.assert_close(whole, parts, rtol=0, atol=1e-6)
    assert float(whole.detach().std(dim=0).max()) > 1e-3  # and the images are told apart


def test_memory_layout_changes_no_feature():
    torch.manual_seed(0)
    last = Trunk(ImpalaConfig(), ATARI)
    first = Trunk(ImpalaConfig(channels_last=False), ATARI)
    first.load_state_dict(last.state_dict())
    images = bytes_image((4, 84, 84))

    torch.testing.assert_close(first(images), last(images), rtol=0, atol=1e-6)


def test_dict_of_image_and_vector_goes_through_impala_and_mlp():
    torch.manual_seed(0)
    space = spaces.Dict({"camera": ATARI, "pose": spaces.Box(-1.0, 1.0, (3,))})
    trunk = Trunk(ImpalaConfig(mlp_hidden=[16]), space)
    camera, pose = bytes_image((4, 84, 84)), torch.randn(2, 3)

    out = trunk({"camera": camera, "pose": pose})
    others = trunk({"camera": 255 - camera, "pose": pose}), trunk({"camera": camera, "pose": pose + 1})

    assert (2, 256 + 16) == tuple(out.shape)
    assert [False, True] == [torch.equal(out[:, part], others[0][:, part]) for part in (slice(256), slice(256, None))]
    assert [True, False] == [torch.equal(out[:, part], others[1][:, part]) for part in (slice(256), slice(256, None))]


@pytest.mark.parametrize(("shape", "channels"), [((3, 4, 4), [16, 32, 32]), ((1, 84, 4), [8] * 3), ((3, 1, 9), [4])])
def test_image_too_small_for_the_sections_is_refused_with_its_size(shape, channels):
    with pytest.raises(ConfigError) as error:
        Trunk(ImpalaConfig(conv_channels=channels), spaces.Box(0, 255, shape, np.uint8))

    told = f"model.conv_channels: {len(channels)} sections, each of which halves the image, do not fit one of "
    assert f"{told}{shape[1]}x{shape[2]}; give fewer, or a larger image" == str(error.value)


# small images, and where the channels are


def weights(trunk):
    return [tuple(p.shape) for name, p in trunk.named_parameters() if name.endswith("weight")]


def test_small_image_gets_the_network_of_minatar():
    assert [(16, 4, 3, 3), (128, 16 * 8 * 8)] == weights(Trunk(AutoModelConfig(), MINATAR))


@pytest.mark.parametrize(
    ("size", "first"), [((35, 84), (16, 3, 3, 3)), ((84, 35), (16, 3, 3, 3)), ((36, 36), (32, 3, 8, 8))]
)
def test_images_under_36_pixels_are_small(size, first):
    assert first == weights(Trunk(AutoModelConfig(), spaces.Box(0, 255, (3, *size), np.uint8)))[0]


def test_sizes_that_were_asked_for_are_kept_on_small_images():
    lists = {"conv_channels": [4], "conv_kernels": [2], "conv_strides": [2]}

    assert [(4, 4, 2, 2), (512, 100)] == weights(Trunk(AutoModelConfig(**lists), MINATAR))
    assert [(16, 4, 3, 3), (7, 1024)] == weights(Trunk(AutoModelConfig(conv_hidden=7), MINATAR))
    with pytest.raises(ConfigError, match="do not fit an image of 10x10"):
        Trunk(AutoModelConfig(conv_channels=[4, 4, 4]), MINATAR)


@pytest.mark.parametrize("config", [AutoModelConfig(), ImpalaConfig()])
def test_bools_are_not_scaled(config):
    trunk, floats = Trunk(config, MINATAR), Trunk(config, spaces.Box(0.0, 1.0, (4, 10, 10)))
    floats.load_state_dict(trunk.state_dict())
    image = bool_image((4, 10, 10))

    assert torch.equal(floats(image.float()), trunk(image))


@pytest.mark.parametrize("kind", [AutoModelConfig, ImpalaConfig])
def test_place_of_the_channels_can_be_told_where_the_shape_does_not(kind):
    first = Trunk(kind(), spaces.Box(0, 1, (6, 10, 10), np.bool_))
    last = Trunk(kind(image_channels="last"), spaces.Box(0, 1, (10, 10, 6), np.bool_))
    last.load_state_dict(first.state_dict())
    image = bool_image((6, 10, 10))

    torch.testing.assert_close(first(image), last(image.permute(0, 2, 3, 1)))
    assert 10 == weights(Trunk(kind(), spaces.Box(0, 1, (10, 10, 6), np.bool_)))[0][1]  # auto takes the first


def test_channels_first_can_be_told_of_an_image_as_narrow_as_colours():
    space = spaces.Box(0, 1, (12, 20, 4), np.bool_)

    assert 12 == weights(Trunk(AutoModelConfig(image_channels="first"), space))[0][1]
    assert 4 == weights(Trunk(AutoModelConfig(), space))[0][1]


# from the command line

Q = ["algo.min_steps_learn=30", "algo.batch_size=4", "replay.size=200", "algo.replay_ratio=1"]
SMALL_IMPALA = ["model=impala", "model.conv_channels=[4,4]", "model.conv_blocks=1", "model.conv_hidden=8"]
LSTM = ["model.recurrent=lstm", "model.recurrent_hidden=8"]
DISCRETE = "env.id=tests.models.image_envs:tests/ImageAndPose-v0"
RUNS = {
    "dqn": ["algo=dqn", *Q, "algo.dueling=true"],
    "iqn": ["algo=iqn", *Q],
    "r2d1": ["algo=r2d1", *Q, *LSTM, "replay.burn_in_T=2", "replay.train_T=4", "replay.state_interval=2"],
    "ppo": ["algo=ppo"],
    "ppo_lstm": ["algo=ppo", *LSTM],
    "sac": ["algo=sac", *Q],
}


@pytest.mark.parametrize("name", RUNS)
def test_algorithm_learns_with_impala(tmp_path, name):
    env = "env.id=tests.models.image_envs:tests/ImageBox-v0" if name == "sac" else DISCRETE
    words = [*SMALL_IMPALA, *RUNS[name], "env=gym", env, "sampler.batch_B=2", "device=cpu", "torch_threads=1"]

    run = rlcli.train([*words, "n_steps=80", "log_interval_steps=40", "logger.ui=quiet", f"run_dir={tmp_path / 'run'}"])

    with (run / "progress.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len({row["WeightsHash"] for row in rows}) == len(rows) >= 2
