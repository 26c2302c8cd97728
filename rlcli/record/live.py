"""The live panel on a terminal; imported only where one is shown, for rich takes a while to load."""

from __future__ import annotations

from typing import IO

from rich.console import Console as RichConsole
from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rlcli.record.display import Progress, duration, number, percent_done, share


class LivePanel:
    """A panel at the bottom of the terminal, drawn only when it is told to: no thread of its own.

    Args:
        stream: A terminal, or what is to be treated as one.
        redirect_stdout: Show what others print to sys.stdout above the panel.
        redirect_stderr: The same for sys.stderr.
    """

    def __init__(self, stream: IO[str], *, redirect_stdout: bool, redirect_stderr: bool) -> None:
        self._console = RichConsole(file=stream, force_terminal=True, highlight=False)
        self._live = Live(
            Text("starting"),
            console=self._console,
            auto_refresh=False,
            redirect_stdout=redirect_stdout,
            redirect_stderr=redirect_stderr,
        )
        self._live.start(refresh=True)

    def show(self, progress: Progress) -> None:
        """Draw the panel anew."""
        self._live.update(_panel(progress), refresh=True)

    def say(self, text: str) -> None:
        """Print a line above the panel."""
        self._console.print(Text(text), soft_wrap=True)

    def stop(self) -> None:
        """Leave the panel as it stands and give the cursor back; safe to call twice."""
        self._live.stop()


def _panel(progress: Progress) -> Panel:
    bar = Table.grid(expand=True, padding=(0, 2, 0, 0))
    bar.add_column(ratio=1)
    bar.add_column(justify="right", no_wrap=True)
    done = f"{percent_done(progress.step, progress.n_steps)}  {progress.step:,}/{progress.n_steps:,} steps"
    bar.add_row(ProgressBar(total=progress.n_steps, completed=progress.step), f"{done}  ETA {duration(progress.eta_s)}")
    pace = {
        "steps/s": number(progress.steps_per_s),
        "sampling": share(progress.sampling_share),
        "learning": share(progress.learning_share),
        "iteration": f"{progress.itr:,}",
        "updates": f"{progress.n_updates:,}",
    }
    last = {word: number(value) for word, value in progress.last.items()}
    return Panel(Group(bar, _pairs(pace), *([_pairs(last)] if last else [])), title="rlcli", title_align="left")


def _pairs(values: dict[str, str]) -> Text:
    line = Text("   ", no_wrap=False).join(Text.assemble((f"{word} ", "dim"), value) for word, value in values.items())
    line.rstrip()
    return line
