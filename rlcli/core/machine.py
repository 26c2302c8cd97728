"""What this process may use of its machine: processors, memory, open files.

A container or a batch system gives a job less than the machine has, by affinity, by Linux control groups or by resource
limits. These functions count what is left of all of them, and answer on systems that have none of them. Imports no
torch.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil

CGROUP_MEMBERSHIP = Path("/proc/self/cgroup")
"""Which control groups this process is in; a line is ``number:controllers:path``."""
CGROUP_MOUNT = Path("/sys/fs/cgroup")
"""Where they are mounted: version 2 here or in ``unified``, version 1 in a folder for each controller."""
DESCRIPTOR_FOLDERS = (Path("/proc/self/fd"), Path("/dev/fd"))
"""Folders that list the open descriptors of whoever reads them: Linux, macOS."""

_AFFINITY_FAULTS = (AttributeError, OSError, ValueError, RuntimeError, psutil.Error)
"""What psutil raises where a system has or gives no affinity; its NotImplementedError is a RuntimeError."""
_MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),  # version 2
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),  # version 1
)


def usable_cpus() -> list[int]:
    """Numbers of the CPUs that this process may use: its affinity where the system has one, else all."""
    with contextlib.suppress(*_AFFINITY_FAULTS):
        if cpus := psutil.Process().cpu_affinity():
            return list(cpus)
    return list(range(os.cpu_count() or 1))


def cpu_budget() -> int:
    """How many busy processes make sense: the usable CPUs, or the control groups' quota if it is less; at least 1."""
    quotas = [math.ceil(quota) for folder in _cgroups("cpu") if (quota := _cpu_quota(folder)) is not None]
    return max(1, min([len(usable_cpus()), *quotas]))


def can_pin() -> bool:
    """Whether this system lets a process be pinned to CPUs (macOS does not)."""
    try:
        return bool(psutil.Process().cpu_affinity())
    except _AFFINITY_FAULTS:
        return False


def pin(cpu: int) -> bool:
    """Let this process run on one CPU only; threads that run already keep theirs.

    Args:
        cpu: One of `usable_cpus`.

    Returns:
        False where that cannot be done.
    """
    try:
        psutil.Process().cpu_affinity([cpu])
    except _AFFINITY_FAULTS:
        return False
    return True


def available_memory() -> int:
    """Bytes that can still be taken: the machine's, or what the tightest control group leaves if that is less."""
    left = [room for folder in _cgroups("memory") if (room := _memory_left(folder)) is not None]
    return max(0, min([int(psutil.virtual_memory().available), *left]))


def free_space(folder: str | Path) -> int:
    """Bytes that can still be written in ``folder``; if it lies in memory (tmpfs), no more than the free memory.

    Raises:
        OSError: if there is no such folder.
    """
    free = shutil.disk_usage(folder).free
    return min(free, available_memory()) if _file_system(folder) in {"tmpfs", "ramfs"} else free


def open_files() -> tuple[int, int | None]:
    """(Descriptors open now, 0 if they cannot be counted; the soft limit, None if there is none)."""
    limit = soft_limit("RLIMIT_NOFILE")
    for folder in DESCRIPTOR_FOLDERS:
        try:
            return len(os.listdir(folder)) - 1, limit  # noqa: PTH208 - one that iterates holds a descriptor, too
        except OSError as error:
            if error.errno == errno.EMFILE and limit is not None:
                return limit, limit
    return 0, limit


def soft_limit(name: str) -> int | None:
    """A resource limit of this process; None if there is none, or if the system has no such limit.

    Args:
        name: As in the module ``resource``: ``RLIMIT_NOFILE``.
    """
    try:
        import resource
    except ImportError:
        return None  # Windows
    limit = int(resource.getrlimit(getattr(resource, name))[0])
    return None if limit == resource.RLIM_INFINITY else limit


def reserve(descriptor: int, n_bytes: int) -> None:
    """Make an open file ``n_bytes`` long and take the space for it now, where the system can.

    Space that is missed only later, by a write into mapped memory, kills the process by SIGBUS.

    Raises:
        OSError: if there is not so much; the file's length is undefined then.
    """
    limit = soft_limit("RLIMIT_FSIZE")
    if limit is not None and n_bytes > limit:
        # Asked here, since the system's own answer comes with SIGXFSZ, which may end the process.
        raise OSError(errno.EFBIG, f"files may not exceed {limit:,} bytes (ulimit -f)")
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, n_bytes)
    else:
        os.ftruncate(descriptor, n_bytes)


def _cgroups(controller: str) -> Iterator[Path]:
    """Folders of the control groups that bind this process: its own, and those around it."""
    try:
        lines = CGROUP_MEMBERSHIP.read_text().splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            mounts = [CGROUP_MOUNT, CGROUP_MOUNT / "unified"]
        elif controller in controllers.split(","):
            mounts = [CGROUP_MOUNT / name for name in dict.fromkeys((controller, controllers))]
        else:
            continue
        # The path may begin outside what a container sees (its own group is then the mount itself), or with "/..".
        parts = [part for part in path.split("/") if part not in {"", ".."}]
        for mount in mounts:
            for depth in range(len(parts), -1, -1):
                yield mount.joinpath(*parts[:depth])


def _cpu_quota(folder: Path) -> float | None:
    """CPUs that a group may keep busy, None if it sets no limit."""
    quota, _, period = _read(folder / "cpu.max").partition(" ")
    if not quota:
        quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    try:
        cpus = int(quota) / int(period)  # without a limit the quota is "max" or -1
    except (ValueError, ZeroDivisionError):
        return None
    return cpus if cpus > 0 else None


def _memory_left(folder: Path) -> int | None:
    """Bytes that a group leaves, None if it sets no limit."""
    for limit_name, use_name, cache_name in _MEMORY_FILES:
        with contextlib.suppress(ValueError):
            limit, use = int(_read(folder / limit_name)), int(_read(folder / use_name))
            # The use counts cached file contents, too, which the system drops when memory is asked for.
            return limit - max(0, use - _statistic(folder / "memory.stat", cache_name))
    return None


def _statistic(file: Path, name: str) -> int:
    rows = (line.split() for line in _read(file).splitlines())
    return next((int(row[1]) for row in rows if len(row) == 2 and row[0] == name), 0)


def _read(file: Path) -> str:
    """The text of a file, empty if it cannot be read."""
    try:
        return file.read_text().strip()
    except (OSError, ValueError):
        return ""


def _file_system(folder: str | Path) -> str:
    """Name of the file system's kind, empty if it is not known."""
    where = Path(folder).resolve()
    try:
        mounts = psutil.disk_partitions(all=True)
    except (OSError, psutil.Error):
        return ""
    inside = [m for m in mounts if where.is_relative_to(m.mountpoint)]
    # The innermost mount counts; of two on one folder, the later, which hides the earlier.
    return max(enumerate(inside), key=lambda m: (len(m[1].mountpoint), m[0]))[1].fstype if inside else ""
