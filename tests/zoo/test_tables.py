"""Each table of the zoo through ingestion, statistics, schema and Transform: splits, labels and features are those that
`zoo_reference` computes without the project's code.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow_data_validation as tfdv
import yaml
import zoo_reference
import zoo_tables
from ingest_runs import BEAM, ingest
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.types.standard_artifacts import ExampleStatistics
from tolerances import Tolerance
from transform_runs import Transformed, transform
from zoo_tables import TABLES, Table

from components.data_gate.inferred_schema import infer
from components.features.config import OPS
from components.statistics.executor import Executor as StatisticsExecutor
from pipeline.authoring.config import load
from pipeline.authoring.plans import training_plan

SPLITS = ("train", "eval")
ANY_MODEL = {
    "binary": {"auc": {"min": 0}},
    "multiclass": {"accuracy": {"min": 0}},
    "regression": {"mean_squared_error": {"max": 1e9}},
}
"""Task → thresholds that every model meets; a config has to have some."""
IN_SHORT = ("numbers_with_gaps",)
"""In `make test`; the others are extended."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=() if name in IN_SHORT else pytest.mark.extended) for name in TABLES],
)
def table(request: pytest.FixtureRequest) -> Table:
    return TABLES[request.param]()


@pytest.fixture(scope="module")
def transformed(table: Table, tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    """The table after Transform."""
    folder = tmp_path_factory.mktemp("zoo")
    path = zoo_tables.write(table.columns, table.stored, folder / f"table.{table.stored}")
    features = {**table.features, "columns": {"row": "pass_through", **table.features["columns"]}}
    data = {
        "path": str(path),
        "label": table.label,
        "task": table.task,
        "split": {"by": "column", "columns": "part", "train": "train", "eval": "eval"},
        "bad_rows": {"max_fraction": 0},
        **table.data,
    }
    sections = {"data": data, "features": features, "evaluation": {"thresholds": ANY_MODEL[table.task]}}
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


def values_of(transformed: Transformed, name: str, rows_of: Callable[[str], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return a feature of all splits in the order of the table's rows."""
    order = np.argsort(np.concatenate([rows_of(split) for split in SPLITS]))
    values: npt.NDArray[Any] = np.concatenate([transformed.rows(split)[name] for split in SPLITS])[order]
    return values


def test_rows_are_in_the_split_of_their_part(table: Table, transformed: Transformed) -> None:
    for split in SPLITS:
        rows = [row for row, part in zip(table.columns["row"], table.columns["part"], strict=True) if part == split]
        assert sorted(transformed.rows(split)["row_pass_through"].tolist()) == rows


def test_labels_are_those_of_the_reference(table: Table, transformed: Transformed) -> None:
    labels = values_of(transformed, "label", lambda split: transformed.rows(split)["row_pass_through"])
    np.testing.assert_array_equal(labels, table.labels(table.columns))


def test_features_are_those_of_the_reference(table: Table, transformed: Transformed) -> None:
    expected = table.expected(table.columns, table.training)
    names = set(transformed.rows("train")) - {"label", "row_pass_through"}
    assert names == set(expected)
    for name in sorted(names):
        values = values_of(transformed, name, lambda split: transformed.rows(split)["row_pass_through"])
        if values.dtype.kind == "f":
            Tolerance(table.tolerance, table.tolerance).assert_close(values, expected[name], name)
        else:
            np.testing.assert_array_equal(values, expected[name], err_msg=name)


def test_every_operation_is_in_a_table() -> None:
    features = [make().features for make in TABLES.values()]
    used = {operation for each in features for column in each["columns"].values() for operation in _operations(column)}
    # A date_part is what date_parts makes.
    assert used | {"date_part"} == set(OPS)
    assert any("crosses" in each for each in features)


def _operations(column: Any) -> set[str]:
    """The names of the operations of a column in a config: one, or a list, each with options or without."""
    listed = column if isinstance(column, list) else [column]
    return {name for each in listed for name in ([each] if isinstance(each, str) else each)}


@pytest.mark.parametrize("module", [zoo_reference, zoo_tables])
def test_expected_values_are_computed_without_the_project(module: Any) -> None:
    imported = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8")))
        for name in (
            [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not imported & {"components", "pipeline", "tensorflow", "tensorflow_transform", "tfx"}
