"""A metadata store to write to, and one with a small history."""

from __future__ import annotations

from pathlib import Path

import past as made
import pytest
from store_writer import Writer


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    """Into an empty store, `metadata.db`."""
    return Writer(tmp_path / "metadata.db")


@pytest.fixture
def past(tmp_path: Path) -> made.Past:
    """Three runs of one pipeline."""
    return made.write(tmp_path)
