"""Distributions on fixed atoms: projection, target, cross-entropy."""

import math

import pytest
import torch

from rlcli.losses.categorical_value import categorical_q_target, cross_entropy, entropy_of, project
from rlcli.losses.checks import ShapeError

LN2 = math.log(2)


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


Z = f64(-1, 0, 1)


def test_mass_goes_to_both_neighbours_and_beyond_the_ends_to_the_last_atom(assert_table):
    # 0.2 at -0.5: half to -1, half to 0;  0.5 at 0.25: three quarters to 0, one to 1;  0.3 at 3: all to 1
    # 0.2 at -9: all to -1;  0.5 at 1;  0.3 at -0.9: 0.9 of it to -1, 0.1 to 0
    at, p = f64([-0.5, 0.25, 3], [-9, 1, -0.9]), f64([0.2, 0.5, 0.3], [0.2, 0.5, 0.3])

    assert_table([[0.1, 0.1 + 0.375, 0.125 + 0.3], [0.2 + 0.27, 0.03, 0.5]], project(at, p, Z))


def test_mass_on_an_atom_stays_there(assert_table):
    assert_table([[0.2, 0.5, 0.3]], project(Z[None], f64([0.2, 0.5, 0.3]), Z))


def test_atoms_need_not_be_one_apart(assert_table):
    # dz = 2.5: 1 lies 0.4 dz above the first atom
    assert_table([[0.6, 0.4, 0.0]], project(f64([1.0]), f64([1.0]), f64(0, 2.5, 5)))


