"""The ring's rows in files that only grow, so that a checkpoint costs what is new.

A log is segments in a folder, ``rows_<number>.log`` (``states_<number>.log`` for recurrent states). A segment is chunks
one after another, and a chunk is a header (``_CHUNK``: a mark, the absolute number of its first row, the number of its
rows) and then each leaf's rows, in the order of the ring's layout and in the byte order of its dtypes. Where two chunks
hold the same row the later one counts. Bytes once written never change: whoever kept the list of segments with their
lengths finds the rows of that moment, whatever was appended since.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np

from rlcli.core.errors import SnapshotError
from rlcli.replay.ring import Ring

SEGMENT_BYTES = 64 << 20
"""A segment takes no more chunks once the next row would make it longer."""

_PIECE_BYTES = 1 << 20  # small enough that the checksum finds the bytes in the processor's cache
_CHUNK = struct.Struct("<8sqq")
_MARK = b"rlclirow"
_NAME = re.compile(r"(?:rows|states)_(\d{8,})\.log")


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment as far as it is valid: what a checkpoint names."""

    name: str
    first: int
    """Its first row."""
    end: int
    """The row after its last."""
    n_bytes: int
    crc: int
    """CRC-32 of these bytes."""


class RowLog:
    """Writes a ring to a folder and reads it back.

    Only the newest row may change after it was written, so each save begins with it.

    Args:
        ring: What is saved, or filled by `load`.
        word: rows or states, with which the names of its files begin; two logs in one folder differ in it.
    """

    def __init__(self, ring: Ring, word: str = "rows") -> None:
        self._ring, self._word = ring, word
        self._folder = Path()
        self._segments: list[Segment] = []
        self._head = 0  # of the ring at the last save or load
        self._may_grow = False  # whether the last segment is this object's own up to its valid end
        self._last_number = 0

    def save(self, folder: Path) -> list[dict[str, Any]]:
        """Write what is new since the last save; it is on the disk, and not just on its way, when this returns.

        If it fails, the files are as before and the next save writes the same rows again, elsewhere.

        Returns:
            The segments that hold all rows of the ring, oldest first, as plain dicts.

        Raises:
            SnapshotError: if a file cannot be written; names it.
        """
        ring, folder = self._ring, folder.resolve()
        segments, first = list(self._segments), max(0, self._head - 1)
        if not self._goes_on_in(folder):
            segments, first = [], ring.oldest
        if self._head != ring.head or not segments:
            self._write(folder, segments, first)
        while len(segments) > 1 and segments[1].first <= ring.oldest:
            del segments[0]
        self._folder, self._segments, self._head = folder, segments, ring.head
        return [asdict(segment) for segment in segments]

    def load(self, folder: Path, segments: Iterable[Mapping[str, Any]], head: int) -> None:
        """Fill the ring's memory with what `save` named; does not move its head.

        The log goes on in a new segment: behind the valid end of the last one may lie rows of a later checkpoint.

        Args:
            folder: Where the segments lie.
            segments: What `save` returned.
            head: The ring's head at that time.

        Raises:
            SnapshotError: if a file is missing, too short or damaged; names it.
        """
        folder, found = folder.resolve(), [Segment(**segment) for segment in segments]
        end = max(0, head - self._ring.n_rows)
        for segment in found:
            if not _NAME.fullmatch(segment.name):
                raise SnapshotError(f"{folder / segment.name}: not the name of a replay file")
            end = self._read(folder / segment.name, segment, end)
        if end != head:
            raise SnapshotError(f"{folder}: the checkpoint names no file with the replay's rows from {end} to {head}")
        self._folder, self._segments, self._head, self._may_grow = folder, found, head, False

    def _goes_on_in(self, folder: Path) -> bool:
        """Whether what was saved last is still there, and still holds some of the ring."""
        if folder != self._folder or self._head <= self._ring.oldest:
            return False
        return all(_length(folder / segment.name) >= segment.n_bytes for segment in self._segments)

    def _write(self, folder: Path, segments: list[Segment], first: int) -> None:
        """Append rows ``first`` to the ring's head, and the segments that hold them to ``segments``."""
        lengths: dict[Path, int] = {}  # of the files touched, before
        path = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            while first < self._ring.head:
                segment = self._with_room(folder, segments)
                path = folder / segment.name
                segments.append(self._appended(path, segment, first, lengths))
                self._may_grow = True
                first = segments[-1].end
            path = folder
            _sync_folder(folder)
        except BaseException as error:  # an interrupt, too, leaves half a chunk behind
            self._may_grow = False
            _cut_back(lengths)
            if isinstance(error, OSError):
                raise SnapshotError(f"{path}: not written: {error.strerror or error}") from error
            raise

    def _with_room(self, folder: Path, segments: list[Segment]) -> Segment:
        """The segment for the next chunk: the last one, taken off the list, or a new one."""
        if segments and self._may_grow:
            last = segments[-1]
            if self._n_rows_after(last.n_bytes) and _length(folder / last.name) == last.n_bytes:
                return segments.pop()
        numbers = [int(match[1]) for file in folder.iterdir() if (match := _NAME.fullmatch(file.name))]
        numbers += [int(match[1]) for segment in segments if (match := _NAME.fullmatch(segment.name))]
        self._last_number = max([self._last_number, *numbers]) + 1
        return Segment(f"{self._word}_{self._last_number:08d}.log", first=-1, end=-1, n_bytes=0, crc=0)

    def _n_rows_after(self, n_bytes: int) -> int:
        """Rows that still fit into a segment of so many bytes."""
        return max(0, (SEGMENT_BYTES - n_bytes - _CHUNK.size) // self._ring.row_bytes)

    def _appended(self, path: Path, segment: Segment, first: int, lengths: dict[Path, int]) -> Segment:
        """The segment with one more chunk, as long as fits, from row ``first`` on; its length before to ``lengths``."""
        end = min(self._ring.head, first + max(1, self._n_rows_after(segment.n_bytes)))
        crc, n_bytes = segment.crc, segment.n_bytes
        with path.open("ab" if n_bytes else "xb") as file:
            lengths[path] = n_bytes
            for piece in (memoryview(_CHUNK.pack(_MARK, first, end - first)), *self._pieces(first, end)):
                file.write(piece)
                crc = zlib.crc32(piece, crc)
                n_bytes += len(piece)
            file.flush()
            os.fsync(file.fileno())
        return Segment(segment.name, first if segment.first < 0 else segment.first, end, n_bytes, crc)

    def _read(self, path: Path, segment: Segment, end: int) -> int:
        """Read one segment into the ring, where the rows up to ``end`` are or are not needed; give the new end."""
        if (n_bytes := _length(path)) < segment.n_bytes:
            found = f"has {n_bytes:,} bytes" if n_bytes >= 0 else "missing"
            raise SnapshotError(f"{path}: {found}, the checkpoint needs {segment.n_bytes:,} bytes of it")
        damaged = SnapshotError(f"{path}: damaged, its content is not what the checkpoint says")
        crc, at = 0, 0
        try:
            with path.open("rb") as file:
                while at < segment.n_bytes:
                    header = file.read(_CHUNK.size)
                    first, n_rows = self._checked(header, segment.n_bytes - at, damaged)
                    if first > end:
                        raise damaged
                    crc = self._fill(file, first, first + n_rows, zlib.crc32(header, crc), damaged)
                    at += _CHUNK.size + n_rows * self._ring.row_bytes
                    end = max(end, first + n_rows)
        except OSError as error:
            raise SnapshotError(f"{path}: not readable: {error.strerror or error}") from error
        if crc != segment.crc or end < segment.end:
            raise damaged
        return end

    def _checked(self, header: bytes, n_bytes: int, damaged: SnapshotError) -> tuple[int, int]:
        """(First row, number of rows) of a chunk that lies within the next ``n_bytes``."""
        if len(header) == _CHUNK.size:
            mark, first, n_rows = _CHUNK.unpack(header)
            fits = 0 < n_rows <= self._ring.n_rows and _CHUNK.size + n_rows * self._ring.row_bytes <= n_bytes
            if mark == _MARK and first >= 0 and fits:
                return first, n_rows
        raise damaged

    def _fill(self, file: BufferedReader, first: int, end: int, crc: int, damaged: SnapshotError) -> int:
        """Read rows into the ring; give the checksum.

        Rows older than the ring's are read, too: the rows that later took their places come later in the log.
        """
        for piece in self._pieces(first, end):
            if file.readinto(piece) != len(piece):
                raise damaged
            crc = zlib.crc32(piece, crc)
        return crc

    def _pieces(self, first: int, end: int) -> Iterator[memoryview]:
        """The memory of rows, in the order of the file."""
        for array in self._ring.memory(first, end):
            flat = array.reshape(-1).view(np.uint8).data
            for start in range(0, len(flat), _PIECE_BYTES):
                yield flat[start : start + _PIECE_BYTES]


def prune(folder: Path, segment_lists: Iterable[Iterable[Mapping[str, Any]]]) -> None:
    """Delete the segments in ``folder`` that none of the lists names, and no other file.

    Raises:
        SnapshotError: if one cannot be deleted; names it.
    """
    needed = {segment["name"] for segments in segment_lists for segment in segments}
    path = folder
    try:
        for path in list(folder.iterdir()) if folder.is_dir() else []:
            if _NAME.fullmatch(path.name) and path.name not in needed:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise SnapshotError(f"{path}: not deleted: {error.strerror or error}") from error


def _length(path: Path) -> int:
    """Bytes of a file, -1 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _cut_back(lengths: Mapping[Path, int]) -> None:
    """Give back the space of what was half written, as far as that can be done."""
    for path, n_bytes in lengths.items():
        with suppress(OSError):
            if n_bytes:
                os.truncate(path, n_bytes)
            else:
                path.unlink()


def _sync_folder(folder: Path) -> None:
    """Make new names in a folder survive a power cut, where the system can do that."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
