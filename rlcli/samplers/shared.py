"""Trees of numpy arrays on one nameless piece of memory that several processes see. Imports no torch."""

from __future__ import annotations

import ctypes
import fcntl
import math
import mmap
import os
import tempfile
import time
import weakref
from collections.abc import Callable
from multiprocessing import context
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcli.core import machine
from rlcli.core.errors import RlcliError
from rlcli.core.tree import Tree, leaves, map_tree

_ALIGNMENT = 64
"""Bytes of a cache line: two leaves never share one, and any dtype may begin there."""
USABLE = 0.95
"""Part of the free room that a batch may take; the rest is for everything else that runs."""
_LOCK_LOOK_S = 1e-4
_SPARE_FILES = 16
"""Descriptors beyond the counted ones: snapshots, logs, modules that are imported late."""


class SharedTree:
    """A tree of zeros in memory that processes share, which ends with the last of them, however they end.

    It has no name that could outlive them or be met by another run. To give it to a process, pass it in the
    arguments with which the process is started (spawn, forkserver) or have it before the process is forked.

    Args:
        example: Tree whose leaves (numpy arrays, torch tensors, anything with ``shape`` and ``dtype``) fix shapes and
            dtypes; their contents are not copied.
        say: Takes the line for the user that tells of a slow kind of memory.

    Raises:
        RlcliError: if the memory cannot be had.
        TypeError: if a leaf's dtype holds references to Python objects.
    """

    n_bytes: int
    """Size of the memory."""

    def __init__(self, example: Tree, *, say: Callable[[str], None] = print) -> None:
        self._layout, self.n_bytes = _lay_out(example)
        self._open(_take(self.n_bytes, say))

    @property
    def tree(self) -> Tree:
        """The example's tree with numpy arrays on the shared memory.

        Raises:
            ValueError: after `close`.
        """
        if not self._close_descriptor.alive:
            raise ValueError("the shared memory is closed")
        return self._tree

    @property
    def descriptor(self) -> int:
        """Of the file that is the memory."""
        return self._descriptor

    def close(self) -> None:
        """Let go of the memory; safe to call twice. Arrays on it that others hold stay valid, until they go."""
        self._close_descriptor()
        self._tree = None

    def _open(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._close_descriptor = weakref.finalize(self, os.close, descriptor)
        try:
            memory = _map(descriptor, self.n_bytes)
        except OSError as error:
            self._close_descriptor()
            raise RlcliError(f"sampler: {self.n_bytes:,} bytes cannot be mapped: {error.strerror}") from error
        self._tree = map_tree(lambda leaf: np.ndarray(leaf.shape, leaf.dtype, memory, leaf.offset), self._layout)

    def __getstate__(self) -> tuple[Any, Tree, int]:
        # At any other time the descriptor would go through a server thread, and a copy of it would stay open.
        context.assert_spawning(self)
        if not self._close_descriptor.alive:
            raise ValueError("the shared memory is closed")
        return DupFd(self._descriptor), self._layout, self.n_bytes

    def __setstate__(self, state: tuple[Any, Tree, int]) -> None:
        handle, self._layout, self.n_bytes = state
        descriptor = handle.detach()
        os.set_inheritable(descriptor, False)  # programs that an environment starts are no part of this
        self._open(descriptor)


class ProcessLock:
    """Excludes other processes. It has no name, unlike multiprocessing's, and is free again when its holder dies.

    Goes to a process as a `SharedTree` does. Threads of one process do not exclude each other.
    """

    def __init__(self) -> None:
        self._memory = SharedTree(np.empty(1, np.uint8))

    def acquire(self, timeout: float) -> bool:
        """Wait for the lock for ``timeout`` seconds at most; gives whether it is held now."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.lockf(self._memory.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                if time.monotonic() > deadline:
                    return False
                time.sleep(_LOCK_LOOK_S)
            else:
                return True

    def release(self) -> None:
        """Let others have it."""
        fcntl.lockf(self._memory.descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the memory; safe to call twice."""
        self._memory.close()


def need_open_files(n: int, what: str) -> None:
    """Check that ``n`` more files can be opened.

    Args:
        n: Descriptors that will be needed at once, besides those open now.
        what: Who needs them, beginning with the key to change: ``sampler.n_workers: 40 workers``.

    Raises:
        RlcliError: if the limit is too low.
    """
    used, limit = machine.open_files()
    total = used + n + _SPARE_FILES
    if limit is not None and total > limit:
        raise RlcliError(
            f"{what} need {n} open files, the limit is {limit} (ulimit -n {limit}), {used} are in use; "
            f"raise it (ulimit -n {1 << (total - 1).bit_length()}) or ask for less"
        )


class _Leaf(NamedTuple):
    """Where an array lies in the memory."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    """Bytes from the beginning."""


def _lay_out(example: Tree) -> tuple[Tree, int]:
    """The tree of `_Leaf`, and the bytes needed, never 0: there is no empty memory."""
    offset = 0
    for path, leaf in leaves(example):
        if _dtype(leaf).hasobject:
            raise TypeError(f"{path or 'leaf'}: processes cannot share an array of Python objects ({leaf.dtype})")

    def place(leaf: Any) -> _Leaf:
        nonlocal offset
        placed = _Leaf(tuple(leaf.shape), _dtype(leaf), offset)
        offset += -(-math.prod(placed.shape) * placed.dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
        return placed

    layout = map_tree(place, example)
    return layout, max(offset, _ALIGNMENT)


def _dtype(leaf: Any) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(leaf.dtype)
    except TypeError:
        dtype = np.dtype(str(leaf.dtype).removeprefix("torch."))  # by its name, so that torch need not be loaded
    return dtype


class _NoRoom(Exception):  # noqa: N818 - says what there is; the caller goes on to the next kind
    """A kind of memory has no room; the message says how much it has."""


def _take(n_bytes: int, say: Callable[[str], None]) -> int:
    """A descriptor of ``n_bytes`` zeros, of the first kind of memory that has room."""
    refusals: list[str] = []
    for kind in _KINDS:
        try:
            descriptor = kind(n_bytes)
        except _NoRoom as refusal:
            refusals.append(str(refusal))
            continue
        if refusals:
            say(
                f"sampler: the shared memory needs {n_bytes:,} bytes, {'; '.join(refusals)}: it is a nameless file in "
                f"{tempfile.gettempdir()} instead, which makes sampling slower"
            )
        return descriptor
    raise RlcliError(
        f"sampler: the shared memory needs {n_bytes:,} bytes, {'; '.join(refusals)}. "
        "Make sampler.batch_B or sampler.batch_T smaller, or set TMPDIR to a folder on a larger disk"
    )


def _in_memory(n_bytes: int) -> int:
    """Memory without a file system, hence without the bound of /dev/shm, which containers set to 64 MB."""
    return _fill("memory", machine.available_memory(), lambda: os.memfd_create("rlcli"), n_bytes)


def _in_file(n_bytes: int) -> int:
    """A file in the folder for temporary files, whose name is gone before it is used."""
    try:
        folder = tempfile.gettempdir()
        free = machine.free_space(folder)
    except OSError as error:
        raise _NoRoom(f"there is no folder for temporary files ({error.strerror})") from error
    return _fill(folder, free, lambda: _nameless_file(folder), n_bytes)


def _nameless_file(folder: str) -> int:
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        return os.dup(file.fileno())


_KINDS = (_in_memory, _in_file) if hasattr(os, "memfd_create") else (_in_file,)
"""Kinds of memory, fastest first. Each takes the bytes needed and gives a descriptor, or raises _NoRoom."""


def _fill(where: str, free: int, make: Callable[[], int], n_bytes: int) -> int:
    if n_bytes > free * USABLE:
        raise _NoRoom(f"{free:,} are free in {where}")
    try:
        descriptor = make()
        try:
            machine.reserve(descriptor, n_bytes)
        except OSError:
            os.close(descriptor)
            raise
    except OSError as error:
        raise _NoRoom(f"{free:,} are free in {where} but cannot be had ({error.strerror})") from error
    return descriptor


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_MAP_FAILED = ctypes.c_void_p(-1).value


class _Mapping:
    """A file's bytes at an address, unmapped when the last array on them has gone.

    Not `mmap.mmap`, which keeps a second descriptor of the file open: with many workers descriptors are scarce.
    """

    def __init__(self, descriptor: int, n_bytes: int) -> None:
        address = _LIBC.mmap(None, n_bytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
        if address == _MAP_FAILED:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (n_bytes,), "data": (address, False)}
        # Not at exit: arrays may be in use until the very end, and the system unmaps all.
        weakref.finalize(self, _LIBC.munmap, address, n_bytes).atexit = False


def _map(descriptor: int, n_bytes: int) -> npt.NDArray[np.uint8]:
    """[n_bytes] array on the file's own bytes; arrays made from it keep the mapping alive.

    Raises:
        OSError: if the system refuses.
    """
    return np.asarray(_Mapping(descriptor, n_bytes))
