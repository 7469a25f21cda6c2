"""Fixtures with a metadata store to write to, and with a store that contains a small history."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.runs.store_writer import Writer
from tests.support.runs.stored_history import History, write_history


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    """Return a writer for an empty store in the file `metadata.db`."""
    return Writer(tmp_path / "metadata.db")


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Return a store with three runs of one pipeline."""
    return write_history(tmp_path)
