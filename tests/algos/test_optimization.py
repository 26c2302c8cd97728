"""How long an optimizer's steps are; what it takes from a file, and leaves in it."""

import copy
from types import SimpleNamespace

import pytest
import torch

from rlcli.algos.optimization import Optimizer, Optimizers

SETTINGS = SimpleNamespace(learning_rate=0.1, learning_rate_schedule="constant", adam_eps=1e-8, clip_grad_norm=None)


def stepped(n):
    """(module, optimizer) after n steps."""
    torch.manual_seed(0)
    module = torch.nn.Linear(2, 1)
    optimizer = Optimizer(module, SETTINGS, 100)
    for _ in range(n):
        optimizer.step(module(torch.ones(1, 2)).sum(), 0)
    return module, optimizer


@pytest.mark.parametrize(
    ("schedule", "step", "moved"),
    [("constant", 0, 0.1), ("constant", 900, 0.1), ("linear", 0, 0.1), ("linear", 250, 0.075), ("linear", 1000, 0.0)],
)
def test_a_gradient_step_is_as_long_as_the_learning_rate_of_its_env_step(schedule, step, moved):
    module = torch.nn.Linear(1, 1, bias=False)
    settings = SimpleNamespace(**{**vars(SETTINGS), "learning_rate_schedule": schedule, "adam_eps": 1e-12})
    optimizer = Optimizer(module, settings, n_steps=1000)
    before = module.weight.item()

    optimizer.step(module(torch.ones(1, 1)).sum(), step)  # Adam's first step is as long as the learning rate

    assert moved == pytest.approx(before - module.weight.item(), abs=1e-6)
    assert moved == pytest.approx(optimizer.learning_rate(step), abs=1e-9)


def test_learning_on_leaves_the_state_that_was_loaded_as_it_was():
    given = copy.deepcopy(stepped(3)[1].state_dict())
    kept = copy.deepcopy(given)
    module, optimizer = stepped(0)

    optimizer.load_state_dict(given)
    optimizer.step(module(torch.ones(1, 2)).sum(), 0)

    for i, moments in kept["state"].items():
        for name, value in moments.items():
            assert torch.equal(value, given["state"][i][name]), name
    assert 4.0 == optimizer.state_dict()["state"][0]["step"].item()


def test_several_are_saved_and_loaded_by_their_names():
    (_, a), (_, b) = stepped(1), stepped(2)
    saved = Optimizers(critic=a, actor=b).state_dict()
    loaded = Optimizers(critic=stepped(0)[1], actor=stepped(0)[1])

    loaded.load_state_dict(saved)

    assert ["critic", "actor"] == list(saved)
    assert [1.0, 2.0] == [loaded[name].state_dict()["state"][0]["step"].item() for name in saved]


def test_the_learning_rate_that_is_told_is_the_first_ones():
    module = torch.nn.Linear(2, 1)
    slow = SimpleNamespace(**{**vars(SETTINGS), "learning_rate": 1e-4})

    both = Optimizers(critic=Optimizer(module, slow, 100), actor=Optimizer(module, SETTINGS, 100))

    assert 1e-4 == pytest.approx(both.learning_rate(0))
