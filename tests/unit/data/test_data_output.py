"""Tests that an output file is complete or absent, even if its writer is killed, and that errors have a remedy."""

from __future__ import annotations

import argparse
import errno
import os
import subprocess
import sys

import pytest

from components.base.errors import InputError
from data.output import atomic, finish, positive

# These programs write half of their output, print a line, and wait to be killed.
TABLE_WRITER = """
import io
import sys
from pathlib import Path
from pyarrow import csv
from data.tables import table_file

rows = csv.read_csv(io.BytesIO(b"x\\n" + b"1234567\\n" * 100_000))
with table_file(Path(sys.argv[1]), rows.schema) as sink:
    sink.write_table(rows)
    print("half", flush=True)
    sys.stdin.read()
"""
FILE_WRITER = """
import sys
from pathlib import Path
from data.output import atomic

with atomic(Path(sys.argv[1])) as part, part.open("w") as file:
    print("half", file=file, flush=True)
    print("half", flush=True)
    sys.stdin.read()
"""
FOLDER_WRITER = """
import sys
from pathlib import Path
from data.output import atomic

with atomic(Path(sys.argv[1])) as part:
    part.mkdir()
    (part / "0.png").write_bytes(b"half")
    print("half", flush=True)
    sys.stdin.read()
"""


def kill_half_way(program, output):
    """Start the program, wait until it has written half of its output, and kill it with SIGKILL."""
    arguments = [sys.executable, "-c", program, str(output)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "half\n"
        parts = list(output.parent.glob(".*.part"))
        process.kill()
        assert process.wait() == -9
    assert len(parts) == 1, "the writer was not half-way when it was killed"
    if parts[0].is_file():
        assert parts[0].stat().st_size > 0


@pytest.mark.parametrize(("program", "name"), [(TABLE_WRITER, "rows.csv"), (FOLDER_WRITER, "images")])
def test_killed_writer_does_not_create_the_output(tmp_path, program, name):
    kill_half_way(program, tmp_path / name)
    assert not (tmp_path / name).exists()
    assert all(path.name.startswith(".") and path.name.endswith(".part") for path in tmp_path.iterdir())


def test_killed_writer_keeps_the_previous_file(tmp_path):
    output = tmp_path / "rows.csv"
    output.write_text("former")
    kill_half_way(FILE_WRITER, output)
    assert output.read_text() == "former"


def test_finished_file_is_renamed_and_its_folder_created(tmp_path):
    output = tmp_path / "new" / "folder" / "rows.csv"
    with atomic(output) as part:
        part.write_text("all")
        assert not output.exists()
    assert output.read_text() == "all"
    assert list(output.parent.iterdir()) == [output]


def fail_half_way(output, write):
    with atomic(output) as part:
        write(part)
        raise ValueError("stop")


@pytest.mark.parametrize("write", [lambda part: part.write_text("half"), lambda part: (part / "0").mkdir(parents=True)])
def test_failed_writer_cleans_up_its_file_or_folder(tmp_path, write):
    with pytest.raises(ValueError, match="stop"):
        fail_half_way(tmp_path / "output", write)
    assert list(tmp_path.iterdir()) == []


def test_written_file_has_the_usual_permissions(tmp_path):
    with atomic(tmp_path / "rows.csv") as part:
        part.write_text("all")
    (tmp_path / "usual").touch()
    assert (tmp_path / "rows.csv").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize(("text", "value"), [("5", 5), ("1_000", 1000), ("1e6", 1_000_000), ("2.5e3", 2500)])
def test_positive_accepts_whole_numbers(text, value):
    assert positive(text) == value


@pytest.mark.parametrize("text", ["0", "-3", "1.5", "1.5e0", "many"])
def test_positive_rejects_other_values(text):
    with pytest.raises((argparse.ArgumentTypeError, ValueError)):
        positive(text)


def test_finish_prints_the_result_of_a_successful_program(capsys):
    assert finish(lambda: "done") == 0
    assert capsys.readouterr().out == "done\n"


def raises(error):
    def work():
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "code", "headline"),
    [
        (InputError("not that", "this"), 2, "error[2]: not that"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/out"), 2, "error[2]: /out: Permission denied"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/out"), 1, "error[1]: the disk is full"),
    ],
)
def test_finish_prints_an_error_with_its_remedy(capsys, error, code, headline):
    assert finish(raises(error)) == code
    output = capsys.readouterr().err
    assert output.startswith(headline)
    assert "remedy: " in output


def test_finish_does_not_catch_programming_errors():
    with pytest.raises(ZeroDivisionError):
        finish(raises(ZeroDivisionError()))
