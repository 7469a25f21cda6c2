"""Tests for stores of an older schema version, which are rejected until the user migrates them."""

from __future__ import annotations

from pathlib import Path

import pytest
from ml_metadata.metadata_store.metadata_store import downgrade_schema

from components.base.errors import InputError, MachineError
from pipeline.authoring.preflight import check_store
from pipeline.core.metadata.connection import make_connection_config
from pipeline.core.metadata.maintenance import migrate
from pipeline.core.metadata.sql import Tables
from pipeline.core.metadata.store import Store
from tests.support.runs.command import command, light_command
from tests.support.runs.stored_history import History


@pytest.fixture
def old_store(history: History) -> Path:
    """Return the path of a store with schema version 7."""
    assert isinstance(history.location, Path)
    downgrade_schema(make_connection_config(history.location), 7)
    return history.location


def test_old_store_is_rejected(old_store: Path):
    for open_store in (check_store, Store):
        with pytest.raises(MachineError, match="expected schema version 10, received 7") as raised:
            open_store(old_store)
        assert "python runner.py store migrate" in raised.value.remedy
    assert light_command("runs", "--store", str(old_store)).exit_code == 1
    assert Tables(old_store, oldest=0).version == 7


def test_migration_copies_the_store_first(old_store: Path):
    content = old_store.read_bytes()
    process = command("store", "migrate", "--store", str(old_store))
    copy = old_store.with_name("metadata.db.version-7")
    assert process.exit_code == 0
    assert process.out.splitlines() == [
        f"{old_store}: schema version 7 is now 10",
        f"copy of the earlier state: {copy}",
    ]
    assert [run.name for run in Store(old_store).runs()] == ["r3", "r2", "r1"]
    assert len(copy.read_bytes()) == len(content)
    assert Tables(copy, oldest=0).version == 7
    second = command("store", "migrate", "--store", str(old_store))
    assert (second.exit_code, second.out) == (0, f"{old_store} has schema version 10 already\n")


def test_earlier_copy_is_not_overwritten(old_store: Path):
    copy = old_store.with_name("metadata.db.version-7")
    copy.write_text("precious")
    with pytest.raises(InputError, match="received a copy from an earlier migration"):
        migrate(old_store)
    assert (copy.read_text(), Tables(old_store, oldest=0).version) == ("precious", 7)


def test_missing_store_is_not_created(tmp_path: Path):
    with pytest.raises(MachineError):
        migrate(tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []
