"""Each known mistake, made in a copy of the product, is seen by the test that is named for it.

The table is `tests.planted_faults`. That it fits the product is checked by make test; the faults are planted by
make test-slow.
"""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.planted_faults import FAULTS, Fault

ROOT = Path(__file__).parents[1]
FAILED = 1
"""pytest's exit code where tests ran and some failed; a module that cannot be imported gives another."""


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_has_one_place_and_a_test_that_exists(fault):
    assert (ROOT / fault.file).read_text().count(fault.right) == 1
    file, _, name = fault.test.partition("::")
    tree = ast.parse((ROOT / file).read_text())
    assert name in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted") / "rlcli"
    for name in ("rlcli", "tests", "conf"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def seen(folder, *tests):
    """pytest's run of these tests on the product in a folder."""
    words = ["-q", "-x", "-p", "no:cacheprovider", *tests]
    command = [sys.executable, "-B", "-m", "pytest", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280)


@pytest.mark.slow
def test_nothing_is_seen_where_nothing_is_planted(copy):
    run = seen(copy, *sorted({fault.test for fault in FAULTS.values()}))

    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_planted_fault_is_seen(fault: Fault, copy: Path):
    file = copy / fault.file
    before = file.read_text()
    file.write_text(before.replace(fault.right, fault.wrong))
    try:
        run = seen(copy, fault.test)
    finally:
        file.write_text(before)

    assert run.returncode == FAILED, run.stdout + run.stderr
    assert "AssertionError" in run.stdout, run.stdout
