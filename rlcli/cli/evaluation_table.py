"""What ``rlcli eval`` prints: a table, and beside it what no table shows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcli.cli.evaluate import EvaluationResult

_HEAD = ("file", "steps", "n", "cut", "score mean", "std", "min", "max", "return mean", "length", "time (s)")


def print_table(results: Sequence[EvaluationResult]) -> None:
    """Print one row for each result, the protocol, and what was cut; as a drawn table on a terminal."""
    if not results:
        return
    rows = [_cells(result.row, result.protocol.file.name) for result in results]
    if sys.stdout.isatty():
        _draw(rows)
    else:
        print("\n".join(_aligned([_HEAD, *rows])))
    for line in dict.fromkeys(_protocol(result) for result in results):
        print(line)
    for result in results:
        if cut := _cut(result):
            print(cut)


def _cells(row: dict[str, Any], name: str) -> tuple[str, ...]:
    numbers = [row["EvalGameScore" + suffix] for suffix in ("Average", "Std", "Min", "Max")]
    numbers += [row["EvalReturnAverage"], row["EvalLengthAverage"], row["EvalTime (s)"]]
    counts = (row["CumSteps"], row["EvalEpisodes"], row["EvalEpisodesCut"])
    return (name, *(f"{count:,}" for count in counts), *(f"{number:,.2f}" for number in numbers))


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _draw(rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for i, name in enumerate(_HEAD):
        table.add_column(name, justify="right" if i else "left", no_wrap=not i)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _protocol(result: EvaluationResult) -> str:
    how = result.protocol
    parts = [
        how.env,
        f"{how.n_episodes:,} whole games asked for",
        f"seed {how.seed}",
        f"{how.n_envs} environments",
        "" if how.epsilon is None else f"epsilon {how.epsilon:g}",
        f"at most {how.max_steps:,} steps",
        how.overrides,
    ]
    return ", ".join(part for part in parts if part)


def _cut(result: EvaluationResult) -> str:
    """What became of the games that were not finished, empty if all were."""
    how, cut = result.protocol, result.cut_scores
    if result.n == how.n_episodes:
        return ""
    partial = f", mean partial score {sum(cut) / len(cut):,.2f}" if cut else ""
    return (
        f"{how.file.name}: {result.n} finished, {len(cut)} cut by eval.max_steps={how.max_steps}{partial}, "
        f"{how.n_episodes - result.n - len(cut)} not begun"
    )
