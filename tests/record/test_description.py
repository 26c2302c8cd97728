import json
import math
import platform
import shlex

import numpy as np
import yaml
from omegaconf import OmegaConf

import rlcli
from rlcli.record.description import write_description

CONFIG = {
    "seed": 3,
    "n_steps": 1_000_000,
    "device": "cpu",
    "resume": None,
    "algo": {"learning_rate": 1e-5, "delta_clip": math.inf, "double_dqn": True},
    "env": {"game": "1e6", "kwargs": {"name": "naïve"}, "flags": [1, 2.5, "off"]},
}


def test_exactly_the_four_files_are_written(tmp_path):
    write_description(tmp_path, CONFIG, ["rlcli"])

    assert sorted(p.name for p in tmp_path.iterdir()) == ["command.txt", "config.yaml", "params.json", "versions.json"]


def test_config_reads_back_the_same_with_hydra_and_with_plain_yaml(tmp_path):
    write_description(tmp_path, CONFIG, ["rlcli"])

    assert OmegaConf.to_container(OmegaConf.load(tmp_path / "config.yaml")) == CONFIG
    assert yaml.safe_load((tmp_path / "config.yaml").read_text(encoding="utf-8")) == CONFIG


def test_config_keeps_the_order_of_its_keys(tmp_path):
    write_description(tmp_path, {"b": 1, "a": 2}, ["rlcli"])

    assert (tmp_path / "config.yaml").read_text() == "b: 1\na: 2\n"


def test_command_can_be_pasted_and_its_folder_is_the_second_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    argv = ["rlcli", "train", "name=my run", "env.id=$X;'y'"]
    write_description(tmp_path, CONFIG, argv)
    command, folder = (tmp_path / "command.txt").read_text().splitlines()

    assert shlex.split(command) == argv
    assert folder == str(tmp_path)


def test_params_are_json_without_extensions(tmp_path):
    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    write_description(tmp_path, CONFIG, ["rlcli"])
    params = json.loads((tmp_path / "params.json").read_text(), parse_constant=refuse)

    assert params == {"exp_name": tmp_path.name, **CONFIG, "algo": {**CONFIG["algo"], "delta_clip": "inf"}}


def test_versions_name_what_a_result_may_hang_on(tmp_path):
    write_description(tmp_path, CONFIG, ["rlcli"])
    versions = json.loads((tmp_path / "versions.json").read_text())

    assert set(versions) >= {"torch", "numpy", "gymnasium", "ale-py", "platform", "cpus"}
    assert versions["rlcli"] == rlcli.__version__
    assert versions["python"] == platform.python_version()
    assert versions["numpy"] == np.__version__


def test_package_that_is_not_installed_is_null(tmp_path, monkeypatch):
    monkeypatch.setattr("rlcli.record.description._PACKAGES", ("no-such-package",))
    write_description(tmp_path, CONFIG, ["rlcli"])

    assert json.loads((tmp_path / "versions.json").read_text())["no-such-package"] is None
