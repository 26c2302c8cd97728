"""Every command line of README.md and docs/ runs: `rlcli` ones with a tiny budget, `make` ones at least parse."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
SMALL = [
    "n_steps=120",
    "log_interval_steps=60",
    "replay.size=6_000",
    "eval.n_envs=1",
    "eval.n_episodes=1",
    "eval.max_steps=200",
    "sampler.max_decorrelation_steps=0",
    "torch_threads=1",  # two tests at a time on two cores
]


def commands():
    """(page, line) of each line in a ``sh`` block."""
    found = []
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            found += [(page.relative_to(ROOT), line.split(" #")[0].strip()) for line in block.splitlines()]
    return [(page, line) for page, line in found if line]


def words_of(line):
    """The command with a tiny budget where it trains or goes on."""
    words = line.split()
    if words[:2] == ["rlcli", "resume"]:
        return ["n_steps=240" if w.startswith("n_steps=") else w for w in words]
    if words[:2] != ["rlcli", "train"] or {"--help", "--cfg"} & set(words):
        return words
    keys = {word.split("=")[0] for word in SMALL}
    small = [w for w in SMALL if not (w.startswith("replay.") and {"algo=a2c", "algo=reinforce"} & set(words))]
    return [w for w in words if w.split("=")[0] not in keys] + small


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the commands run, one after another as on the page, with the files that docs/extending.md shows."""
    where = tmp_path_factory.mktemp("reader")
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    for name, code in re.findall(r"^`([\w/.]+)`\n\n```(?:python|yaml)\n(.*?)```", text, re.DOTALL | re.MULTILINE):
        path = where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code, encoding="utf-8")
    return where


@pytest.mark.parametrize(("page", "line"), commands(), ids=str)
def test_command_of_the_documentation_runs(page, line, folder):
    words = words_of(line)
    if words[0] == "make":
        done = subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True, timeout=60)
    else:
        assert words[0] == "rlcli", f"{page}: what is {line!r}?"
        for name in re.findall(r"run_dir=(\S+)", line):
            shutil.rmtree(folder / name, ignore_errors=True)
        command = [sys.executable, "-m", "rlcli", *words[1:]]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_commands_to_run():
    assert len(commands()) > 15


def studied():
    """(page, line) of each training command of a study, its continuation lines joined."""
    found = []
    for page in sorted((ROOT / "experiments").rglob("README.md")):
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        found += [
            (page.relative_to(ROOT), " ".join(line.split())) for line in re.findall(r"^rlcli train.*$", text, re.M)
        ]
    return found


@pytest.mark.parametrize(("page", "line"), studied(), ids=str)
def test_command_of_a_study_can_still_be_given(page, line, tmp_path):
    command = [sys.executable, "-m", "rlcli", *line.split()[1:], "--cfg", "job"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_study_has_a_command():
    assert {page.parent for page, _ in studied()} == {
        page.parent.relative_to(ROOT) for page in (ROOT / "experiments").glob("*/README.md")
    }


def anchors(page):
    """What a link may name behind ``#``, as GitHub makes it of the headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_every_link_leads_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^):]+)\)", page.read_text(encoding="utf-8")):
            path, _, anchor = target.partition("#")
            place = page.parent / path if path else page
            assert place.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors(place), f"{page.name}: {target}"
