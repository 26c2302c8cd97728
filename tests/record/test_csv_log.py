import contextlib
import csv
import math
import resource

import numpy as np
import pytest

from rlcli.record.csv_log import CsvLog


@pytest.fixture
def log(tmp_path):
    log = CsvLog(tmp_path / "progress.csv", ["a", "b"])
    yield log
    log.close()


@contextlib.contextmanager
def no_room(size):
    """Lets no file grow beyond some bytes, as a full disk would; for the call alone, since pytest writes files too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_header_is_on_disk_before_the_first_row(log):
    assert log.path.read_text() == "a,b\n"


def test_row_is_on_disk_as_soon_as_it_is_written(log):
    log.write({"a": 1, "b": 0.1})

    assert log.path.read_text() == "a,b\n1,0.1\n"


def test_missing_value_becomes_nan_never_a_blank(log):
    log.write({"b": 2})

    assert log.path.read_text() == "a,b\nnan,2\n"


def test_undeclared_column_is_refused_by_name_and_writes_nothing(log):
    with pytest.raises(KeyError, match=r"progress\.csv has no column 'c'"):
        log.write({"a": 1, "c": 2})
    assert log.path.read_text() == "a,b\n"


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (3, "3"),
        (np.int64(3), "3"),
        (3.0, "3.0"),
        (0.1 + 0.2, "0.30000000000000004"),
        (np.float32(0.5), "0.5"),
        (math.inf, "inf"),
        (math.nan, "nan"),
        (True, "1"),
    ],
)
def test_numbers_keep_their_kind_and_every_digit(log, value, cell):
    log.write({"a": value, "b": 0})

    assert log.path.read_text() == f"a,b\n{cell},0\n"


@pytest.mark.parametrize("value", ["1", None, [1.0]])
def test_what_is_no_number_is_refused(log, value):
    with pytest.raises(TypeError, match=r"^a: .* must be a number"):
        log.write({"a": value})
    assert log.path.read_text() == "a,b\n"


def test_column_name_with_a_comma_stays_one_column(tmp_path):
    log = CsvLog(tmp_path / "x.csv", ["one, two", "three"])
    log.close()

    with (tmp_path / "x.csv").open(newline="") as file:
        assert next(csv.reader(file)) == ["one, two", "three"]


@pytest.mark.parametrize("columns", [[], ["a", "a"]])
def test_columns_must_be_given_and_unique(tmp_path, columns):
    with pytest.raises(ValueError, match="unique"):
        CsvLog(tmp_path / "x.csv", columns)


def test_rows_of_another_run_are_never_touched(log):
    log.write({"a": 1, "b": 2})

    with pytest.raises(FileExistsError):
        CsvLog(log.path, ["a"])
    assert log.path.read_text() == "a,b\n1,2\n"


def test_closing_twice_is_fine_and_writing_afterwards_is_not(log):
    log.close()
    log.close()

    with pytest.raises(ValueError, match="closed"):
        log.write({"a": 1})


def test_row_that_finds_no_room_is_taken_back_whole(log):
    log.write({"a": 1, "b": 2})

    with pytest.raises(OSError, match=r"progress\.csv"), no_room(10):
        log.write({"a": 3, "b": 4})
    assert log.path.read_text() == "a,b\n1,2\n"


# going on after a checkpoint


def going_on(path, columns, rows, row=None):
    """The file's text after a run went on with it, and perhaps wrote a row."""
    log = CsvLog(path, columns, rows)
    if row is not None:
        log.write(row)
    log.close()
    return path.read_text()


@pytest.mark.parametrize("on_disk", [None, "", "a,b\n1,2\n3,4\n5,6\n7,", "nonsense"])
def test_rows_after_the_checkpoint_and_damage_are_gone(tmp_path, on_disk):
    path = tmp_path / "progress.csv"
    if on_disk is not None:
        path.write_text(on_disk)

    assert "a,b\n1,2\n3,4\n9,nan\n" == going_on(path, ["a", "b"], "a,b\n1,2\n3,4\n", {"a": 9})


