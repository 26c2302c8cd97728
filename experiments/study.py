"""The table and the figure of a study, from its run folders.

    python experiments/study.py halfcheetah runs/halfcheetah/*/*

A run folder is named <label>/<anything>: runs of one label share a panel, told apart by their seed. Writes
experiments/<study>/scores.csv and curves.png. Where there is a references.csv (label, steps, mean, std, source) it is
drawn beside the curves. Needs matplotlib: pip install 'rlcli[study]'.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import yaml

HERE = Path(__file__).parent
EVALUATION = "EvalGameScoreAverage"
"""Mean score of the whole games of an evaluation: neither clipped nor scaled."""


@dataclass(frozen=True)
class Score:
    """One number of one run."""

    label: str
    seed: int
    steps: int
    value: float
    seconds: float


def scores_of(run: Path, column: str = EVALUATION) -> list[Score]:
    """All values of a column of a run's progress.csv, its NaNs left out.

    Args:
        run: The run folder; its parent's name is the label.
        column: Name in progress.csv.

    Raises:
        SystemExit: The folder holds no run, or the run has no such column.
    """
    try:
        seed = int(yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))["seed"])
        with (run / "progress.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return [
            Score(run.parent.name, seed, int(row["CumSteps"]), float(row[column]), float(row["CumTime (s)"]))
            for row in rows
            if not math.isnan(float(row[column]))
        ]
    except OSError as error:
        raise SystemExit(f"{run}: is it a run folder? {error}") from None
    except KeyError as error:
        raise SystemExit(f"{run}: there is no {error} in it") from None


def write_scores(path: Path, scores: list[Score], column: str) -> None:
    """One row per run and point, in the order of label, seed and step."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["label", "seed", "CumSteps", column, "CumTime (s)"])
        for s in sorted(scores, key=lambda s: (s.label, s.seed, s.steps)):
            writer.writerow([s.label, s.seed, s.steps, f"{s.value:.6g}", f"{s.seconds:.0f}"])


def table(scores: list[Score]) -> str:
    """Markdown: the last score of each seed, each label's mean and the largest time of a run."""
    lines = ["| run | steps | last score, each seed | mean | minutes, longest run |", "|---|---|---|---|---|"]
    for label, seeds in sorted(_grouped(scores).items()):
        last = [points[-1] for _, points in sorted(seeds.items())]
        values = ", ".join(f"{s.value:.4g}" for s in last)
        mean = sum(s.value for s in last) / len(last)
        steps = " to ".join(f"{n:,}" for n in sorted({min(s.steps for s in last), max(s.steps for s in last)}))
        lines.append(f"| {label} | {steps} | {values} | {mean:.4g} | {max(s.seconds for s in last) / 60:.0f} |")
    return "\n".join(lines)


def draw(path: Path, scores: list[Score], references: list[dict[str, str]], title: str) -> None:
    """One panel per label: a line per seed, and the references as bars of one standard deviation."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    groups = sorted(_grouped(scores).items())
    columns = min(2, len(groups))
    n_rows = math.ceil(len(groups) / columns)
    figure, axes = plt.subplots(
        n_rows, columns, figsize=(5 * columns, 3.2 * n_rows), squeeze=False, sharex=True, sharey=True
    )
    for axis, (label, seeds) in zip(axes.flat, groups, strict=False):
        for seed, points in sorted(seeds.items()):
            axis.plot([s.steps for s in points], [s.value for s in points], label=f"seed {seed}", linewidth=1.2)
        by_source: dict[str, list[dict[str, str]]] = defaultdict(list)
        for row in references:
            if row["label"] == label:
                by_source[row["source"]].append(row)
        for marker, (source, rows) in zip("osD^v", by_source.items(), strict=False):
            x, y = [float(r["steps"]) for r in rows], [float(r["mean"]) for r in rows]
            deviation = [float(r["std"] or "nan") for r in rows]
            axis.errorbar(x, y, deviation, fmt=f"{marker}k", capsize=3, markersize=4, label=source)
        axis.set_title(label)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    for axis in axes.flat[len(groups) :]:
        axis.set_visible(False)
    figure.suptitle(title)
    figure.supxlabel("env steps")
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    plt.close(figure)


def _grouped(scores: list[Score]) -> dict[str, dict[int, list[Score]]]:
    groups: dict[str, dict[int, list[Score]]] = defaultdict(lambda: defaultdict(list))
    for score in sorted(scores, key=lambda s: s.steps):
        groups[score.label][score.seed].append(score)
    return groups


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", help="name of a folder beside this file")
    parser.add_argument("runs", nargs="+", type=Path, help="run folders")
    parser.add_argument("--column", default=EVALUATION, help="of progress.csv (default: %(default)s)")
    args = parser.parse_args()
    folder = HERE / args.study
    folder.mkdir(exist_ok=True)
    scores = [score for run in args.runs for score in scores_of(run.resolve(), args.column)]
    if not scores:
        raise SystemExit(f"{args.column}: no run has a number there yet")
    references: list[dict[str, str]] = []
    if (folder / "references.csv").exists():
        with (folder / "references.csv").open(newline="", encoding="utf-8") as file:
            references = list(csv.DictReader(file))
    write_scores(folder / "scores.csv", scores, args.column)
    draw(folder / "curves.png", scores, references, f"{args.study}: {args.column}")
    print(table(scores))


if __name__ == "__main__":
    main()
