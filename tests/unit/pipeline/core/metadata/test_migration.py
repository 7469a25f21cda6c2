"""A file of an older schema version is refused, and migrated only on request, after it was copied."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import command, light_command
from ml_metadata.metadata_store.metadata_store import downgrade_schema
from stored_history import History

from components.base.errors import InputError, MachineError
from pipeline.authoring.preflight import check_store
from pipeline.core.metadata.connection import make_connection_config
from pipeline.core.metadata.maintenance import migrate
from pipeline.core.metadata.sql import Tables
from pipeline.core.metadata.store import Store


@pytest.fixture
def old(history: History) -> Path:
    """Return a store of schema version 7."""
    assert isinstance(history.location, Path)
    downgrade_schema(make_connection_config(history.location), 7)
    return history.location


def test_old_store_is_rejected_wherever_it_is_opened(old: Path):
    for open_it in (check_store, Store):
        with pytest.raises(MachineError, match="expected schema version 10, received 7") as raised:
            open_it(old)
        assert "python runner.py store migrate" in raised.value.remedy
    assert light_command("runs", "--store", str(old)).exit_code == 1
    assert Tables(old, oldest=0).version == 7


def test_migration_copies_the_store_first(old: Path):
    content = old.read_bytes()
    ended = command("store", "migrate", "--store", str(old))
    copy = old.with_name("metadata.db.version-7")
    assert ended.exit_code == 0
    assert ended.out.splitlines() == [f"{old}: schema version 7 is now 10", f"copy of the earlier state: {copy}"]
    assert [run.name for run in Store(old).runs()] == ["r3", "r2", "r1"]
    assert len(copy.read_bytes()) == len(content)
    assert Tables(copy, oldest=0).version == 7
    again = command("store", "migrate", "--store", str(old))
    assert (again.exit_code, again.out) == (0, f"{old} has schema version 10 already\n")


def test_no_copy_is_overwritten(old: Path):
    copy = old.with_name("metadata.db.version-7")
    copy.write_text("precious")
    with pytest.raises(InputError, match="received a copy from an earlier migration"):
        migrate(old)
    assert (copy.read_text(), Tables(old, oldest=0).version) == ("precious", 7)


def test_missing_store_is_not_created(tmp_path: Path):
    with pytest.raises(MachineError):
        migrate(tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []
