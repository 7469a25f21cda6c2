"""Tests that real trips are found in the installed TFX package and copied once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from data import taxi


def test_real_trips_are_copied_byte_by_byte(tmp_path, capsys):
    output = tmp_path / "taxi" / "trips.csv"
    assert taxi.main(["--output", str(output)]) == 0
    assert output.read_bytes() == taxi.find_real_trips().read_bytes()
    assert "15,002 rows, 1,922,812 bytes" in capsys.readouterr().out
    assert [path.name for path in output.parent.iterdir()] == ["trips.csv"]


def test_second_call_does_not_write_anything(tmp_path, capsys):
    output = tmp_path / "trips.csv"
    taxi.main(["--output", str(output)])
    before = output.stat()
    assert taxi.main(["--output", str(output)]) == 0
    assert (output.stat().st_ino, output.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize("spoil", [lambda data: data[:-100], lambda data: data[:-1] + b"9", lambda _: b""])
def test_truncated_or_changed_copy_is_replaced(tmp_path, spoil):
    output = tmp_path / "trips.csv"
    real = taxi.find_real_trips().read_bytes()
    output.write_bytes(spoil(real))
    assert taxi.main(["--output", str(output)]) == 0
    assert output.read_bytes() == real


def test_missing_tfx_is_an_error_with_a_remedy(tmp_path):
    # With -S, no installed package can be imported. This also shows that copying only needs the files of tfx.
    run = subprocess.run(
        [sys.executable, "-S", "-m", "data.taxi", "--output", tmp_path / "trips.csv"], capture_output=True, text=True
    )
    assert run.returncode == 2
    assert run.stderr.startswith("error[2]: the real trips were not found: expected an installed tfx package")
    assert "remedy: " in run.stderr
    assert list(tmp_path.iterdir()) == []


def test_output_that_cannot_be_written_is_reported(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert taxi.main(["--output", str(tmp_path / "file" / "trips.csv")]) == 2
    assert capsys.readouterr().err.startswith(f"error[2]: {tmp_path / 'file'}")
