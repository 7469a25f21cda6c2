"""Tests for the description of embedding tables before the first run."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.features.config import FeaturesConfig
from pipeline.cli import plan
from tests.support.data.small_config import load_small


def test_plan_has_the_memory_of_the_devices_of_a_mesh(tmp_path: Path) -> None:
    config = load_small(
        tmp_path, "model: {kind: mlp, hidden: [6]}", "training: {strategy: {kind: mesh, data: 2, model: 3}}"
    ).config
    placement = plan._compute_placement(config, None)
    assert placement is not None
    # One number is the input of a kernel with 6 columns. The bias, and the weights of the logit, are not divided.
    assert [device.weights for device in placement.devices] == [4 * (2 + 6 + 6 + 1), 4 * 2, 4 * 2] * 2
    assert [device.moments for device in placement.devices] == [2 * device.weights for device in placement.devices]
    assert plan._compute_placement(load_small(tmp_path).config, None) is None


def test_store_without_tables_does_not_change_the_plan(tmp_path: Path) -> None:
    small = load_small(tmp_path).config
    vocab = FeaturesConfig.model_validate({"columns": {"fare": {"vocab": {"size": 50}}}})
    config = small.model_copy(update={"features": vocab})
    before = plan._list_tables(config, plan._find_transform_graph(config))
    assert before
    assert all(table.most for table in before)
    store = config.paths().store
    assert isinstance(store, Path)
    store.parent.mkdir(parents=True)
    store.touch()
    assert plan._list_tables(config, plan._find_transform_graph(config)) == before


def test_bytes_of_each_table_on_each_ps_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    plan._show_places({"embedding_8": (16_800_000, 16_700_000), "wide": (4_160_000, 0)})
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert lines == [
        ["MB", "in", "training", "ps-0", "ps-1"],
        ["embedding_8", "16.8", "16.7"],
        ["wide", "4.2", "0.0"],
        ["all", "21.0", "16.7"],
    ]
