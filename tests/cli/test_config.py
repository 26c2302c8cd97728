"""The check that turns what Hydra composed into typed configs, without Hydra."""

import enum
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from rlcli.cli import argv, schema
from rlcli.cli.config import RunConfig, as_dict, check, root_defaults
from rlcli.cli.convert import Report, to_dataclass
from rlcli.core.errors import ConfigError
from rlcli.core.options import option

KINDS = {
    "env": "atari",
    "algo": "dqn",
    "model": "auto",
    "sampler": "serial",
    "epsilon": "linear",
    "replay": "uniform",
    "logger": "csv",
}
CHOICES = {**KINDS, "env": "pong"}


def tree(changes: dict[str, Any], kinds: dict[str, str] = KINDS) -> dict[str, Any]:
    """The default tree with values put in at dotted keys."""
    made = root_defaults()
    for group, kind in kinds.items():
        made[group] = {**schema.defaults_tree(schema.config_class(group, kind)), "kind": kind}
    for key, value in changes.items():
        *path, last = key.split(".")
        node = made
        for name in path:
            node = node.setdefault(name, {})
        node[last] = value
    return made


def checked(changes: dict[str, Any], raw: dict[str, str] | None = None) -> RunConfig:
    return check(tree(changes), CHOICES, raw)


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        # unknown keys
        ("lr: no such key; did you mean 'algo.learning_rate'?", "lr", 1e-3),
        ("discount: no such key; did you mean 'algo.discount'?", "discount", 0.9),
        ("n_step: no such key; did you mean 'n_steps'?", "n_step", 5),
        ("total_steps: no such key; did you mean 'n_steps'?", "total_steps", 5),
        ("algo.lr: no such key; did you mean 'algo.learning_rate'?", "algo.lr", 1e-3),
        ("algo.gamma: no such key; did you mean 'algo.discount'?", "algo.gamma", 1e-3),
        ("algo.qqqq: no such key", "algo.qqqq", 1),
        ("eval.n_episode: no such key; did you mean 'eval.n_episodes'?", "eval.n_episode", 1),
        ("bogus: no such key", "bogus.deep.er", 1),
        (
            "sampler.n_workers: no such key with sampler=serial; sampler=cpu or gpu or alternating or async has it",
            "sampler.n_workers",
            2,
        ),
        # types
        ("n_steps: null is not an int", "n_steps", None),
        ("n_steps: true is not an int", "n_steps", True),
        ("n_steps: inf is not an int", "n_steps", math.inf),
        ("n_steps: 'ten' is not an int", "n_steps", "ten"),
        ("algo.batch_size: 32.5 is not an int", "algo.batch_size", 32.5),
        ("seed: [1] is not an int", "seed", [1]),
        ("seed: {'x': 1} is not an int", "seed", {"x": 1}),
        ("algo.learning_rate: 'fast' is not a float", "algo.learning_rate", "fast"),
        ("algo.learning_rate: true is not a float", "algo.learning_rate", True),
        ("algo.clip_grad_norm: 'x' is not a float", "algo.clip_grad_norm", "x"),
        ("algo.double_dqn: 1 is not a bool (true or false)", "algo.double_dqn", 1),
        ("algo.double_dqn: 'yes' is not a bool (true or false)", "algo.double_dqn", "yes"),
        ("model.mlp_hidden: 64 is not a list ([a, b, ...])", "model.mlp_hidden", 64),
        ("model.mlp_hidden[1]: 'a' is not an int", "model.mlp_hidden", [64, "a"]),
        ("eval: 5 is not a group of keys (eval.<name>=...)", "eval", 5),
        ("name: ['a'] is not a str", "name", ["a"]),
        ("algo: 5 is no option of this group", "algo", 5),
        # missing
        ("env.game: needs a value: env.game=...", "env.game", "???"),
        ("seed: needs a value: seed=...", "seed", "???"),
        # ranges
        ("algo.learning_rate: nan is not allowed, must be > 0", "algo.learning_rate", math.nan),
        ("model.mlp_hidden: [64, 0] is not allowed, must be >= 1", "model.mlp_hidden", [64, 0]),
        ("eval.interval_steps: -1 is not allowed, must be >= 0", "eval.interval_steps", -1),
        ("device: 'gpu' is not allowed, must be auto, cpu, cuda or cuda:N", "device", "gpu"),
        ("device: 'cuda:x' is not allowed, must be auto, cpu, cuda or cuda:N", "device", "cuda:x"),
        ("epsilon.final_min: 0.5 must be <= final, which is 0.01", "epsilon.final_min", 0.5),
        # kinds
        ("algo.kind: 'dqm' is unknown; did you mean 'dqn'?", "algo.kind", "dqm"),
        ("imports: 5 is not a list ([a, b, ...])", "imports", 5),
    ],
)
def test_one_wrong_value_gives_one_line(line, key, value):
    with pytest.raises(ConfigError) as error:
        checked({key: value})

    assert [line] == error.value.problems


@pytest.mark.parametrize(
    ("expected", "key", "value"),
    [
        (20_000, "n_steps", 2e4),
        (1_000_000, "replay.size", 1e6),
        (1, "algo.learning_rate", 1),
        (None, "algo.clip_grad_norm", None),
        ([128, 128], "model.mlp_hidden", [128.0, 128]),
        ("cuda:1", "device", "cuda:1"),
    ],
)
def test_a_good_value_gets_the_type_of_its_field(expected, key, value):
    found: Any = checked({key: value})
    for name in key.split("."):
        found = getattr(found, name)

    assert expected == found
    assert type(found) is (float if key == "algo.learning_rate" else type(expected))


