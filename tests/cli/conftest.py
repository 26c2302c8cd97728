"""The command line in this process, with the wiring behind it replaced: what is tested is what reaches it."""

import gc
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import rlcli.register
from rlcli.cli import argv, build, compose
from rlcli.cli.main import main


@dataclass
class Cli:
    """What came out of the last command, and what it would have run."""

    capsys: pytest.CaptureFixture[str]
    folder: Path
    configs: list = field(default_factory=list)
    words: list = field(default_factory=list)
    failures: dict = field(default_factory=dict)
    """Seed -> exception that a run with it raises."""
    out: str = ""
    err: str = ""

    def __call__(self, *words: str) -> int:
        self.configs.clear()
        self.words.clear()
        code = main(words)
        self.out, self.err = self.capsys.readouterr()
        return code

    @property
    def config(self):
        (config,) = self.configs
        return config

    def planned(self, *words: str):
        """The configuration that these words ask for, without the run."""
        request = argv.parse(words)
        compose.prepare(request)
        (config,) = compose.plan(request).configs
        return config

    def left_on_disk(self) -> list[str]:
        return sorted(str(p.relative_to(self.folder)) for p in self.folder.rglob("*"))

    def _run(self, config, checked, words, signals):
        assert checked == f"checked {config.seed}"
        self.configs.append(config)
        self.words.append(words)
        if config.seed in self.failures:
            raise self.failures[config.seed]
        return Path("runs") / f"seed{config.seed}"


@pytest.fixture
def cli(capsys, tmp_path, monkeypatch):
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys.modules["rlcli.register"], "_classes", dict(rlcli.register.__globals__["_classes"]))
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    monkeypatch.delenv("RLCLI_IMPORTS", raising=False)
    cli = Cli(capsys, folder)
    monkeypatch.setattr(build, "preflight", lambda config: f"checked {config.seed}")
    monkeypatch.setattr(build, "run", cli._run)
    return cli


@pytest.fixture
def my_package(tmp_path):
    """A user's folder: a package that registers an environment, and a conf/ with a YAML file for it."""
    package, conf = tmp_path / "user" / "my_pkg", tmp_path / "user" / "conf"
    package.mkdir(parents=True)
    (conf / "env").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from dataclasses import dataclass\n"
        "import rlcli\n"
        "from rlcli.core.options import option\n"
        "@rlcli.register('env', 'my_env')\n"
        "@dataclass\n"
        "class MyEnvConfig:\n"
        "    size: int = option(3, 'Size of the maze.', ge=1)\n"
    )
    (conf / "env" / "mine.yaml").write_text("# A maze of my own\ndefaults: [/schema/env/my_env@_here_]\nsize: 5\n")
    yield conf
    for name in [n for n in sys.modules if n.startswith("my_pkg")]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def no_collection():
    """Hydra makes so many small objects that looking for cycles among them takes half of a test's time."""
    gc.disable()
    yield
    gc.enable()
