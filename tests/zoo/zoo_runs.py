"""Runs a table of the zoo through ingestion, statistics, schema and Transform, and compares the features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow_data_validation as tfdv
import yaml
import zoo_tables
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.types.standard_artifacts import ExampleStatistics
from zoo_tables import Table

from components.data_gate.inferred_schema import infer
from components.statistics.executor import Executor as StatisticsExecutor
from pipeline.authoring.config import load
from pipeline.authoring.plans import training_plan
from tests.support.data.tolerances import Tolerance
from tests.support.runs.ingest_runs import BEAM, ingest
from tests.support.runs.transform_runs import Transformed, transform

SPLITS = ("train", "eval")
_ANY_MODEL = {
    "binary": {"auc": {"min": 0}},
    "multiclass": {"accuracy": {"min": 0}},
    "regression": {"mean_squared_error": {"max": 1e9}},
}
"""Task → thresholds that every model meets; a config has to have some."""


def run(table: Table, folder: Path) -> Transformed:
    """Run a table up to Transform, in a new folder."""
    folder.mkdir(parents=True, exist_ok=True)
    store = table.store or (
        lambda columns, into: zoo_tables.write(columns, table.stored, into / f"table.{table.stored}")
    )
    path = store(table.columns, folder)
    features = {**table.features, "columns": {"row": "pass_through", **table.features["columns"]}}
    data = {
        **({} if "bigquery" in table.data else {"path": str(path)}),
        "label": table.label,
        "task": table.task,
        "split": {"by": "column", "columns": "part", "train": "train", "eval": "eval"},
        "bad_rows": {"max_fraction": 0},
        **table.data,
    }
    # Side tables are next to the table.
    data["join"] = [{**join, "path": str(folder / join["path"])} for join in table.data.get("join", ())]
    sections = {"data": data, "features": features, "evaluation": {"thresholds": _ANY_MODEL[table.task]}}
    config_file = folder / "config.yaml"
    config_file.write_text(yaml.safe_dump(sections), encoding="utf-8")
    config = load(str(config_file)).config
    examples = ingest(config.data, folder / "examples", stored="parquet")
    statistics = ExampleStatistics()
    statistics.uri = str(folder / "statistics")
    context = BaseBeamExecutor.Context(beam_pipeline_args=list(BEAM), tmp_dir=str(folder / "tmp"), unique_id="1")
    StatisticsExecutor(context).Do({"examples": [examples]}, {"statistics": [statistics]}, {})
    of_splits = [tfdv.load_stats_binary(f"{statistics.uri}/Split-{split}/FeatureStats.pb") for split in SPLITS]
    return transform(examples, infer(of_splits, shapes=True), folder / "out", training_plan(config).features)


def values_of(transformed: Transformed) -> dict[str, npt.NDArray[Any]]:
    """Return the label and the features of all splits, in the order of the table's rows."""
    parts = [transformed.rows(split) for split in SPLITS]
    order = np.argsort(np.concatenate([part["row_pass_through"] for part in parts]))
    return {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}


def _expand(pairs: npt.NDArray[Any], bins: int) -> npt.NDArray[Any]:
    """Expand (bin, position inside it), as transformed rows store it, to a number per bin."""
    return np.array([[*[1.0] * int(at), position, *[0.0] * (bins - int(at) - 1)] for at, position in pairs], np.float32)


def _unpack(packed: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the IDs of words, then their weights, which transformed rows store in units of 2**-30 above 31 bits."""
    return np.concatenate([packed % 2**31, packed // 2**31 / 2**30], axis=1)


def assert_features(table: Table, transformed: Transformed) -> None:
    """Check that the features equal the features of the reference, without additional ones."""
    expected, features = table.expected(table.columns, table.training), values_of(transformed)
    assert sorted(set(features) - {"label", "row_key", "row_pass_through"}) == sorted(expected)
    for name in sorted(expected):
        values = _expand(features[name], expected[name].shape[-1]) if "piecewise_linear" in name else features[name]
        if expected[name].dtype.kind == "f" and values.dtype.kind == "i":
            values = _unpack(values)
        if values.dtype.kind == "f":
            Tolerance(table.tolerance, table.tolerance).assert_close(values, expected[name], name)
        else:
            np.testing.assert_array_equal(values, expected[name], err_msg=name)
