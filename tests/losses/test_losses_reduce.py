"""The one mean."""

import math

import pytest
import torch

from rlcli.losses.checks import ShapeError
from rlcli.losses.reduce import masked_mean


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


MASK = torch.tensor([True, False, True])


def test_mean_runs_over_valid_elements_only(assert_table):
    # the mean of 1 and 5
    assert_table(3.0, masked_mean(f64(1, 100, 5), MASK))


def test_weights_scale_elements_and_not_their_number(assert_table):
    # 0.5 and 5, over 2 elements
    assert_table(2.75, masked_mean(f64(1, 100, 5), MASK, f64(0.5, 1, 1)))


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_invalid_element_poisons_neither_mean_nor_gradient(poison):
    x = f64(1, poison, 5).requires_grad_()

    mean = masked_mean(x, MASK, f64(1, poison, 1))
    mean.backward()

    assert mean.item() == 3
    assert x.grad.tolist() == [0.5, 0, 0.5]


def test_valid_nan_is_not_hidden():
    assert masked_mean(f64(math.nan, 0, 5), MASK).isnan()


def test_nothing_valid_gives_0_with_a_graph():
    x = f64(1, math.nan).requires_grad_()

    mean = masked_mean(x, torch.zeros(2, dtype=torch.bool))
    mean.backward()

    assert mean.item() == 0
    assert x.grad.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("x", torch.tensor([1, 2, 3])),
        ("valid", torch.ones(3, dtype=torch.float64)),
        ("valid", MASK[:, None]),
        ("weight", f64(1)),
        ("weight", torch.ones(3)),
    ],
)
def test_wrong_argument_is_named(name, bad):
    arguments = {"x": f64(1, 2, 3), "valid": MASK, "weight": f64(1, 1, 1)}

    with pytest.raises(ShapeError, match=f"^{name}: expected"):
        masked_mean(**(arguments | {name: bad}))