def test_projection_equals_algorithm_1_of_the_paper():
    random = torch.Generator().manual_seed(0)
    z = torch.linspace(-10, 10, 51, dtype=torch.float64)
    at = 30 * torch.rand(20, 51, generator=random, dtype=torch.float64) - 15
    at[0] = z  # every b is an integer
    p = torch.rand(20, 51, generator=random, dtype=torch.float64).softmax(-1)

    expected = torch.zeros(20, 51, dtype=torch.float64)
    for n in range(20):
        for j in range(51):
            b = (min(max(float(at[n, j]), -10.0), 10.0) + 10.0) / 0.4
            b = round(b) if abs(b - round(b)) < 1e-9 else b
            low, high = math.floor(b), math.ceil(b)
            if low == high:
                expected[n, low] += p[n, j]
            else:
                expected[n, low] += p[n, j] * (high - b)
                expected[n, high] += p[n, j] * (b - low)

    projected = project(at, p, z)
    torch.testing.assert_close(projected, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(projected.sum(-1), torch.ones(20, dtype=torch.float64))


def test_mean_is_kept_inside_the_atoms(assert_table):
    # 0.25 * -0.3 + 0.75 * 0.9
    assert_table([0.6], project(f64([-0.3, 0.9]), f64([0.25, 0.75]), Z) @ Z)


P_NEXT = f64([[1, 0, 0], [0, 0, 1]], [[0.5, 0.5, 0], [0, 1, 0]], [[0, 0, 1], [1, 0, 0]])


def test_target_is_the_best_actions_distribution_shrunk_and_moved(assert_table):
    # chosen actions 1, 0, 1
    # 0 + 0.5 * 1 = 0.5;  0.25 + 0.5 * {-1, 0} = {-0.25, 0.25}, half each;  terminal: all mass at -0.75
    m = categorical_q_target(f64(0, 0.25, -0.75), f64(0.5, 0.5, 0), P_NEXT, f64([0, 1], [3, 2], [0, 9]), Z)

    assert_table([[0, 0.5, 0.5], [0.125, 0.375 + 0.375, 0.125], [0.75, 0.25, 0]], m)


def test_target_of_one_terminal_transition_beyond_the_atoms_lies_on_the_last(assert_table):
    assert_table([[0.0, 0.0, 1.0]], categorical_q_target(f64(7), f64(0), P_NEXT[:1], f64([0, 1]), Z))


LOGITS = f64([[0.25, 0.5, 0.25], [1, 1, 1]], [[1, 1, 1], [0.125, 0.125, 0.75]]).log()
ACTION = torch.tensor([0, 1])
M = f64([0.5, 0.5, 0], [0, 1, 0])


def test_cross_entropy_is_that_of_the_taken_action(assert_table):
    # 0.5 ln 4 + 0.5 ln 2 = 1.5 ln 2;  ln 8
    assert_table([1.5 * LN2, 3 * LN2], cross_entropy(LOGITS, ACTION, M))


def test_cross_entropy_and_entropy_of_one_transition(assert_table):
    # ln 8;  1/4 ln 4 + 3/4 ln (4/3)
    m = f64([0.25, 0, 0.75])

    assert_table([3 * LN2], cross_entropy(LOGITS[1:], ACTION[1:], M[1:]))
    assert_table([0.25 * math.log(4) + 0.75 * math.log(4 / 3)], entropy_of(m))


def test_cross_entropy_sends_its_gradient_through_the_taken_actions_logits_alone():
    logits, m = LOGITS.clone().requires_grad_(), M.clone().requires_grad_()

    cross_entropy(logits, ACTION, m).sum().backward()

    # p - m
    expected = f64([[-0.25, 0, 0.25], [0, 0, 0]], [[0, 0, 0], [0.125, -0.875, 0.75]])
    torch.testing.assert_close(logits.grad, expected, atol=1e-12, rtol=0)
    assert m.grad is None


def test_entropy_counts_no_mass_as_nothing_and_less_it_the_cross_entropy_is_the_divergence(assert_table):
    assert_table([LN2, 0.0], entropy_of(M))
    # KL({0.5, 0.5, 0}, {0.25, 0.5, 0.25}) = 0.5 ln 2
    assert_table([0.5 * LN2, 3 * LN2], cross_entropy(LOGITS, ACTION, M) - entropy_of(M))


def test_targets_carry_no_gradient():
    p = P_NEXT.clone().requires_grad_()

    assert not categorical_q_target(f64(0, 0, 0), f64(1, 1, 1), p, p.sum(-1), Z).requires_grad


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("r", torch.zeros(3, 1, dtype=torch.float64)),
        ("discount_n", torch.zeros(1, dtype=torch.float64)),
        ("discount_n", torch.zeros(3, dtype=torch.float32)),
        ("p_next", torch.zeros(3, 3, dtype=torch.float64)),
        ("p_next", torch.zeros(3, 2, 4, dtype=torch.float64)),
        ("q_next", torch.zeros(3, 3, dtype=torch.float64)),
        ("z", torch.zeros(3, dtype=torch.float32)),
    ],
)
def test_wrong_argument_of_the_target_is_named(name, bad):
    zeros = torch.zeros(3, dtype=torch.float64)
    arguments = {"r": zeros, "discount_n": zeros, "p_next": P_NEXT, "q_next": P_NEXT.sum(-1), "z": Z}

    with pytest.raises(ShapeError, match=f"^{name}: expected"):
        categorical_q_target(**(arguments | {name: bad}))


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("logits", torch.zeros(2, 3, dtype=torch.float64)),
        ("action", torch.zeros(2, 1, dtype=torch.int64)),
        ("action", torch.zeros(2, dtype=torch.int32)),
        ("m", torch.zeros(1, 3, dtype=torch.float64)),
        ("m", torch.zeros(2, 3, dtype=torch.float32)),
    ],
)
def test_wrong_argument_of_the_cross_entropy_is_named(name, bad):
    with pytest.raises(ShapeError, match=f"^{name}: expected"):
        cross_entropy(**({"logits": LOGITS, "action": ACTION, "m": M} | {name: bad}))


def test_one_atom_is_refused():
    with pytest.raises(ShapeError, match="z: expected at least 2 atoms"):
        project(f64([1.0]), f64([1.0]), f64(0))
