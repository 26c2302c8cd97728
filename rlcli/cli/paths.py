"""Where the configuration folders are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path


def conf_dir() -> Path:
    """The conf/ of rlcli: inside the package in a wheel, beside it in a checkout.

    Raises:
        FileNotFoundError: The installation has none.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "train.yaml").is_file():
            return folder
    raise FileNotFoundError(f"rlcli's conf/ folder is missing from this installation ({package})")


def groups(folders: Iterable[Path]) -> list[str]:
    """Names of the option groups in these configuration folders."""
    return sorted({p.name for folder in folders for p in folder.iterdir() if p.is_dir() and any(p.glob("*.yaml"))})


def options(folders: Sequence[Path], group: str) -> dict[str, Path]:
    """The options of a group and their files; in an earlier folder a name wins over a later one."""
    found: dict[str, Path] = {}
    for folder in reversed(folders):
        found |= {p.stem: p for p in (folder / group).glob("*.yaml")}
    return dict(sorted(found.items()))


def first_comment(file: Path) -> str:
    """What the file says about itself in its first comment line, Hydra's package line aside."""
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            return ""
        if not line.startswith("# @package"):
            return line.lstrip("# ").strip()
    return ""


def schema_kind(file: Path, group: str) -> str | None:
    """Which config class the file names in its defaults, None if it names none."""
    found = re.search(rf"/schema/{re.escape(group)}/([\w-]+)@", file.read_text(encoding="utf-8"))
    return found[1] if found else None
