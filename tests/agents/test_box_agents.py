"""Agents that act in a box of uneven bounds: [-1, 3] x [0, 0.5]."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from torch import nn

from rlcli.agents.deterministic import DeterministicAgent
from rlcli.agents.squashed_gaussian import SquashedGaussianAgent
from rlcli.models.action_scale import ActionScale

SPACE = Box(np.array([-1.0, 0.0], np.float32), np.array([3.0, 0.5], np.float32))
PHI_1 = 0.8413447460685429
"""Share of a normal below +1: its inverse gives noise of one deviation."""


class Fixed(nn.Module):
    """The same outputs for every observation."""

    def __init__(self, *outputs):
        super().__init__()
        self.outputs = nn.ParameterList([nn.Parameter(torch.tensor(o)) for o in outputs])

    def forward(self, obs):
        rows = [o.expand(obs.shape[0], -1) for o in self.outputs]
        return rows[0] if len(rows) == 1 else tuple(rows)


def deterministic(mean, noise_std=0.1, random_steps=0):
    return DeterministicAgent(Fixed(mean), ActionScale(SPACE), noise_std, random_steps)


def gaussian(mean, log_std, random_steps=0):
    return SquashedGaussianAgent(Fixed(mean, log_std), ActionScale(SPACE), random_steps)


def act(agent, uniforms, *, explore=True, step=0):
    uniforms = torch.tensor(uniforms, dtype=torch.float64)
    n = len(uniforms)
    return agent.act(torch.zeros(n, 1), None, uniforms, env_ids=range(n), step=step, explore=explore).action


def test_noise_is_in_normalised_units_and_reaches_each_dimension_in_its_own():
    # unit 0.5, -0.5, noise 0.1 up and 0.1 down: 0.6, -0.6; to [-1, 3] and [0, 0.5]: 1 + 2 * 0.6, 0.25 - 0.25 * 0.6
    action = act(deterministic([0.5, -0.5]), [[PHI_1, 1 - PHI_1]])

    np.testing.assert_allclose([[2.2, 0.1]], action, rtol=1e-5)


def test_noise_does_not_leave_the_box():
    action = act(deterministic([0.95, -0.95], noise_std=1.0), [[0.999, 0.0], [0.999, 0.001]])

    assert torch.equal(torch.tensor([[3.0, 0.0], [3.0, 0.0]]), action)


def test_deterministic_evaluation_has_no_noise_and_no_random_start():
    agent = deterministic([0.5, -0.5], random_steps=100)

    np.testing.assert_allclose([[2.0, 0.125]], act(agent, [[0.99, 0.99]], explore=False))


def test_gaussian_draws_by_the_inverse_cumulative_distribution_and_squashes():
    # before the tanh: the mean, one deviation up and one down
    action = act(gaussian([0.2, -0.3], [-1.0, 0.5]), [[PHI_1, 1 - PHI_1]])

    unit = np.tanh([0.2 + np.exp(-1.0), -0.3 - np.exp(0.5)])
    np.testing.assert_allclose([[1 + 2 * unit[0], 0.25 + 0.25 * unit[1]]], action, rtol=1e-5)


def test_gaussian_evaluation_takes_the_mean():
    action = act(gaussian([0.2, -0.3], [-1.0, 0.5], random_steps=100), [[0.99, 0.99]], explore=False)

    np.testing.assert_allclose([[1 + 2 * np.tanh(0.2), 0.25 + 0.25 * np.tanh(-0.3)]], action, rtol=1e-6)


@pytest.mark.parametrize("agent", [deterministic([0.5, 0.5], 0.0, 100), gaussian([0.5, 0.5], [-20.0, -20.0], 100)])
def test_first_steps_are_drawn_evenly_from_the_box_by_the_step_alone(agent):
    uniforms = [[0.0, 0.0], [0.5, 0.25], [0.75, 1 - 2**-53]]

    np.testing.assert_allclose([[-1.0, 0.0], [1.0, 0.125], [2.0, 0.5]], act(agent, uniforms, step=99), atol=1e-6)
    assert 1 == len(act(agent, uniforms, step=100).unique(dim=0))
    # and again, as a worker would that was started late
    np.testing.assert_allclose([[-1.0, 0.0], [1.0, 0.125], [2.0, 0.5]], act(agent, uniforms, step=0), atol=1e-6)


@pytest.mark.parametrize("agent", [deterministic([0.5, 0.5]), gaussian([0.5, 0.5], [2.0, 2.0])])
def test_the_outermost_uniforms_give_finite_actions_inside_the_box(agent):
    action = act(agent, [[0.0, 0.0], [1 - 2**-53, 1 - 2**-53]])

    assert torch.float32 == action.dtype
    assert torch.isfinite(action).all()
    assert (action >= torch.from_numpy(SPACE.low)).all()
    assert (action <= torch.from_numpy(SPACE.high)).all()


@pytest.mark.parametrize("agent", [deterministic([0.5, 0.5]), gaussian([0.5, 0.5], [0.0, 0.0])])
def test_act_is_a_pure_function_of_its_arguments(agent):
    assert 2 == agent.n_uniforms
    assert torch.equal(act(agent, [[0.3, 0.6]]), act(agent, [[0.3, 0.6]]))
