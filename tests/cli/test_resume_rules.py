"""What each key means when a run is resumed."""

import dataclasses
import sys
from dataclasses import dataclass

import pytest

import rlcli
from rlcli.cli import schema
from rlcli.cli.config import EvalConfig, RunConfig, as_dict, check, root_defaults
from rlcli.cli.resume_rules import Change, changes, shown
from rlcli.core.options import option
from rlcli.register import GROUPS

KINDS = {
    "env": "gym",
    "algo": "dqn",
    "model": "auto",
    "sampler": "serial",
    "epsilon": "linear",
    "replay": "uniform",
    "logger": "csv",
}


def made(kinds=None, **values):
    """A configuration with some kinds and some values at dotted keys, unchecked across its fields."""
    tree, kinds = root_defaults(), {**KINDS, **(kinds or {})}
    for group, kind in kinds.items():
        tree[group] = {**schema.defaults_tree(schema.config_class(group, kind)), "kind": kind}
    if tree["env"].get("id") == schema.MISSING:
        tree["env"]["id"] = "CartPole-v1"
    for key, value in values.items():
        *path, last = key.split(".")
        node = tree
        for name in path:
            node = node[name]
        node[last] = value
    return check(tree, kinds, across=False)


def rules(before, after):
    return {change.key: change.rule for change in changes(before, after)}


def rule_of(key, value, kinds=None):
    """The rule of a change of one key from its default."""
    ((found, rule),) = rules(made(kinds), made(kinds, **{key: value})).items()
    assert key == found
    return rule


TOP_LEVEL = {
    "seed": ("locked", 5),
    "n_steps": ("free", 5),
    "log_interval_steps": ("free", 5),
    "snapshot_mode": ("free", "all"),
    "snapshot_gap": ("free", 5),
    "snapshot_best": ("free", True),
    "checkpoint_interval_steps": ("free", 5),
    "checkpoint_replay": ("free", False),
    "max_time": ("free", "1h"),
    "hash_iterations": ("free", 5),
    "name": ("locked", "other"),
    "run_dir": ("locked", "other"),
    "device": ("free", "cpu"),
    "torch_threads": ("free", 2),
    "resume": ("locked", "other.pkl"),
    "resume_optimizer": ("locked", False),
    "resume_keys": ("locked", ["trunk.*"]),
    "imports": ("free", ["my_module"]),
}
"""Every key that belongs to no group: what it means, and a value other than the default."""


def test_no_key_at_the_top_lacks_a_decision():
    """Whoever adds one says here what it means when a run is resumed."""
    fields = {field.name for field in dataclasses.fields(RunConfig)}

    assert fields - {*GROUPS, "choices", "eval"} == TOP_LEVEL.keys()


@pytest.mark.parametrize("key", TOP_LEVEL)
def test_each_key_at_the_top_has_its_rule(key):
    rule, value = TOP_LEVEL[key]
    before, after = made(), made()
    setattr(after, key, value)

    assert {key: rule} == rules(before, after)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(EvalConfig)])
def test_evaluation_is_free(field):
    assert "free" == rule_of(f"eval.{field}", 7)


@pytest.mark.parametrize(
    ("rule", "key", "value"),
    [
        # the environment
        ("locked", "env.id", "Acrobot-v1"),
        ("locked", "env.max_episode_steps", 7),
        # the network
        ("locked", "model.mlp_hidden", [5]),
        # the algorithm
        ("warned", "algo.learning_rate", 0.5),
        ("warned", "algo.learning_rate_schedule", "linear"),
        ("warned", "algo.discount", 0.5),
        ("warned", "algo.batch_size", 5),
        ("warned", "algo.n_step_return", 5),
        ("warned", "algo.replay_ratio", 5.0),
        ("warned", "algo.target_update_interval", 5),
        ("locked", "algo.dueling", True),
        # exploration
        ("warned", "epsilon.final", 0.5),
        ("warned", "epsilon.end_steps", 5),
        # the replay
        ("locked", "replay.size", 5_000),
        ("free", "replay.memory_map_dir", "elsewhere"),
        # the sampler
        ("warned", "sampler.batch_T", 7),
        ("locked", "sampler.batch_B", 7),
        ("warned", "sampler.reset", "between_batches"),
        # the logger
        ("free", "logger.ui", "quiet"),
    ],
)
def test_keys_of_the_groups_have_their_rules(rule, key, value):
    assert rule == rule_of(key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [("n_workers", 7), ("pin_workers", False), ("start_method", "fork"), ("timeout_s", 7.0), ("max_restarts", 7)],
)
def test_worker_processes_are_free(key, value):
    assert "free" == rule_of(f"sampler.{key}", value, {"sampler": "cpu"})


# other options of a group


