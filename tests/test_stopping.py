"""Signals to whole runs, and runs that fail: what is saved, what is said, what is left, which exit code."""

import csv
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import rlcli
from rlcli import runner
from rlcli.algos.a2c import A2C
from rlcli.cli.main import main
from rlcli.record import snapshot as snapshot_module
from rlcli.record.snapshot import read_snapshot
from rlcli.samplers.serial import SerialSampler
from tests.stopping_probes import ID, MARK, MomentEnv

ROOT = Path(rlcli.__file__).parents[1]
PROBE, TRAINING, EVALUATION = 0, 3, 4  # 1 and 2 are those of the trial
"""Which environment of the process is which, in a run with one environment in this process."""

# 5 steps an iteration, a row every 10
SMALL = ["algo=a2c", "env=gym", f"env.id={ID}", "sampler.batch_T=5", "sampler.batch_B=1"]
SMALL += ["sampler.max_decorrelation_steps=0", "log_interval_steps=10", "logger.ui=plain", "model.mlp_hidden=[8]"]
EVALUATING = ["eval.interval_steps=1000", "eval.n_envs=1", "eval.n_episodes=1", "eval.max_steps=5"]


def moment(what: str, instance: int = TRAINING, at: int = 27, in_worker: bool = False) -> str:
    return f"env.kwargs={{what:'{what}',instance:{instance},at:{at},in_worker:{str(in_worker).lower()}}}"


def rows(folder: Path) -> list[tuple[int, int]]:
    """Iteration and steps of each row."""
    with (folder / "progress.csv").open(newline="") as file:
        return [(int(row["Iteration"]), int(row["CumSteps"])) for row in csv.DictReader(file)]


def saved(folder: Path) -> tuple[int, int]:
    content = read_snapshot(folder / "params.pkl")
    return content["itr"], content["cum_steps"]


def log(folder: Path) -> str:
    return (folder / "debug.log").read_text()


# in this process, signals at exact moments


