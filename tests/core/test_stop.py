"""StopSignals on its own, with real signals to this process."""

import multiprocessing
import signal
import subprocess
import sys
import threading
import time

import pytest

from rlcli.core.errors import EnvError
from rlcli.core.stop import Stopped, StopRequested, StopSignals, children_begin_blocked, unblock

SIGNALS = [signal.SIGINT, signal.SIGTERM]
ENDS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Stopped}


def send(number=signal.SIGINT):
    signal.raise_signal(number)


def wait_for_the_alarm():
    time.sleep(60)


def do(*actions):
    for action in actions:
        action()


@pytest.fixture(autouse=True)
def handlers_are_put_back():
    before = [signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)]
    yield
    assert before == [signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)]


@pytest.mark.parametrize("number", SIGNALS)
def test_right_after_entering_the_first_signal_ends_at_once(number):
    with pytest.raises(ENDS[number]) as caught, StopSignals():
        send(number)

    assert ENDS[number] is caught.type  # not the StopRequested of the inside


@pytest.mark.parametrize("number", SIGNALS)
def test_a_deferred_signal_is_noted_and_told(number):
    said = []
    with StopSignals() as signals:
        with signals.deferred(said.append):
            send(number)

            assert number == signals.requested
        with pytest.raises(ENDS[number]):
            signals.raise_if_requested()

    assert 1 == len(said)
    assert "stopping after this iteration" in said[0]


@pytest.mark.parametrize("second", SIGNALS)
@pytest.mark.parametrize("first", SIGNALS)
def test_the_second_signal_raises_at_once_and_the_first_says_what(first, second):
    with pytest.raises(ENDS[first]) as caught, StopSignals() as signals, signals.deferred():
        do(lambda: send(first), lambda: send(second))

    assert not isinstance(caught.value, StopRequested)


def test_a_phase_without_grace_is_cut_short_in_the_middle():
    done = []
    with StopSignals() as signals, signals.deferred(), pytest.raises(StopRequested), signals.interruptible(0):
        do(send, lambda: done.append("went on"))

    assert [] == done


def test_a_phase_with_grace_goes_on_for_it_and_is_cut_short_then():
    done = []
    with StopSignals() as signals, signals.deferred(), pytest.raises(StopRequested), signals.interruptible(0.05):
        do(send, lambda: done.append("went on"), wait_for_the_alarm, lambda: done.append("to the end"))

    assert ["went on"] == done


def test_a_phase_that_ends_within_the_grace_is_not_cut_short():
    with StopSignals() as signals, signals.deferred():
        with signals.interruptible(0.05):
            send()
        time.sleep(0.1)  # where the alarm would come

    assert signal.SIGINT == signals.requested


def test_the_alarm_is_the_users_again_after_the_phase():
    before = signal.getsignal(signal.SIGALRM)
    with StopSignals() as signals, signals.deferred():
        with signals.interruptible(60):
            send()

            assert before != signal.getsignal(signal.SIGALRM)
        assert before == signal.getsignal(signal.SIGALRM)


def test_a_signal_between_two_phases_cuts_the_next_one_short():
    with StopSignals() as signals, signals.deferred():
        send()
        with pytest.raises(StopRequested), signals.interruptible(0.05):
            wait_for_the_alarm()


def test_a_phase_is_cut_short_once_and_what_follows_is_left_alone():
    with StopSignals() as signals, signals.deferred():
        send()
        with pytest.raises(StopRequested), signals.interruptible(0):
            pass
        with signals.interruptible(0):
            pass


def test_a_protected_block_keeps_the_second_signal_till_its_end():
    done = []
    with StopSignals() as signals, signals.deferred(), pytest.raises(KeyboardInterrupt), signals.protected():
        do(send, send, lambda: done.append("to the end"))

    assert ["to the end"] == done


def test_a_third_signal_ends_a_protected_block():
    with StopSignals() as signals, signals.deferred():
        send()
        with pytest.raises(KeyboardInterrupt), signals.protected():
            do(send, send, lambda: pytest.fail("went on"))


def test_nothing_is_asked_for_after_a_signal():
    with StopSignals() as signals, signals.deferred():
        send()

        assert None is signals.unless_stopped(5.0, lambda: pytest.fail("asked"))


