"""Another process, such as a backup, locks the metadata file for longer than ML Metadata waits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ml_metadata.proto import metadata_store_pb2 as proto

from pipeline.core.metadata import connection
from pipeline.core.metadata.connection import connect
from pipeline.core.metadata.sql import Tables

pytestmark = pytest.mark.both_lines

_HOLDS = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
connection.execute("COMMIT")
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    file = tmp_path / "metadata.db"
    connect(file)
    return file


@pytest.fixture
def holder(store: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", _HOLDS, str(store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holds:
        assert holds.stdin
        yield holds
        holds.stdin.close()


def test_locked_store_is_retried_and_written_once(
    store: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = connect(store)
    type_id = opened.put_context_type(proto.ContextType(name="pipeline"))
    holder = request.getfixturevalue("holder")
    assert holder.stdout.readline() == "held\n"
    waits: list[Path] = []

    def waiting(path: Path) -> Tables:
        waits.append(path)
        holder.stdin.close()
        return Tables(path)

    # ML Metadata has failed to get the lock. Release it only now, while the code under test waits for the release.
    monkeypatch.setattr(connection, "Tables", waiting)
    [context_id] = opened.put_contexts([proto.Context(type_id=type_id, name="taxi")])
    assert waits == [store]
    assert [context.id for context in opened.get_contexts()] == [context_id]
