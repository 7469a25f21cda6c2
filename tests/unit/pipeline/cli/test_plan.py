"""Tests for the description of embedding tables before the first run."""

from __future__ import annotations

from pathlib import Path

from components.features.config import FeaturesConfig
from pipeline.cli import plan
from tests.support.data.small_config import load_small


def test_store_without_tables_does_not_change_the_plan(tmp_path: Path) -> None:
    small = load_small(tmp_path).config
    vocab = FeaturesConfig.model_validate({"columns": {"fare": {"vocab": {"size": 50}}}})
    config = small.model_copy(update={"features": vocab})
    before = plan._list_tables(config)
    assert before
    assert all(table.most for table in before)
    store = config.paths().store
    assert isinstance(store, Path)
    store.parent.mkdir(parents=True)
    store.touch()
    assert plan._list_tables(config) == before
