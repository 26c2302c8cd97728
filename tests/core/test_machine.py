"""What this process may use: affinity, control groups, resource limits, and systems that have none of them."""

import os
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from rlcli.core import machine

GB = 10**9


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    """Gives a function that fakes this process's membership and the groups' files."""

    def fake(membership, files):
        (tmp_path / "membership").write_text(membership)
        for place, text in files.items():
            file = tmp_path / "mount" / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    monkeypatch.setattr(machine, "CGROUP_MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(machine, "CGROUP_MOUNT", tmp_path / "mount")
    return fake


@pytest.fixture
def machine_of_8_cpus(monkeypatch):
    monkeypatch.setattr(machine, "usable_cpus", lambda: list(range(8)))


@pytest.fixture
def machine_of_9_gb(monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=9 * GB))


def break_affinity(monkeypatch, error):
    def raises(*_):
        raise error

    monkeypatch.setattr(psutil.Process, "cpu_affinity", raises, raising=False)


AFFINITY_FAULTS = [
    AttributeError("cpu_affinity"),
    OSError(38, "Function not implemented"),
    psutil.AccessDenied(1),
    psutil.NoSuchProcess(1),
    NotImplementedError("cpu_affinity"),
    RuntimeError("none"),
]


def test_usable_cpus_are_the_affinity(monkeypatch):
    monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda self: [1, 5], raising=False)

    assert [1, 5] == machine.usable_cpus()


@pytest.mark.parametrize("error", AFFINITY_FAULTS, ids=lambda e: type(e).__name__)
def test_without_affinity_all_cpus_are_usable_and_pinning_says_no(monkeypatch, error):
    break_affinity(monkeypatch, error)
    monkeypatch.setattr("os.cpu_count", lambda: 3)

    assert [0, 1, 2] == machine.usable_cpus()
    assert machine.can_pin() is False
    assert machine.pin(0) is False


