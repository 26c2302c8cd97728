"""What a run says: lines on the terminal and in debug.log, and a live panel where there is a terminal."""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, TextIO, cast

from rlcli.record.config import UI_MODES
from rlcli.record.display import Pace, Progress, eta, last_numbers, row_line

if TYPE_CHECKING:
    from rlcli.record.live import LivePanel

_REFRESH_S = 0.25
_ANSI = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-_])")


class Console:
    """The one voice of a run. A terminal that goes away stops the talking, never the run.

    Args:
        log_path: debug.log, to which every line is appended; None for none.
        ui: auto, live, plain or quiet (`CsvLoggerConfig`).
        stream: Where to print; None for sys.stdout.
        clock: Seconds.
    """

    def __init__(
        self,
        log_path: Path | None,
        ui: str = "auto",
        stream: TextIO | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if ui not in UI_MODES:
            raise ValueError(f"ui {ui!r} must be one of {', '.join(UI_MODES)}")
        self._clock = clock
        self._log = None if log_path is None else os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        self._stream = _Stream(sys.stdout if stream is None else stream)
        self.ui = _fitting_ui(self._stream) if ui == "auto" else ui
        self._panel: LivePanel | None = self._make_panel() if self.ui == "live" else None
        self._pace = Pace()
        self._next_look = -math.inf
        self._last: dict[str, float] = {}
        self._last_row = (0.0, 0.0)
        self._told_gone = False

    def __enter__(self) -> Console:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def say(self, text: str) -> None:
        """Print a line and append it to debug.log.

        Raises:
            OSError: debug.log cannot be written.
        """
        text = _ANSI.sub("", text)
        self.note(text)
        if self._panel is not None:
            self._panel.say(text)
        else:
            self._stream.write(text + "\n")
            self._stream.flush()
        self._tell_if_gone()

    def progress(
        self, *, step: int, n_steps: int, itr: int, n_updates: int, sampling_s: float = 0.0, learning_s: float = 0.0
    ) -> None:
        """Bring the live panel up to date; call it in each iteration, it draws 4 times a second at most.

        Args:
            step: Env steps done.
            n_steps: Env steps to do.
            itr: Iterations done.
            n_updates: Gradient steps done.
            sampling_s: Seconds that this iteration sampled.
            learning_s: Seconds that this iteration learned.
        """
        if self._panel is None:
            return
        self._pace.sampling_s += sampling_s
        self._pace.learning_s += learning_s
        if self._clock() >= self._next_look:
            self._draw(step, n_steps, itr, n_updates)

    def row(self, row: Mapping[str, float], n_steps: int) -> None:
        """Show a row of progress.csv: as one line in plain mode, in the panel in live mode; debug.log has the line.

        Args:
            row: Columns and values, as `RunStats.row` gives them.
            n_steps: Env steps to do.
        """
        before, self._last_row = self._last_row, (row["CumTime (s)"], row["CumSteps"])
        elapsed = self._last_row[0] - before[0]
        speed = (self._last_row[1] - before[1]) / elapsed if elapsed > 0 else math.nan
        line = row_line(row, n_steps, eta(int(row["CumSteps"]), n_steps, speed))
        self._last = last_numbers(row, self._last)
        if self.ui == "plain":
            self.say(line)
            return
        self.note(line)
        self._draw(int(row["CumSteps"]), n_steps, int(row["Iteration"]), int(row["CumUpdates"]))

    def close(self) -> None:
        """Leave the terminal as it was found and close debug.log; safe to call twice."""
        if self._panel is not None:
            self._panel.stop()
            self._panel = None
        log, self._log = self._log, None
        if log is not None:
            os.close(log)

    def _make_panel(self) -> LivePanel:
        from rlcli.record.live import LivePanel

        is_stdout = self._stream.is_stdout
        return LivePanel(
            cast(IO[str], self._stream),
            redirect_stdout=is_stdout,
            # what goes to a file or pipe of its own must stay there
            redirect_stderr=is_stdout and sys.stderr is not None and sys.stderr.isatty(),
        )

    def _draw(self, step: int, n_steps: int, itr: int, n_updates: int) -> None:
        if self._panel is None:
            return
        now = self._clock()
        self._next_look = now + _REFRESH_S
        self._pace.look(now, step)
        speed, sampling, learning = self._pace.rates()
        left = eta(step, n_steps, speed)
        self._panel.show(Progress(step, n_steps, itr, n_updates, speed, sampling, learning, left, self._last))
        self._tell_if_gone()

    def note(self, text: str) -> None:
        """Append a line to debug.log alone."""
        if self._log is not None:
            os.write(self._log, f"{text}\n".encode(errors="replace"))

    def _tell_if_gone(self) -> None:
        if self._stream.gone and not self._told_gone:
            self._told_gone = True
            self.note("the terminal cannot be written any more; the run goes on, its lines are in this file")


class _Stream:
    """A text stream whose loss is noted, not raised; characters that its encoding lacks become ``?``."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.is_stdout = stream is sys.stdout
        self.gone = stream is None  # Python's sys.stdout where the parent closed it
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        if self._stream is not None and not self.gone:
            try:
                self._stream.write(text.encode(self.encoding, "replace").decode(self.encoding))
            except (OSError, ValueError) as error:  # ValueError: closed
                self._lose(error)
        return len(text)

    def flush(self) -> None:
        if self._stream is not None and not self.gone:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self._lose(error)

    def isatty(self) -> bool:
        if self._stream is None or self.gone:
            return False
        try:
            return self._stream.isatty()
        except (OSError, ValueError):
            return False

    def fileno(self) -> int:
        if self._stream is None:
            raise OSError("no stream")
        return self._stream.fileno()

    def _lose(self, error: Exception) -> None:
        self.gone = True
        if not isinstance(error, OSError) or not self.is_stdout:
            return
        # What is buffered would fail again when Python flushes at exit, and turn the exit code into 120.
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)


def _fitting_ui(stream: _Stream) -> str:
    return "live" if stream.isatty() and os.environ.get("TERM") != "dumb" else "plain"
