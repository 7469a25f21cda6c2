"""A store that cannot be opened is reported at once, and the check creates no file."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

import pytest

from components.errors import MachineError
from pipeline.authoring.preflight import check_store


def test_database_is_fine(tmp_path: Path):
    with sqlite3.connect(tmp_path / "metadata.db") as connection:
        connection.execute("CREATE TABLE t (c)")
    connection.close()
    check_store(tmp_path / "metadata.db")


def test_missing_store_is_accepted_and_not_created(tmp_path: Path):
    check_store(tmp_path / "new" / "metadata.db")
    assert not (tmp_path / "new").exists()


def test_store_path_that_is_a_directory_is_reported(tmp_path: Path):
    with pytest.raises(MachineError, match="expected a file, received a directory"):
        check_store(tmp_path)


def test_file_that_is_no_database_is_reported_within_milliseconds(tmp_path: Path):
    store = tmp_path / "metadata.db"
    store.write_bytes(b"no database" * 100)
    began = time.perf_counter()
    with pytest.raises(MachineError, match=r"metadata\.db cannot be opened: file is not a database") as raised:
        check_store(store)
    assert time.perf_counter() - began < 0.5
    assert "--output" in raised.value.remedy
    assert store.read_bytes() == b"no database" * 100


def test_file_at_the_path_of_the_folder_is_reported(tmp_path: Path):
    (tmp_path / "out").write_text("")
    with pytest.raises(MachineError, match="out is a file, expected a folder"):
        check_store(tmp_path / "out" / "metadata.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("name", ["metadata.db", "new.db"])
def test_read_only_store_is_reported(tmp_path: Path, name: str):
    sqlite3.connect(tmp_path / "metadata.db").close()
    (tmp_path / "metadata.db").touch(mode=0o400)
    (tmp_path / "metadata.db").chmod(0o400)
    tmp_path.chmod(0o500)
    with pytest.raises(MachineError, match="may not write it"):
        check_store(tmp_path / name)
