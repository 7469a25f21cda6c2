"""Tests for the format of the examples, which depends on the nodes that read them or on the config."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from components.base.errors import InputError
from pipeline.authoring.config import Config, load
from pipeline.authoring.config.examples_format import examples_format, tfrecord_readers
from pipeline.orchestration.compiler import resolve_inputs

OWN_CODE = ("model.run_fn=components.trainer.run_fn.run_fn",)
STOCK = ("runtime.vectorised=false",)
STOCK_EVALUATOR = ("runtime.vectorised=[StatisticsGen, Transform]",)
STOCK_STATISTICS = ("runtime.vectorised=[Transform, Evaluator]",)


def load_config(folder: Path, *assignments: str) -> Config:
    (folder / "rows.csv").write_text("fare,tips\n1,2\n")
    file = folder / "mine.yaml"
    file.write_text(
        f"data: {{path: {folder / 'rows.csv'}, label: tips}}\n"
        "features: {columns: {fare: z_score}}\n"
        "evaluation: {thresholds: {auc: {min: 0.5}}}\n"
        f"runtime: {{output: {folder / 'out'}}}\n"
    )
    return load(str(file), assignments).config


@pytest.mark.parametrize(
    ("assignments", "readers"),
    [
        ((), []),
        (OWN_CODE, ["Trainer"]),
        (STOCK, ["StatisticsGen", "Transform"]),
        (STOCK_EVALUATOR, []),
        ((*STOCK_STATISTICS, *OWN_CODE), ["StatisticsGen", "Trainer"]),
    ],
)
def test_examples_are_stored_as_parquet_if_all_nodes_can_read_it(
    tmp_path: Path, assignments: tuple[str, ...], readers: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    loaded = load_config(tmp_path, *assignments)
    assert tfrecord_readers(loaded) == readers
    assert examples_format(loaded) == ("tfrecord" if readers else "parquet")
    with caplog.at_level(logging.INFO):
        resolve_inputs(loaded)
    reason = f"tfrecord: {', '.join(readers)} reads nothing else" if readers else "parquet"
    assert f"examples are stored as {reason}" in caplog.messages


def test_config_can_set_the_format(tmp_path: Path) -> None:
    assert examples_format(load_config(tmp_path, "data.examples_format=tfrecord")) == "tfrecord"
    assert examples_format(load_config(tmp_path, "data.examples_format=parquet")) == "parquet"


def test_parquet_is_rejected_if_a_node_cannot_read_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"data.examples_format: Trainer .*reads only tfrecord, received parquet"):
        load_config(tmp_path, "data.examples_format=parquet", *OWN_CODE)