def test_a_number_for_a_text_becomes_the_text_that_was_typed():
    assert checked({"name": 202401}, {"name": "2024_01"}).name == "2024_01"
    assert checked({"name": 202401}).name == "202401"
    assert checked({"name": True}).name == "true"


def test_a_missing_group_is_named_with_its_options():
    without = tree({})
    del without["sampler"]

    with pytest.raises(ConfigError, match=r"^sampler: needs a value, one of serial, cpu, gpu, alternating, async$"):
        check(without, CHOICES)


def test_keys_of_a_group_that_the_algorithm_does_not_have_are_refused():
    kinds = {**KINDS, "algo": "a2c"}
    del kinds["epsilon"], kinds["replay"]

    with pytest.raises(ConfigError, match=r"^replay.size: algo=a2c has no replay$"):
        check(tree({"replay.size": 10}, kinds), kinds)

    config = check(tree({}, kinds), kinds)
    assert config.epsilon is None
    assert config.replay is None


def test_resume_becomes_absolute_and_must_be_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.pkl").touch()

    assert checked({"resume": "params.pkl"}).resume == str(tmp_path / "params.pkl")
    with pytest.raises(ConfigError, match=r"^resume: there is no file '.*nothing\.pkl'$"):
        checked({"resume": "nothing.pkl"})


def test_a_config_as_dict_gives_the_same_config_again():
    config = checked({"seed": 3, "algo.learning_rate": 0.5, "eval.n_envs": 2})

    again = as_dict(config)
    choices = again.pop("choices")

    assert config == check(again, choices)
    assert again["algo"]["kind"] == "dqn"


def test_checks_across_fields_of_the_groups_can_be_left_out():
    """They may load what they check with; --cfg job must not."""
    changes = tree({"epsilon.final_min": 0.5})

    assert check(changes, CHOICES, across=False).epsilon.final_min == 0.5


class Colour(enum.Enum):
    RED = 1


@dataclass
class Inner:
    x: int = option(1, "x", ge=0)


@dataclass
class Everything:
    must: int
    inner: Inner = field(default_factory=Inner)
    maybe_inner: Inner | None = None
    word_or_list: str | list[int] = "a"
    number: int | float = 1
    pairs: dict[str, int] = field(default_factory=dict)
    anything: Any = None
    pair: tuple[int, str] = (1, "a")
    many: tuple[int, ...] = ()
    word: Literal["a", "b"] = "a"
    late: int = field(init=False, default=9)


def everything(**values):
    report = Report()
    return to_dataclass(Everything, {"must": 1, **values}, "", report), report.problems


@pytest.mark.parametrize(
    ("expected", "name", "value"),
    [
        (Inner(5), "inner", {"x": 5.0}),
        (Inner(5), "maybe_inner", {"x": 5}),
        (None, "maybe_inner", None),
        ([1, 2], "word_or_list", [1, 2.0]),
        ("x", "word_or_list", "x"),
        (2.5, "number", 2.5),
        (2, "number", 2),
        ({"a": 1}, "pairs", {"a": 1.0}),
        ([{"a": None}], "anything", [{"a": None}]),
        ((2, "b"), "pair", [2, "b"]),
        ((1, 2, 3), "many", [1, 2, 3]),
        ("b", "word", "b"),
    ],
)
def test_every_kind_of_field_is_converted(expected, name, value):
    config, problems = everything(**{name: value})

    assert {} == problems
    assert expected == getattr(config, name)


@pytest.mark.parametrize(
    ("expected", "name", "value"),
    [
        ({"inner.x": "'a' is not an int"}, "inner", {"x": "a"}),
        ({"maybe_inner.x": "'a' is not an int"}, "maybe_inner", {"x": "a"}),
        ({"word_or_list": "{} is not a str or list[int]"}, "word_or_list", {}),
        ({"pairs.b": "'x' is not an int"}, "pairs", {"a": 1, "b": "x"}),
        ({"pair": "[1] has 1 items, must have 2"}, "pair", [1]),
        ({"many[1]": "'a' is not an int"}, "many", [1, "a"]),
        ({"word": "'c' is not one of ('a', 'b')"}, "word", "c"),
        ({"must": "needs a value: must=..."}, "must", "???"),
        ({"must": "'a' is not an int"}, "must", "a"),
    ],
)
def test_every_kind_of_field_is_refused_at_its_key(expected, name, value):
    assert expected == everything(**{name: value})[1]


def test_a_field_type_that_is_not_supported_is_the_programmers_error():
    @dataclass
    class Odd:
        colour: Colour = Colour.RED

    Odd.__annotations__["colour"] = Colour
    with pytest.raises(TypeError, match="colour: config fields of type"):
        to_dataclass(Odd, {}, "", Report())


@pytest.mark.parametrize("text", ["a=b,c", 'say "hi"', "back\\slash", 'end\\"', "end\\", "a b", "{x}", "ü#", "'"])
def test_quoted_text_comes_back_from_hydra_as_it_was(text):
    from hydra.core.override_parser.overrides_parser import OverridesParser

    (override,) = OverridesParser.create().parse_overrides([f"name={argv.quoted(text)}"])

    assert text == override.value()
