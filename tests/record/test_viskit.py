"""viskit's two hard-coded files, read by its rules: any cell that is no number would become 0.0 there."""

import csv
import json
import math

from rlcli.record.csv_log import CsvLog
from rlcli.record.description import write_description
from rlcli.record.stats import RunStats


def read_progress(path):
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {column: [float(row[column]) for row in rows] for column in rows[0]}


def flatten(params):
    flat = {}
    for key, value in params.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{name}": inner for name, inner in flatten(value).items()}
        else:
            flat[key] = value
    return flat


def test_run_folder_reads_as_an_experiment_of_viskit(tmp_path):
    write_description(tmp_path, {"seed": 1, "algo": {"discount": 0.99, "opt": {"lr": 1e-3}}}, ["rlcli"])
    stats = RunStats(100, ["loss"], ["epsilon"], evaluation=True, memory=lambda: 1.0)
    log = CsvLog(tmp_path / "progress.csv", stats.columns)
    log.write(stats.row(itr=1, step=10, n_updates=0, n_consumed=0, scalars={"epsilon": 1.0}))
    stats.add_metrics({"loss": [0.5]})
    log.write(stats.row(itr=2, step=20, n_updates=1, n_consumed=32, scalars={"epsilon": 0.9}))
    log.close()
    progress = read_progress(tmp_path / "progress.csv")
    params = flatten(json.loads((tmp_path / "params.json").read_text()))

    assert progress["CumSteps"] == [10, 20]
    assert math.isnan(progress["lossAverage"][0])
    assert progress["lossAverage"][1] == 0.5
    assert {len(values) for values in progress.values()} == {2}
    assert params == {"exp_name": tmp_path.name, "seed": 1, "algo.discount": 0.99, "algo.opt.lr": 1e-3}