def test_the_same_columns_leave_every_byte_of_the_rows(tmp_path):
    rows = "a,b\n0.30000000000000004,nan\n1e-05,-inf\n"

    assert rows == going_on(tmp_path / "progress.csv", ["a", "b"], rows)


def test_a_new_column_is_nan_in_the_rows_before(tmp_path):
    text = going_on(tmp_path / "progress.csv", ["a", "new", "b"], "a,b\n1,2\n3,4\n", {"a": 5, "new": 6, "b": 7})

    assert "a,new,b\n1,nan,2\n3,nan,4\n5,6,7\n" == text


def test_an_old_column_is_kept_and_nan_from_here_on(tmp_path):
    text = going_on(tmp_path / "progress.csv", ["a", "c"], "a,old,c\n1,2,3\n", {"a": 4, "c": 5})

    assert "a,c,old\n1,3,2\n4,5,nan\n" == text


def test_an_old_column_is_among_the_columns_and_may_be_written(tmp_path):
    log = CsvLog(tmp_path / "progress.csv", ["a"], "a,old\n1,2\n")
    log.write({"a": 3, "old": 4})
    log.close()

    assert ("a", "old") == log.columns
    assert "a,old\n1,2\n3,4\n" == log.path.read_text()


def test_columns_in_another_order_keep_their_values(tmp_path):
    assert "b,a\n2,1\n4,3\n" == going_on(tmp_path / "progress.csv", ["b", "a"], "a,b\n1,2\n", {"a": 3, "b": 4})


def test_a_column_name_with_a_comma_survives_new_columns(tmp_path):
    path = tmp_path / "progress.csv"
    text = going_on(path, ["one, two", "new"], '"one, two"\n1\n', {"one, two": 2, "new": 3})

    assert '"one, two",new\n1,nan\n2,3\n' == text


def test_no_rows_yet_begin_with_the_header(tmp_path):
    assert "a,b\n1,2\n" == going_on(tmp_path / "progress.csv", ["a", "b"], "", {"a": 1, "b": 2})


def test_going_on_twice_is_going_on_once(tmp_path):
    path = tmp_path / "progress.csv"
    first = going_on(path, ["a", "new"], "a,old\n1,2\n")

    assert first == going_on(path, ["a", "new"], first)


def test_a_full_disk_when_going_on_leaves_the_file_and_nothing_else(tmp_path):
    path = tmp_path / "progress.csv"
    path.write_text("a,b\n1,2\n3,4\n")

    with pytest.raises(OSError, match="File too large"), no_room(5):
        CsvLog(path, ["a", "b"], "a,b\n1,2\n")

    assert "a,b\n1,2\n3,4\n" == path.read_text()
    assert [path] == list(tmp_path.iterdir())


def test_the_file_is_replaced_in_one_step(tmp_path):
    """Whoever has it open, as a plot does, goes on seeing the old one whole."""
    path = tmp_path / "progress.csv"
    path.write_text("a,b\n1,2\n3,4\n")

    with path.open() as reader:
        going_on(path, ["a", "b"], "a,b\n1,2\n", {"a": 5, "b": 6})
        assert "a,b\n1,2\n3,4\n" == reader.read()


WRITER = """
import sys
from pathlib import Path
from rlcli.record.csv_log import CsvLog
log = CsvLog(Path(sys.argv[1]), [f"column{i}" for i in range(200)])
n = 0
while True:
    n += 1
    log.write({f"column{i}": n for i in range(200)})
"""


def test_file_parses_at_any_moment_and_after_sigkill(tmp_path, start_python, wait_for):
    path = tmp_path / "progress.csv"
    writer = start_python(WRITER, path)

    for size in (1, 200_000, 400_000):
        wait_for(lambda size=size: path.exists() and path.stat().st_size > size)
        assert_whole(path)
    writer.kill()
    writer.wait()

    assert_whole(path)


def assert_whole(path):
    text = path.read_text()
    assert text.endswith("\n")
    header, *rows = csv.reader(text.splitlines())
    assert len(header) == 200
    assert rows == [[str(n)] * 200 for n in range(1, len(rows) + 1)]
