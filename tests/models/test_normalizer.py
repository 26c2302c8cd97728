import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlcli.models.action_distributions import Categorical
from rlcli.models.config import AutoModelConfig
from rlcli.models.normalizer import ObsNormalizer, RunningMoments
from rlcli.models.policy import policy_network

BOX = spaces.Box(-np.inf, np.inf, (2,), np.float32)


@pytest.mark.parametrize("cuts", [[], [1], [3, 4], [0, 10, 500], list(range(1, 1000, 7))], ids=str)
def test_moments_are_those_of_all_rows_at_once_however_they_are_cut(cuts):
    rows = np.random.default_rng(0).normal(1000.0, [1e-3, 50.0], (1000, 2))
    moments = RunningMoments((2,))

    for part in np.split(rows, cuts):
        moments.add(torch.from_numpy(part))

    np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-12)
    np.testing.assert_allclose(moments.variance, rows.var(0), rtol=1e-9)
    assert [1000.0] == moments.count.tolist()


def test_observations_around_1000_come_out_with_mean_0_and_deviation_1():
    obs = torch.from_numpy(np.random.default_rng(0).normal(1000.0, 0.05, (50, 4, 2)).astype(np.float32))
    normalizer = ObsNormalizer(BOX)
    normalizer.observe(torch.cat([obs, obs[:1]]), torch.ones(50, 4, dtype=torch.bool))

    normal = normalizer(obs)

    torch.testing.assert_close(torch.zeros(2), normal.mean((0, 1)), atol=1e-3, rtol=0)
    torch.testing.assert_close(torch.ones(2), normal.std((0, 1), unbiased=False), atol=1e-3, rtol=0)
    assert normal.dtype == torch.float32


def test_only_valid_rows_and_no_last_observation_enter_the_statistics():
    obs = torch.tensor([[1.0], [1e9], [3.0], [1e9]])[..., None].expand(4, 1, 2)
    normalizer = ObsNormalizer(BOX)

    normalizer.observe(obs, torch.tensor([[True], [False], [True]]))

    assert [2.0, 2.0] == normalizer.moments[0].mean.tolist()
    assert [1.0, 1.0] == normalizer.moments[0].variance.tolist()


def test_normalised_observations_are_clipped_at_ten_deviations():
    normalizer = ObsNormalizer(BOX)
    normalizer.observe(torch.tensor([-1.0, 1.0, 0.0]).view(3, 1, 1).expand(3, 1, 2), torch.ones(2, 1, dtype=torch.bool))

    assert [[10.0, -10.0]] == normalizer(torch.tensor([[1e6, -1e6]])).tolist()


def test_acting_and_evaluating_change_no_statistics():
    network = policy_network(AutoModelConfig(normalize_obs=True), BOX, Categorical(2))
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}

    network.train()(torch.full((8, 2), 1000.0))
    network.eval()(torch.full((8, 2), 1000.0))

    assert before.keys()
    assert all(torch.equal(buffer, before[name]) for name, buffer in network.named_buffers())


def test_images_categories_and_the_previous_action_pass_as_they_are():
    space = spaces.Dict(
        {
            "obs": spaces.Dict({"x": BOX, "image": spaces.Box(0, 255, (3, 8, 8), np.uint8), "n": spaces.Discrete(3)}),
            "previous_action": BOX,
            "previous_reward": spaces.Box(-np.inf, np.inf, (1,), np.float32),
        }
    )
    obs = {
        "obs": {"x": torch.randn(3, 1, 2), "image": torch.ones(3, 1, 3, 8, 8), "n": torch.ones(3, 1)},
        "previous_action": torch.full((3, 1, 2), 5.0),
        "previous_reward": torch.full((3, 1, 1), 7.0),
    }
    normalizer = ObsNormalizer(space)
    normalizer.observe(obs, torch.ones(2, 1, dtype=torch.bool))

    normal = normalizer(obs)

    assert [("obs", "x")] == [path for path, _ in normalizer._paths]
    assert not torch.equal(obs["obs"]["x"], normal["obs"]["x"])
    assert all(normal["obs"][key] is obs["obs"][key] for key in ("image", "n"))
    assert all(normal[key] is obs[key] for key in ("previous_action", "previous_reward"))


def test_statistics_are_saved_with_the_weights():
    network, other = (policy_network(AutoModelConfig(normalize_obs=True), BOX, Categorical(2)) for _ in range(2))
    network.normalizer.observe(torch.full((3, 1, 2), 1000.0), torch.ones(2, 1, dtype=torch.bool))

    other.load_state_dict(network.state_dict())

    assert [1000.0, 1000.0] == other.normalizer.moments[0].mean.tolist()
