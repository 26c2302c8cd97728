"""What is told where MuJoCo is not installed."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

import rlcli
from rlcli.cli import paths
from rlcli.cli.main import main
from rlcli.envs.config import GymConfig

ENVS = [
    name
    for name in paths.options([paths.conf_dir()], "env")
    if "rlcli[mujoco]" in (paths.conf_dir() / "env" / f"{name}.yaml").read_text()
]
"""Whose files say that they need it."""


@pytest.fixture
def _no_mujoco(monkeypatch):
    for name in [m for m in sys.modules if m.startswith("gymnasium.envs.mujoco")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mujoco", None)  # importing it raises ModuleNotFoundError


@pytest.mark.usefixtures("_no_mujoco")
@pytest.mark.parametrize("env", ENVS)
def test_one_line_names_the_extra_to_install(env, tmp_path, capsys):
    assert 2 == main(["train", "algo=sac", f"env={env}", "n_steps=100", f"run_dir={tmp_path}/run"])

    told = capsys.readouterr().err
    assert re.fullmatch(
        r"rlcli train: env\.id: \w+-v5 needs a package that is missing; pip install 'rlcli\[mujoco\]'\n", told
    )
    assert not (tmp_path / "run").exists()


def test_the_environments_of_the_extra_are_those_that_need_it():
    import gymnasium

    folder = paths.conf_dir() / "env"
    ids = {path.stem: re.search(r"^id: (\S+)$", path.read_text(), re.MULTILINE) for path in folder.glob("*.yaml")}
    entries = {
        name: str(gymnasium.spec(found[1]).entry_point)
        for name, found in ids.items()
        if found and found[1] in gymnasium.registry
    }
    assert sorted(ENVS) == sorted(name for name, entry in entries.items() if "mujoco" in entry)
    assert "halfcheetah" in ENVS


def test_the_extra_exists():
    project = tomllib.loads((Path(rlcli.__file__).parents[1] / "pyproject.toml").read_text())["project"]

    assert any(line.startswith("gymnasium[mujoco]") for line in project["optional-dependencies"]["mujoco"])


def test_mujoco_leaves_no_log_file_and_says_only_what_concerns_the_user(tmp_path, monkeypatch, capfd):
    mujoco = pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    before = mujoco.get_mju_user_warning()
    try:
        GymConfig(id="HalfCheetah-v5").build().close()  # its model file has a deprecated attribute
        assert capfd.readouterr().err == ""

        model = mujoco.MjModel.from_xml_string(
            "<mujoco><worldbody><body><freejoint/><geom size='1'/></body></worldbody></mujoco>"
        )
        data = mujoco.MjData(model)
        data.qvel[0] = float("nan")
        mujoco.mj_step(model, data)

        assert capfd.readouterr().err.startswith("MuJoCo: Nan")
        assert list(tmp_path.iterdir()) == []
    finally:
        mujoco.set_mju_user_warning(before)
