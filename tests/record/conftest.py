import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rlcli

ROOT = Path(rlcli.__file__).parent.parent


@pytest.fixture
def start_python(tmp_path):
    """Starts `python -c code args` in the test's folder; what still runs at the end is killed."""
    running = []

    def start(code, *args):
        # buffered as a user's Python is, else a lost pipe would not show at exit
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"} | {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, args)],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def wait_for():
    """Waits for a condition that must come true, and fails after a minute."""

    def wait(condition):
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.005)

    return wait