@pytest.fixture
def handlers():
    """Every test leaves the handlers as they were."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    assert before == [signal.getsignal(number) for number in numbers]


@pytest.fixture
def folder(tmp_path, monkeypatch, handlers):
    monkeypatch.setattr(MomentEnv, "n_instances", 0)
    monkeypatch.setattr(runner, "COLLECT_GRACE_S", 0.3)
    monkeypatch.setenv(MARK, str(tmp_path / "mark"))
    return tmp_path / "run"


def stopped(folder: Path, *words: str, by: type[BaseException] = KeyboardInterrupt) -> BaseException:
    """Train until that exception comes."""
    with pytest.raises(by) as caught:
        rlcli.train([*SMALL, f"run_dir={folder}", *words])
    return caught.value


@pytest.mark.parametrize(("what", "by"), [("int", KeyboardInterrupt), ("term", rlcli.Stopped)])
def test_after_the_first_signal_the_iteration_ends_with_a_row_and_a_snapshot(folder, what, by):
    stop = stopped(folder, moment(what, at=22), by=by)

    assert [(2, 10), (4, 20), (5, 25)] == rows(folder)
    assert (5, 25) == saved(folder)
    assert folder == stop.run_dir
    assert by is type(stop)


def test_the_log_says_where_the_run_stopped_and_how_to_go_on(folder):
    stopped(folder, moment("term", at=22), by=rlcli.Stopped)

    said = log(folder)
    assert "SIGTERM: stopping after this iteration" in said
    assert "stopped by SIGTERM after iteration 5, step 25\n" in said
    assert f"go on from step 25: rlcli resume {folder}\n" in said
    assert said.endswith(f"run folder: {folder}\n")


def test_a_batch_that_takes_longer_than_the_grace_is_given_up(folder):
    stopped(folder, moment("term,sleep"), by=rlcli.Stopped)

    assert [(2, 10), (4, 20), (5, 25)] == rows(folder)
    assert (5, 25) == saved(folder)


def test_a_second_signal_ends_at_once_and_what_was_saved_stays(folder):
    stopped(folder, moment("int,int,sleep"))

    assert [(2, 10), (4, 20)] == rows(folder)
    assert (4, 20) == saved(folder)
    assert "interrupted in iteration 6, sampling, step 25\n" in log(folder)


def test_an_evaluation_is_given_up_at_once(folder, monkeypatch):
    monkeypatch.setattr(runner, "COLLECT_GRACE_S", 30.0)

    stopped(folder, *EVALUATING, moment("int,sleep", EVALUATION, at=3))

    assert [(0, 0)] == rows(folder)
    assert (0, 0) == saved(folder)


def test_an_update_is_finished(folder, monkeypatch):
    update, finished = A2C.update, []

    def interrupted_update(self, samples, *, step):
        if step == 15:
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.5)  # longer than the grace of a batch
        metrics = update(self, samples, step=step)
        finished.append(step)
        return metrics

    monkeypatch.setattr(A2C, "update", interrupted_update)

    stopped(folder)

    assert [5, 10, 15] == finished
    assert [(2, 10), (3, 15)] == rows(folder)
    assert (3, 15) == saved(folder)


def test_a_row_that_is_there_is_not_written_twice(folder, monkeypatch):
    save = runner.Runner._record_row

    def interrupted_save(self, final):
        save(self, final)
        if self.itr == 4:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(runner.Runner, "_record_row", interrupted_save)

    stopped(folder, "snapshot_mode=gap")

    assert [(2, 10), (4, 20)] == rows(folder)
    assert ["itr_4.pkl"] == [path.name for path in folder.glob("*.pkl")]


def test_a_second_signal_does_not_cut_the_final_snapshot(folder, monkeypatch):
    write = snapshot_module.write_snapshot

    def interrupted_write(path, state):
        if state["itr"] == 5:
            signal.raise_signal(signal.SIGTERM)
        write(path, state)

    monkeypatch.setattr(snapshot_module, "write_snapshot", interrupted_write)

    stopped(folder, moment("term", at=22), by=rlcli.Stopped)

    assert (5, 25) == saved(folder)


@pytest.mark.parametrize(("n_signals", "n_finished", "n_called"), [(1, 1, 1), (2, 1, 2)])
def test_closing_is_finished_whatever_comes(folder, monkeypatch, n_signals, n_finished, n_called):
    close, calls, finished = SerialSampler.close, [], []

    def interrupted_close(self):
        calls.append(1)
        if len(calls) == 1:
            for _ in range(n_signals):
                signal.raise_signal(signal.SIGINT)
        close(self)
        finished.append(1)

    monkeypatch.setattr(SerialSampler, "close", interrupted_close)

    stopped(folder, "n_steps=10")

    assert (n_called, n_finished) == (len(calls), len(finished))
    assert (2, 10) == saved(folder)


def test_an_environment_that_dies_of_the_signal_does_not_cost_the_snapshot(folder):
    stopped(folder, moment("int,raise"))

    assert (5, 25) == saved(folder)
    assert "after the signal: env 0, step 27: " in log(folder)


def test_snapshot_mode_none_has_no_final_snapshot(folder):
    stopped(folder, moment("int", at=22), "snapshot_mode=none")

    assert (5, 25) == rows(folder)[-1]
    assert [] == list(folder.glob("*.pkl"))
    assert "no snapshot had been saved\n" in log(folder)


@pytest.mark.parametrize("what", ["int", "swallow", "convert"])
def test_a_signal_at_the_probe_leaves_nothing_on_disk(folder, what):
    assert None is stopped(folder, moment(what, PROBE, at=0)).run_dir

    assert not folder.exists()


def test_sigterm_while_the_sampler_is_built_saves_iteration_0(folder):
    stop = stopped(folder, moment("term,sleep", at=0), by=rlcli.Stopped)

    assert (0, 0) == saved(folder)
    assert folder == stop.run_dir


def test_sigint_while_the_sampler_is_built_saves_nothing(folder):
    stopped(folder, moment("int,sleep", at=0))

    assert [] == list(folder.glob("*.pkl"))


def test_a_run_in_another_thread_touches_no_handler(folder):
    seen = []

    def work():
        seen.append(rlcli.train([*SMALL, f"run_dir={folder}", "n_steps=10"]))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert [folder] == seen


def test_a_run_that_fails_says_in_which_iteration_and_at_which_step(folder, capsys):
    assert 1 == main(["train", *SMALL, f"run_dir={folder}", moment("raise")])

    assert "the run ended early in iteration 6, sampling, step 25: EnvError: env 0, step 27: " in log(folder)
    assert f"go on from step 25: rlcli resume {folder}\n" in log(folder)
    assert "\nin iteration 6, sampling, step 25\n" in capsys.readouterr().err
    assert (4, 20) == saved(folder)


# processes of their own


class Program:
    """A process in a session of its own, and what it leaves."""

    def __init__(self, folder: Path, words: list[str]) -> None:
        self.folder = folder
        self.mark = folder / "mark"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), MARK: str(self.mark)}
        self.process = subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env=environment,
            start_new_session=True,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._ids: set[int] = set()

    def wait_for(self, ready) -> None:
        deadline = time.monotonic() + 120
        while not ready():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        self._ids |= {child.pid for child in psutil.Process(self.process.pid).children(recursive=True)}

    def wait_for_mark(self) -> None:
        self.wait_for(self.mark.exists)

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def send_to_group(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def end(self) -> tuple[int, str, str]:
        """Exit code and output, when it and all its children are gone."""
        out, err = self.process.communicate(timeout=120)
        deadline = time.monotonic() + 15
        while left := [pid for pid in self._ids if psutil.pid_exists(pid)]:
            assert time.monotonic() < deadline, left
            time.sleep(0.05)
        return self.process.returncode, out, err

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()


@pytest.fixture
def start(tmp_path) -> Iterator:
    programs = []

    def start(*words: str) -> Program:
        programs.append(Program(tmp_path, list(words)))
        return programs[-1]

    yield start
    for program in programs:
        program.kill()


@pytest.fixture
def train(start):
    return lambda *words: start("-m", "rlcli", "train", *SMALL, "run_dir=run", *words)


CPU = ["sampler=cpu", "sampler.n_workers=1"]
INT, TERM = signal.SIGINT, signal.SIGTERM
TOLD = {INT: "rlcli train: interrupted\n", TERM: "rlcli train: stopped by SIGTERM\n"}
CODES = {INT: 130, TERM: 3}


@pytest.mark.parametrize("number", [INT, TERM])
def test_a_signal_at_start_up_ends_with_one_line(train, number):
    program = train(moment("sleep", PROBE, at=0))
    program.wait_for_mark()
    program.send(number)

    assert (CODES[number], "", TOLD[number]) == program.end()
    assert not program.run_dir.exists()


@pytest.mark.parametrize(("number", "files"), [(INT, []), (TERM, ["params.pkl"])])
def test_a_signal_while_workers_start_ends_them_too(train, number, files):
    program = train(*CPU, moment("sleep", 0, at=0, in_worker=True))
    program.wait_for_mark()
    program.send_to_group(number)

    code, _, err = program.end()
    assert (CODES[number], TOLD[number]) == (code, err)
    assert files == [path.name for path in program.run_dir.glob("*.pkl")]


def test_sigterm_while_workers_sample_gives_up_the_batch_and_saves(train):
    program = train(*CPU, moment("sleep", 0, in_worker=True))
    program.wait_for_mark()
    program.send(TERM)

    code, _, err = program.end()
    assert (CODES[TERM], TOLD[TERM]) == (code, err)
    assert [(2, 10), (4, 20), (5, 25)] == rows(program.run_dir)
    assert (5, 25) == saved(program.run_dir)


def test_ctrl_c_twice_while_a_worker_hangs_ends_at_once(train):
    program = train(*CPU, moment("sleep", 0, in_worker=True))
    program.wait_for_mark()
    program.send_to_group(INT)
    program.wait_for(lambda: "Ctrl-C again: at once" in log(program.run_dir))
    program.send_to_group(INT)

    code, _, err = program.end()
    assert (CODES[INT], TOLD[INT]) == (code, err)
    assert [(2, 10), (4, 20)] == rows(program.run_dir)
    assert (4, 20) == saved(program.run_dir)


def test_ctrl_c_while_workers_evaluate_gives_up_the_evaluation(train):
    program = train(*CPU, *EVALUATING, moment("sleep", 1, at=3, in_worker=True))
    program.wait_for_mark()
    program.send_to_group(INT)

    code, _, err = program.end()
    assert (CODES[INT], TOLD[INT]) == (code, err)
    assert [(0, 0)] == rows(program.run_dir)
    assert (0, 0) == saved(program.run_dir)


def test_a_signal_stops_the_job_and_then_the_sweep(train):
    program = train("-m", "seed=1,2", moment("doze", at=-1))
    job = program.run_dir / "0"
    program.wait_for(lambda: (job / "progress.csv").exists() and rows(job))
    program.send(TERM)

    code, out, err = program.end()
    assert (CODES[TERM], TOLD[TERM]) == (code, err)
    assert rows(job)[-1] == saved(job)
    assert "interrupted" in out
    assert "2 jobs, 0 ok" in out
    assert not (program.run_dir / "1").exists()


SCRIPT = """
import signal, sys
import rlcli
if __name__ == "__main__":
    try:
        rlcli.train(sys.argv[1:])
    except KeyboardInterrupt as stop:
        print("RUN", stop.run_dir)
        sys.exit(77)
"""


def test_a_program_of_the_user_gets_the_exception_after_the_clean_end(start, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    program = start("script.py", *SMALL, "run_dir=run", moment("doze", at=-1))
    program.wait_for(lambda: (program.run_dir / "progress.csv").exists() and rows(program.run_dir))
    program.send(INT)

    code, out, err = program.end()
    assert (77, "") == (code, err)
    assert rows(program.run_dir)[-1] == saved(program.run_dir)
    assert f"RUN {program.run_dir}" in out