@pytest.mark.parametrize("number", SIGNALS)
def test_an_error_of_the_sampling_after_a_signal_is_told_and_no_failure(number):
    said = []

    def ask():
        send(number)
        raise EnvError("broken pipe", 3)

    with StopSignals() as signals, signals.deferred(said.append):
        assert None is signals.unless_stopped(5.0, ask)

    assert "after the signal: env 3: broken pipe" == said[1]


def test_an_error_without_a_signal_is_a_failure():
    def ask():
        raise EnvError("broken pipe", 3)

    with StopSignals() as signals, pytest.raises(EnvError):
        signals.unless_stopped(5.0, ask)


def test_a_voice_that_fails_does_not_disturb_the_stop():
    def say(line):
        raise RuntimeError("reentrant call inside a buffered writer")

    with StopSignals() as signals, signals.deferred(say):
        send()

    assert signal.SIGINT == signals.requested


def test_an_exception_that_was_swallowed_is_not_forgotten():
    with StopSignals() as signals:
        with pytest.raises(KeyboardInterrupt):
            send()
        with pytest.raises(KeyboardInterrupt):
            signals.raise_if_requested()


def test_what_a_library_makes_of_the_exception_is_still_a_stop():
    def imports():
        try:
            send(signal.SIGTERM)
        except BaseException as error:
            raise ImportError("half imported") from error

    with pytest.raises(Stopped), StopSignals():
        imports()


def test_an_error_that_does_not_come_of_the_signal_stays_what_it_is():
    def fail():
        raise ValueError("marker-7")

    with pytest.raises(ValueError, match="marker-7"), StopSignals() as signals, signals.deferred():
        do(send, fail)


def test_stopped_ends_a_program_with_3():
    code = "from rlcli.core.stop import Stopped; raise Stopped"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert (3, "") == (done.returncode, done.stderr)


AT_THE_END = """
import atexit, os, signal, sys
from rlcli.core.stop import Stopped, StopSignals, whole_program

class Late:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.{second}):
        kill(pid, number)

sys.late = Late()  # goes when modules do, long after the last line of Python
atexit.register(signal.raise_signal, signal.{second})
with whole_program():
    try:
        with StopSignals() as signals, signals.deferred():
            signal.raise_signal(signal.SIGTERM)
            signals.raise_if_requested()
    except Stopped:
        signal.raise_signal(signal.{second})
        code = 3
raise SystemExit(code)
"""


@pytest.mark.parametrize("second", SIGNALS)
def test_a_signal_while_the_program_winds_up_does_not_change_its_exit_code(second):
    code = AT_THE_END.format(second=second.name)

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert (3, "") == (done.returncode, done.stderr)


def test_the_users_timer_and_its_handler_come_back_and_go_off():
    rang = []
    ours = signal.signal(signal.SIGALRM, lambda number, frame: rang.append("user"))
    timer = signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with StopSignals() as signals, signals.deferred():
            with pytest.raises(StopRequested), signals.interruptible(0.05):
                do(send, wait_for_the_alarm)

            assert [] == rang
        deadline = time.monotonic() + 30
        while not rang and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        signal.signal(signal.SIGALRM, ours)
        signal.setitimer(signal.ITIMER_REAL, *timer)

    assert ["user"] == rang


def test_without_timers_a_grace_has_no_end(monkeypatch):
    monkeypatch.delattr(signal, "setitimer")
    with StopSignals() as signals, signals.deferred(), signals.interruptible(0.01):
        send()
        time.sleep(0.1)

    assert signal.SIGINT == signals.requested


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StopSignals() as signals:
            send()
    finally:
        signal.signal(signal.SIGINT, before)

    assert None is signals.requested


def test_in_another_thread_no_handler_is_touched():
    before, seen = signal.getsignal(signal.SIGTERM), []

    def work():
        with StopSignals() as signals, signals.interruptible(1.0):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert [before] == seen


def _blocked_at_first_and_then(connection):
    first = signal.pthread_sigmask(signal.SIG_BLOCK, set())
    unblock()
    connection.send((set(first), set(signal.pthread_sigmask(signal.SIG_BLOCK, set()))))


def test_children_begin_with_both_signals_blocked_and_the_parent_gets_its_own_later():
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_blocked_at_first_and_then, args=(theirs,))
    with StopSignals() as signals, signals.deferred():
        with children_begin_blocked():
            process.start()
            send()

            assert None is signals.requested
        assert signal.SIGINT == signals.requested
    with ours, theirs:
        first, then = ours.recv()
    process.join()
    process.close()

    assert set(SIGNALS) <= first
    assert set() == then & set(SIGNALS)
