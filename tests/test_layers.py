"""Who may import whom: design.md section 2, read from the source text."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rlcli
from rlcli.cli.schema import BUILT_IN

PACKAGE = Path(rlcli.__file__).parent

EVERYBODY = {"core", "register"}
ROOMS = {
    "core": set(),
    "register": set(),
    "losses": set(),
    "models": set(),
    "envs": set(),
    "replay": set(),
    "record": {"version"},
    "analysis": set(),
    "launch": set(),
    "agents": {"models"},
    "algos": {"losses", "replay"},
    "algos.config": {"algos", "agents", "models", "losses", "replay"},  # says which agent its algorithm learns with
    "samplers": {"envs"},
    "runner": {"record"},
    "cli": {
        "runner",
        "samplers",
        "algos",
        "agents",
        "envs",
        "replay",
        "models",
        "record",
        "analysis",
        "launch",
        "version",
    },
    "version": {"cli"},
    "__main__": {"cli"},
}
"""Room -> rooms it may import besides itself and those for everybody; `version` stands for the bare package."""


def _room(dotted: str) -> str:
    """The room of ``rlcli.<room>....``; ``version`` for rlcli itself."""
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 else "version"


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _modules(node: ast.AST, *, lazily: bool) -> set[str]:
    """Modules that are imported below ``node``, those for the type checker aside."""
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            found |= {alias.name for alias in child.names}
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"relative import in line {child.lineno}"
            found |= _imported_from(child)
        elif _is_type_checking(child):
            continue
        elif lazily or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            found |= _modules(child, lazily=lazily)
    return found


def _imported_from(node: ast.ImportFrom) -> set[str]:
    """``from rlcli import x`` means the room x if there is one."""
    if node.module != "rlcli":
        return {node.module or ""}
    rooms = {alias.name for alias in node.names if alias.name in ROOMS and alias.name != "version"}
    return {f"rlcli.{room}" for room in rooms} | ({"rlcli"} if len(rooms) < len(node.names) else set())


def _files() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py") if "conf" not in p.relative_to(PACKAGE).parts[:1])


def _room_of_file(file: Path) -> str:
    if file.parent.name == "algos" and file.stem.endswith("_config"):
        return "algos.config"
    first = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "version" if first == "__init__" else first


def forbidden_imports(source: str, room: str) -> set[str]:
    """Rooms that the source text imports although ``room`` may not."""
    modules = _modules(ast.parse(source), lazily=True)
    used = {_room(m) for m in modules if m == "rlcli" or m.startswith("rlcli.")}
    everybody = EVERYBODY if room not in ("core", "losses") else {"core"} if room == "core" else set()
    return used - ROOMS[room] - everybody - {room}


@pytest.mark.parametrize("file", _files(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_in_the_one_direction(file):
    room = _room_of_file(file)
    assert room in ROOMS, f"{room} is a new room: say in ROOMS what it may import"

    assert set() == forbidden_imports(file.read_text(encoding="utf-8"), room)


@pytest.mark.parametrize(
    ("expected", "room", "source"),
    [
        ({"agents"}, "algos", "from rlcli.agents.q import QAgent"),
        ({"agents"}, "algos", "def build():\n    import rlcli.agents.q"),
        ({"samplers"}, "envs", "if True:\n    from rlcli.samplers import cpu"),
        ({"core"}, "losses", "from rlcli.core.tree import leaves"),
        ({"version"}, "envs", "from rlcli import __version__"),
        ({"cli"}, "runner", "from rlcli import cli"),
        (set(), "algos", "if TYPE_CHECKING:\n    from rlcli.agents.q import QAgent"),
        (set(), "algos", "from rlcli.core.tree import leaves\nfrom rlcli.losses.value import td_error\nimport torch"),
    ],
)
def test_a_wrong_import_is_seen_wherever_it_stands(expected, room, source):
    assert expected == forbidden_imports(source, room)


def _config_modules() -> list[str]:
    return sorted({place.partition(":")[0] for place in BUILT_IN.values()})


def test_config_modules_and_the_command_line_load_neither_torch_nor_gymnasium():
    names = [*_config_modules(), "rlcli", "rlcli.cli.main", "rlcli.cli.train", "rlcli.cli.config", "rlcli.cli.compose"]
    code = (
        f"import importlib, sys; [importlib.import_module(n) for n in {names}];"
        "print(*sorted({'torch', 'gymnasium', 'ale_py', 'cv2'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent, timeout=60
    )

    assert done.stdout.split() == []
