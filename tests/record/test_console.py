import io
import math
import sys

import pytest

from rlcli.core.options import range_problems
from rlcli.record.config import CsvLoggerConfig
from rlcli.record.console import Console
from rlcli.record.display import duration, number, percent_done

NAN = math.nan
ROW = {
    "Iteration": 250,
    "CumTime (s)": 20.0,
    "CumSteps": 20_000,
    "CumUpdates": 5_000,
    "StepsPerSecond": 1234.4,
    "ReturnAverage": 12.3456,
    "GameScoreAverage": NAN,
    "EvalReturnAverage": 21.0,
    "lossAverage": 0.0123456,
    "epsilon": 0.1,
}


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Gone(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def log(tmp_path):
    return tmp_path / "debug.log"


@pytest.fixture(autouse=True)
def _terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")


def progress(console, step, **changes):
    console.progress(**{"step": step, "n_steps": 100_000, "itr": 7, "n_updates": 70} | changes)


@pytest.mark.parametrize(
    ("stream", "term", "ui"),
    [(Terminal(), "xterm", "live"), (Terminal(), "dumb", "plain"), (io.StringIO(), "xterm", "plain")],
)
def test_auto_is_live_on_a_terminal_and_plain_elsewhere(monkeypatch, stream, term, ui):
    monkeypatch.setenv("TERM", term)
    with Console(None, "auto", stream) as console:
        assert console.ui == ui


def test_unknown_ui_is_refused():
    with pytest.raises(ValueError, match="'lively' must be one of auto, live, plain, quiet"):
        Console(None, "lively")


@pytest.mark.parametrize("ui", ["plain", "quiet", "live"])
def test_message_is_printed_and_logged_in_every_mode(log, ui):
    stream = io.StringIO()
    with Console(log, ui, stream) as console:
        console.say("run folder /x/[bold]y[/bold]")

    assert "run folder /x/[bold]y[/bold]\n" in stream.getvalue()
    assert log.read_text() == "run folder /x/[bold]y[/bold]\n"


def test_log_holds_no_escape_codes(log):
    with Console(log, "plain", io.StringIO()) as console:
        console.say("\x1b[1;31mred\x1b[0m and \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\")

    assert log.read_text() == "red and link\n"


def test_log_is_appended_to(log):
    for word in ("one", "two"):
        with Console(log, "quiet", io.StringIO()) as console:
            console.say(word)

    assert log.read_text() == "one\ntwo\n"


def test_row_is_one_compact_line_in_plain_mode(log):
    stream = io.StringIO()
    with Console(log, "plain", stream) as console:
        console.row(ROW, 100_000)
    # 20,000 steps took 20 s, so the other 80,000 take 80 s
    line = "step 20,000/100,000  20%  return 12.35  score -  eval 21  loss 0.01235  1,234 steps/s  ETA 1:20\n"

    assert stream.getvalue() == line
    assert log.read_text() == line


def test_eta_follows_the_last_interval():
    stream = io.StringIO()
    with Console(None, "plain", stream) as console:
        console.row(ROW, 100_000)
        console.row(ROW | {"CumSteps": 21_000, "CumTime (s)": 30.0}, 100_000)

    assert stream.getvalue().endswith("ETA 13:10\n")  # 79,000 steps at 100 a second


def test_row_without_an_evaluation_column_says_nothing_of_evaluation():
    stream = io.StringIO()
    with Console(None, "plain", stream) as console:
        console.row({name: value for name, value in ROW.items() if "Eval" not in name}, 100_000)

    assert "eval" not in stream.getvalue()


def test_quiet_prints_messages_only_but_logs_the_rows(log):
    stream = io.StringIO()
    with Console(log, "quiet", stream) as console:
        console.row(ROW, 100_000)
        progress(console, 20_000)
        console.say("done")

    assert stream.getvalue() == "done\n"
    assert log.read_text().startswith("step 20,000/100,000  20%")


def test_plain_mode_draws_no_panel():
    stream = io.StringIO()
    with Console(None, "plain", stream) as console:
        progress(console, 20_000)

    assert stream.getvalue() == ""


def test_panel_shows_how_far_how_fast_and_the_last_numbers():
    clock, stream = Clock(), Terminal()
    with Console(None, "live", stream, clock=clock) as console:
        console.row(ROW, 100_000)
        clock.now = 10.0
        progress(console, 30_000, sampling_s=4.0, learning_s=5.0)
    shown = plain(stream)

    # 10,000 steps in 10 s, so the other 70,000 take 70 s
    for part in ("30%", "30,000/100,000 steps", "ETA 1:10", "steps/s 1,000", "sampling 40%", "learning 50%"):
        assert part in shown
    for part in ("iteration 7", "updates 70", "return 12.35", "score -", "eval 21", "epsilon 0.1"):
        assert part in shown


def test_panel_keeps_the_last_known_evaluation():
    stream = Terminal()
    with Console(None, "live", stream) as console:
        console.row(ROW, 100_000)
        stream.truncate(0)
        console.row(ROW | {"EvalReturnAverage": NAN}, 100_000)

    assert "eval 21" in plain(stream)
    assert "eval -" not in plain(stream)


def test_panel_is_drawn_four_times_a_second_at_most():
    clock, stream = Clock(), Terminal()
    with Console(None, "live", stream, clock=clock) as console:
        drawn = stream.getvalue().count("\n")
        progress(console, 0)
        per_panel = stream.getvalue().count("\n") - drawn
        stream.truncate(0)
        for i in range(1, 1001):
            clock.now = i / 1000
            progress(console, i)

        assert stream.getvalue().count("\n") == 4 * per_panel


def test_panel_gives_the_cursor_back_after_an_exception():
    stream = Terminal()

    def interrupted():
        with Console(None, "live", stream) as console:
            progress(console, 1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert stream.getvalue().endswith("\x1b[?25h")


def test_panel_lets_go_of_stdout(capsys):
    before = sys.stdout
    with Console(None, "live"):
        assert sys.stdout is not before
        print("from elsewhere")

    assert sys.stdout is before
    assert "from elsewhere" in capsys.readouterr().out


@pytest.mark.parametrize("ui", ["plain", "live", "quiet"])
def test_terminal_that_goes_away_stops_the_talking_not_the_run(log, ui):
    with Console(log, ui, Gone()) as console:
        for step in (1, 2):
            progress(console, step)
            console.row(ROW, 100_000)
            console.say(f"message {step}")
    lines = log.read_text().splitlines()

    assert [line for line in lines if line.startswith("message")] == ["message 1", "message 2"]
    assert len([line for line in lines if line.startswith("the terminal cannot be written")]) == 1


def test_closed_stream_is_survived(log):
    stream = io.StringIO()
    stream.close()
    with Console(log, "auto", stream) as console:
        console.say("on")

    assert log.read_text().startswith("on\n")


def test_missing_stdout_is_survived(log, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    with Console(log, "auto") as console:
        console.say("on")

    assert log.read_text().startswith("on\n")


def test_character_that_the_stream_lacks_becomes_a_question_mark(log):
    raw = io.BytesIO()
    with Console(log, "plain", io.TextIOWrapper(raw, encoding="ascii")) as console:
        console.say("naïve")

        assert raw.getvalue() == b"na?ve\n"
    assert log.read_text(encoding="utf-8") == "naïve\n"


@pytest.mark.parametrize("ui", ["plain", "live"])
def test_reader_that_stops_reading_leaves_exit_code_0(ui, log, start_python):
    writer = start_python(
        "import sys; from pathlib import Path; from rlcli.record.console import Console\n"
        "console = Console(Path(sys.argv[1]), sys.argv[2])\n"
        "sys.stdin.readline()\n"
        "for i in range(100):\n"
        "    console.say(str(i))\n"
        "console.close()\n",
        log,
        ui,
    )
    writer.stdout.close()
    writer.stdin.write("go\n")
    writer.stdin.flush()

    assert writer.wait(60) == 0
    assert writer.stderr.read() == ""
    numbers = [int(line) for line in log.read_text().splitlines() if line.isdigit()]
    assert numbers == list(range(100))


def test_plain_console_loads_neither_rich_nor_torch(start_python):
    process = start_python(
        "import sys, rlcli.record.console as c, rlcli.record.config, rlcli.record.folder, rlcli.record.description\n"
        "c.Console(None, 'plain').say('hello')\n"
        "print(sorted({'rich', 'torch', 'gymnasium', 'ale_py'} & set(sys.modules)))"
    )

    assert process.communicate(timeout=60)[0] == "hello\n[]\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [(NAN, "-"), (0.0, "0"), (12.3456, "12.35"), (1e-5, "1e-05"), (-21.0, "-21"), (123456.7, "123,457")],
)
def test_numbers_are_short(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(NAN, "-"), (math.inf, "-"), (5, "0:05"), (65, "1:05"), (3725, "1:02:05"), (266465, "3d 02:01:05")],
)
def test_durations_are_short(seconds, text):
    assert duration(seconds) == text


def test_hundred_per_cent_means_done():
    assert percent_done(9999, 10_000) == "99%"
    assert percent_done(10_000, 10_000) == "100%"
    assert percent_done(10_080, 10_000) == "100%"


def test_default_config_is_in_range():
    assert range_problems(CsvLoggerConfig()) == []


@pytest.mark.parametrize("bad", [{"ui": "lively"}, {"trajectory_window": 0}])
def test_config_out_of_range_is_named(bad):
    (key,) = bad

    assert [problem.split(":")[0] for problem in range_problems(CsvLoggerConfig(**bad))] == [key]


def plain(stream):
    """What is on the screen, without colours."""
    text = stream.getvalue()
    while "\x1b[" in text:
        start = text.index("\x1b[")
        end = next(i for i in range(start + 2, len(text)) if text[i].isalpha())
        text = text[:start] + text[end + 1 :]
    return text