@pytest.mark.parametrize("before", ["serial", "cpu", "gpu", "alternating", "async"])
@pytest.mark.parametrize("after", ["serial", "cpu", "gpu", "alternating", "async"])
def test_another_sampler_is_free_with_all_that_only_one_of_both_has(before, after):
    found = rules(made({"sampler": before}), made({"sampler": after}))

    assert (before != after) == ("sampler.kind" in found)
    assert {"free"} >= set(found.values())


def test_what_both_samplers_have_keeps_its_rule_when_the_sampler_changes():
    before = made({"sampler": "serial"}, **{"sampler.batch_T": 3, "sampler.batch_B": 3})
    found = rules(before, made({"sampler": "cpu"}))

    assert ("free", "warned", "locked") == tuple(found[f"sampler.{k}"] for k in ("kind", "batch_T", "batch_B"))


def test_another_kind_of_schedule_is_warned_with_all_its_keys():
    found = rules(made(), made({"epsilon": "constant"}))

    assert "epsilon.kind" in found
    assert {"warned"} == set(found.values())


def test_another_environment_algorithm_or_no_replay_is_locked():
    assert "locked" == rules(made(), made({"env": "atari"}))["env.kind"]
    assert "locked" == rules(made(), made({"algo": "a2c"}))["algo.kind"]
    without = made()
    without.replay = None
    found = rules(made(), without)
    assert {"locked"} == {rule for key, rule in found.items() if key != "replay.memory_map_dir"}
    assert "replay.kind" in found


# a user's own


@pytest.fixture
def own_algo(monkeypatch):
    monkeypatch.setattr(sys.modules["rlcli.register"], "_classes", dict(rlcli.register.__globals__["_classes"]))

    @rlcli.register("algo", "own")
    @dataclass
    class OwnAlgo:
        strength: float = option(1.0, "Says nothing about resuming.", gt=0)
        plain: int = 3
        layers: int = option(2, "The network hangs on it.", at_resume="locked")
        verbose: bool = option(False, "Changes nothing.", at_resume="free")
        parts: dict[str, int] = option({"a": 1, "b": 2}, "A dict.", at_resume="locked")

    return {"algo": "own"}


@pytest.mark.parametrize(
    ("rule", "key", "value"),
    [
        ("warned", "strength", 2.0),
        ("warned", "plain", 4),
        ("locked", "layers", 3),
        ("free", "verbose", True),
    ],
)
def test_a_users_algorithm_is_warned_of_unless_its_field_says_otherwise(own_algo, rule, key, value):
    assert rule == rule_of(f"algo.{key}", value, own_algo)


def test_what_a_field_says_holds_for_all_that_is_in_it(own_algo):
    assert {"algo.parts.b": "locked"} == rules(made(own_algo), made(own_algo, **{"algo.parts": {"a": 1, "b": 5}}))
    assert {"algo.parts.b": "locked"} == rules(made(own_algo), made(own_algo, **{"algo.parts": {"a": 1}}))


@pytest.mark.parametrize(
    ("group", "rule"),
    [("env", "locked"), ("model", "locked"), ("replay", "locked"), ("sampler", "free"), ("epsilon", "warned")],
)
def test_a_users_option_of_another_group_means_what_its_group_means(monkeypatch, group, rule):
    monkeypatch.setattr(sys.modules["rlcli.register"], "_classes", dict(rlcli.register.__globals__["_classes"]))

    @rlcli.register(group, "own")
    @dataclass
    class Own:
        x: int = 1

    before, after = made({group: "own"}), made({group: "own"}, **{f"{group}.x": 2})

    assert {f"{group}.x": rule} == rules(before, after)


# the list


def test_equal_configurations_have_no_changes_and_chosen_names_are_none():
    before, after = made(), made()
    after.choices = {"env": "cartpole"}

    assert [] == changes(before, after)


def test_a_list_is_one_key_and_its_text_is_that_of_the_command_line():
    (change,) = changes(made(), made(**{"model.mlp_hidden": [5, 6]}))

    assert [5, 6] == change.new
    assert change.old == as_dict(made())["model"]["mlp_hidden"]


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("a.b: 1 -> 2", Change("a.b", 1, 2, "free")),
        ("a: null -> true", Change("a", None, True, "locked")),
        ("a: 0.1 -> false  (the run is no longer what it would have been)", Change("a", 0.1, False, "warned")),
    ],
)
def test_a_change_reads_as_one_would_type_it(text, change):
    assert text == str(change)


@pytest.mark.parametrize(("text", "value"), [("null", None), ("false", False), ("1e-05", 1e-5), ("x y", "x y")])
def test_values_are_shown_as_on_the_command_line(text, value):
    assert text == shown(value)
