import pickle
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from rlcli.core.errors import ConfigError
from rlcli.core.pickling import culprit, pickled
from tests.sampler_modes import OTHERS, config
from tests.sampler_probes import WanderConfig, make_setup


@dataclass
class Holder:
    """Holds anything."""

    good: int = 1
    thing: Any = None
    rest: dict[str, Any] = field(default_factory=dict)


@dataclass
class WanderWith(WanderConfig):
    """An environment's config with something of the user's."""

    wrapper: Any = None


@pytest.mark.parametrize(
    ("expected", "value"),
    [
        ("x (function)", lambda: 0),
        ("x.thing (function)", Holder(thing=lambda: 0)),
        ("x.rest.key.1 (function)", Holder(rest={"good": 2, "key": ("good", lambda: 0)})),
        ("x.0.thing.thing (function)", [Holder(thing=Holder(thing=lambda: 0))]),
        ("x.thing (type)", Holder(thing=type("Local", (), {}))),
        ("x.thing (generator)", Holder(thing=(i for i in range(3)))),
    ],
)
def test_culprit_is_the_innermost_object_that_cannot_be_pickled(expected, value):
    assert expected == culprit("x", value)


def test_what_can_be_pickled_comes_back_equal():
    tensor = torch.arange(6).view(2, 3)

    assert torch.equal(tensor, pickle.loads(pickled("x", Holder(thing={"t": tensor}))).thing["t"])


def test_object_that_refuses_with_any_exception_is_named():
    class Refuses:
        def __reduce__(self):
            raise ZeroDivisionError("no")

    with pytest.raises(ConfigError, match=r"^x\.thing \(Refuses\) cannot be sent to a worker process: no;"):
        pickled("x", Holder(thing=Refuses()))


@pytest.mark.parametrize("mode", [mode for mode in OTHERS if mode.endswith(("of 2", "async serial"))])
def test_sampler_with_processes_refuses_a_lambda_in_one_line_that_names_it(mode):
    setup = replace(make_setup(), env=WanderWith(wrapper=lambda env: env))

    with pytest.raises(ConfigError, match=r"env.*\.wrapper \(function\) cannot be sent to a worker process") as caught:
        config(mode, 5, 4).build(setup)

    (line,) = caught.value.problems
    assert "\n" not in line
    assert "sampler=serial" in line
