"""Tests for the check of the metadata store before a run, which does not create files."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.base.errors import MachineError
from pipeline.authoring.preflight import check_store

_NOBODY = 65534
"""User ID of the user `nobody` on Linux."""


def test_database_is_accepted(tmp_path: Path):
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


def test_file_that_is_not_a_database_is_reported_quickly(tmp_path: Path):
    store = tmp_path / "metadata.db"
    store.write_bytes(b"no database" * 100)
    started = time.perf_counter()
    with pytest.raises(MachineError, match=r"metadata\.db cannot be opened: file is not a database") as raised:
        check_store(store)
    assert time.perf_counter() - started < 0.5
    assert "--output" in raised.value.remedy
    assert store.read_bytes() == b"no database" * 100


def test_file_instead_of_the_folder_is_reported(tmp_path: Path):
    (tmp_path / "out").write_text("")
    with pytest.raises(MachineError, match="out is a file, expected a folder"):
        check_store(tmp_path / "out" / "metadata.db")


@pytest.fixture
def user_folder() -> Iterator[Path]:
    """Yield a folder of an ordinary user. The test runs as this user, because root may write to any folder."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    user = os.geteuid()
    if user == 0:
        os.chown(folder, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, 0)
    yield folder
    os.setresuid(user, user, user)
    folder.chmod(0o700)
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["metadata.db", "new.db"])
def test_read_only_store_is_reported(user_folder: Path, name: str):
    sqlite3.connect(user_folder / "metadata.db").close()
    (user_folder / "metadata.db").touch(mode=0o400)
    (user_folder / "metadata.db").chmod(0o400)
    user_folder.chmod(0o500)
    with pytest.raises(MachineError, match="may not write it"):
        check_store(user_folder / name)