def test_system_that_lacks_the_affinity_call_has_all_cpus(monkeypatch):
    monkeypatch.delattr(psutil.Process, "cpu_affinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: None)

    assert [0] == machine.usable_cpus()
    assert machine.can_pin() is False
    assert machine.pin(0) is False


@pytest.mark.skipif(not machine.can_pin(), reason="this system has no affinity")
def test_pinned_process_may_use_that_cpu_only():
    cpu = machine.usable_cpus()[-1]
    code = "import sys; from rlcli.core.machine import *; print(pin(int(sys.argv[1])), usable_cpus(), cpu_budget())"

    assert f"True [{cpu}] 1" == run_python(code, str(cpu))


@pytest.mark.skipif(not machine.can_pin(), reason="this system has no affinity")
@pytest.mark.parametrize("cpu", [-1, 100_000])
def test_cpu_that_does_not_exist_cannot_be_pinned_to(cpu):
    before = machine.usable_cpus()

    assert machine.pin(cpu) is False
    assert before == machine.usable_cpus()


@pytest.mark.parametrize(
    ("expected", "membership", "files"),
    [
        (8, "", {}),
        (8, "nonsense\n\n", {"cpu.max": "150000 100000"}),
        (8, "0::/job\n", {"job/cpu.max": "max 100000"}),
        (8, "0::/job\n", {"job/cpu.max": "nonsense"}),
        (8, "0::/job\n", {"job/cpu.max": "900000 100000"}),
        (2, "0::/job\n", {"job/cpu.max": "150000 100000"}),
        (1, "0::/job\n", {"job/cpu.max": "1000 100000"}),
        (3, "0::/outer/job\n", {"outer/job/cpu.max": "500000 100000", "outer/cpu.max": "300000 100000"}),
        (4, "0::/unseen/here\n", {"cpu.max": "400000 100000"}),
        (4, "0::/../..\n", {"cpu.max": "400000 100000", "../cpu.max": "100000 100000"}),
        (2, "0::/job\n", {"unified/job/cpu.max": "200000 100000"}),
        (8, "3:cpu:/job\n", {"cpu/job/cpu.cfs_quota_us": "-1", "cpu/job/cpu.cfs_period_us": "100000"}),
        (2, "3:cpu:/job\n", {"cpu/job/cpu.cfs_quota_us": "200000", "cpu/job/cpu.cfs_period_us": "100000"}),
        (2, "3:cpu,cpuacct:/x\n", {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}),
        (2, "3:cpu,cpuacct:/\n", {"cpu,cpuacct/cpu.cfs_quota_us": "9", "cpu,cpuacct/cpu.cfs_period_us": "5"}),
        (8, "3:cpuset:/\n", {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}),
    ],
)
def test_cpu_budget_is_the_tightest_quota_rounded_up(cgroups, machine_of_8_cpus, expected, membership, files):
    cgroups(membership, files)

    assert expected == machine.cpu_budget()


def test_without_control_groups_the_budget_is_the_usable_cpus(machine_of_8_cpus, monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "CGROUP_MEMBERSHIP", tmp_path / "none")

    assert 8 == machine.cpu_budget()


NO_LIMIT_V1 = str(2**63 - 4096)


@pytest.mark.parametrize(
    ("expected", "membership", "files"),
    [
        (9 * GB, "", {}),
        (9 * GB, "0::/job\n", {"job/memory.max": "max", "job/memory.current": str(GB)}),
        (9 * GB, "0::/job\n", {"job/memory.max": str(GB)}),
        (3 * GB, "0::/job\n", {"job/memory.max": str(4 * GB), "job/memory.current": str(GB)}),
        (0, "0::/job\n", {"job/memory.max": str(GB), "job/memory.current": str(2 * GB)}),
        (2 * GB, "0::/a/b\n", {"a/memory.max": str(3 * GB), "a/memory.current": str(GB), "a/b/memory.max": "max"}),
        (9 * GB, "4:memory:/job\n", {"memory/job/memory.limit_in_bytes": NO_LIMIT_V1}),
        (
            2 * GB,
            "4:memory:/job\n0::/\n",
            {
                "memory/job/memory.limit_in_bytes": str(3 * GB),
                "memory/job/memory.usage_in_bytes": str(GB),
            },
        ),
    ],
)
def test_available_memory_is_what_the_tightest_group_leaves(cgroups, machine_of_9_gb, expected, membership, files):
    cgroups(membership, files)

    assert expected == machine.available_memory()


def test_cached_files_of_a_group_count_as_free(cgroups, machine_of_9_gb):
    files = {
        "job/memory.max": "5000",
        "job/memory.current": "4000",
        "job/memory.stat": "anon 900\ninactive_file 3000",
    }
    cgroups("0::/job\n", files)

    assert 4000 == machine.available_memory()


def test_folder_in_memory_has_no_more_room_than_the_memory(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "available_memory", lambda: 1000)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=5000))
    disk, ram = ("/", "ext4"), (str(tmp_path), "tmpfs")

    assert 5000 == room_with_mounts(monkeypatch, tmp_path, [disk])
    assert 1000 == room_with_mounts(monkeypatch, tmp_path, [ram, disk])
    assert 1000 == room_with_mounts(monkeypatch, tmp_path / "inside", [ram, disk])
    assert 5000 == room_with_mounts(monkeypatch, tmp_path, [disk, ram, (str(tmp_path), "ext4")])


def room_with_mounts(monkeypatch, folder, mounts):
    rows = [SimpleNamespace(mountpoint=where, fstype=kind) for where, kind in mounts]
    monkeypatch.setattr("psutil.disk_partitions", lambda all: rows)
    return machine.free_space(folder)


@pytest.mark.skipif(not machine.open_files()[0], reason="this system does not list descriptors")
def test_open_files_are_the_descriptors_that_answer():
    code = """
import os
from rlcli.core.machine import open_files
def answers(descriptor):
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
[os.dup(0) for _ in range(5)]
print(open_files()[0] - sum(map(answers, range(200))))
"""
    assert "0" == run_python(code)


@pytest.mark.skipif(not machine.open_files()[0], reason="this system does not list descriptors")
def test_limit_is_the_soft_one_and_the_count_survives_reaching_it():
    code = """
import os, resource
from rlcli.core.machine import open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try:
    while True:
        os.dup(0)
except OSError:
    print(*open_files())
"""
    assert "64 64" == run_python(code)


def test_system_without_descriptor_folders_counts_none(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "DESCRIPTOR_FOLDERS", (tmp_path / "none",))

    assert 0 == machine.open_files()[0]


def test_reserved_space_is_taken_at_once(tmp_path):
    with (tmp_path / "file").open("wb") as file:
        machine.reserve(file.fileno(), 10**6)
        facts = os.fstat(file.fileno())

    assert 10**6 == facts.st_size
    assert facts.st_blocks * 512 >= 10**6


def test_importing_it_loads_no_torch():
    assert "False" == run_python("import rlcli.core.machine, sys; print('torch' in sys.modules)")


def run_python(code, *args):
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=60)
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout.strip()
