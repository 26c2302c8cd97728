"""progress.csv: append-only, its columns fixed at the start."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from rlcli.core.errors import did_you_mean


class CsvLog:
    """A CSV file of numbers that can be parsed at any moment, also after the writing process was killed.

    Each line reaches the file in one write on a descriptor opened for appending; nothing is buffered here.

    Args:
        path: The file; must not exist yet, unless ``rows`` is given.
        columns: All names, in order; written as the header at once.
        rows: The whole text of the file as it was at a checkpoint, from which it goes on: what came after, and what
            damage it took, is gone. Columns that it lacks get ``nan``, columns that only it has are kept.

    Raises:
        FileExistsError: The file exists: rows of another run are never touched.
        ValueError: A column is there twice, or there is none.
    """

    def __init__(self, path: Path, columns: Sequence[str], rows: str | None = None) -> None:
        if not columns or len(set(columns)) != len(columns):
            raise ValueError(f"columns must be given and unique, got {list(columns)}")
        header, text = _continued(columns, rows or "")
        self.path, self.columns = path, tuple(header)
        self._known = frozenset(header)
        self._fd: int | None = None
        if rows is None:
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o666)
            self._write_line(self.columns)
        else:
            _replace(path, text)
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND)

    def write(self, row: Mapping[str, float]) -> None:
        """Append one row; a column without a value gets ``nan``.

        Raises:
            KeyError: A name is no column.
            TypeError: A value is no number.
            OSError: The line cannot be written; what had reached the file of it is taken back.
        """
        for name in row:
            if name not in self._known:
                raise KeyError(f"{self.path.name} has no column {name!r}{did_you_mean(name, self.columns)}")
        self._write_line([_cell(name, row.get(name, float("nan"))) for name in self.columns])

    def close(self) -> None:
        """Close the file; safe to call twice."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _write_line(self, cells: Iterable[str]) -> None:
        if self._fd is None:
            raise ValueError(f"{self.path} is closed")
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(cells)
        data = line.getvalue().encode()
        size = os.fstat(self._fd).st_size
        if os.write(self._fd, data) != len(data):
            os.ftruncate(self._fd, size)
            raise OSError(f"{self.path}: no room for another row; the rows before it are whole")


def _continued(columns: Sequence[str], rows: str) -> tuple[list[str], str]:
    """Header and text of a file that goes on after ``rows`` with ``columns``."""
    reader = csv.DictReader(io.StringIO(rows))
    before = list(reader.fieldnames or [])
    if before == list(columns):
        return before, rows
    header = [*columns, *(name for name in before if name not in columns)]
    text = io.StringIO()
    writer = csv.DictWriter(text, header, restval="nan", lineterminator="\n")
    writer.writeheader()
    writer.writerows(reader)
    return header, text.getvalue()


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8", newline="")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _cell(name: str, value: Any) -> str:
    if isinstance(value, Integral):
        return repr(int(value))
    if isinstance(value, Real):
        return repr(float(value))
    raise TypeError(f"{name}: {value!r} is a {type(value).__name__}, must be a number")
