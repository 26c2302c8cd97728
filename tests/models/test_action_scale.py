import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from rlcli.models.action_scale import ActionScale

UNEVEN = Box(np.array([-1.0, 0.0, -0.4], np.float32), np.array([3.0, 0.5, -0.2], np.float32))


def test_each_dimension_has_its_own_bounds():
    unit = torch.tensor([[-1.0, -1.0, -1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.5, -0.5, 0.2]])

    expected = [[-1.0, 0.0, -0.4], [1.0, 0.25, -0.3], [3.0, 0.5, -0.2], [2.0, 0.125, -0.28]]
    got = ActionScale(UNEVEN).to_env(unit)

    assert torch.float32 == got.dtype
    np.testing.assert_allclose(expected, got, rtol=1e-6)


def test_back_and_forth_is_the_same():
    scale = ActionScale(UNEVEN)
    unit = torch.linspace(-1, 1, 30).reshape(10, 3)

    torch.testing.assert_close(unit, scale.to_unit(scale.to_env(unit)), atol=1e-6, rtol=0)


def test_actions_of_any_shape_are_flat_in_normalised_units():
    scale = ActionScale(Box(-2, 2, (2, 3)))
    unit = torch.linspace(-1, 1, 24).reshape(4, 6)

    assert (4, 2, 3) == tuple(scale.to_env(unit).shape)
    torch.testing.assert_close(unit, scale.to_unit(scale.to_env(unit)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bound", [0.1, 0.4, 1 / 3, 1e-30, 3e38])
def test_actions_lie_inside_the_bounds_whatever_rounding_does(dtype, bound):
    space = Box(np.array([-bound, 0.0], dtype), np.array([bound, bound / 7], dtype), dtype=dtype)
    edge = torch.tensor([[-1.0, -1.0], [1.0, 1.0], [1.0 - 1e-7, 1.0 - 1e-7]], dtype=torch.float64)

    action = ActionScale(space).to_env(edge).numpy()

    assert np.isfinite(action).all()
    assert (action.astype(np.float64) >= space.low.astype(np.float64)).all()
    assert (action.astype(np.float64) <= space.high.astype(np.float64)).all()


def test_a_dimension_without_width_has_its_one_action():
    scale = ActionScale(Box(np.array([2.0, -1.0], np.float32), np.array([2.0, 1.0], np.float32)))

    action = scale.to_env(torch.tensor([[0.7, 0.7]]))

    np.testing.assert_allclose([[2.0, 0.7]], action)
    np.testing.assert_allclose([[0.0, 0.7]], scale.to_unit(action), rtol=1e-6)


def test_a_box_without_bounds_is_refused():
    with pytest.raises(ValueError, match="without bounds"):
        ActionScale(Box(np.array([-1.0, -np.inf], np.float32), np.array([1.0, 1.0], np.float32)))
