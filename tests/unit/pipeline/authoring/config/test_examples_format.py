"""The format of the examples: chosen by the nodes that read them, or by the config."""

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


def config(folder: Path, *assignments: str) -> Config:
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
def test_columns_are_stored_where_every_node_reads_them(
    tmp_path: Path, assignments: tuple[str, ...], readers: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    chosen = config(tmp_path, *assignments)
    assert tfrecord_readers(chosen) == readers
    assert examples_format(chosen) == ("tfrecord" if readers else "parquet")
    with caplog.at_level(logging.INFO):
        resolve_inputs(chosen)
    reason = f"tfrecord: {', '.join(readers)} reads nothing else" if readers else "parquet"
    assert f"examples are stored as {reason}" in caplog.messages


def test_the_config_may_choose(tmp_path: Path) -> None:
    assert examples_format(config(tmp_path, "data.examples_format=tfrecord")) == "tfrecord"
    assert examples_format(config(tmp_path, "data.examples_format=parquet")) == "parquet"


def test_parquet_for_a_node_that_cannot_read_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"data.examples_format: Trainer .*reads only tfrecord, received parquet"):
        config(tmp_path, "data.examples_format=parquet", *OWN_CODE)
