"""Runs every table of the zoo through ingestion, statistics, schema and Transform, and compares splits, labels and
features with `zoo_reference`, which does not use the project's code.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
import zoo_files
import zoo_models
import zoo_options
import zoo_reference
import zoo_runs
import zoo_scores
import zoo_tables
from zoo_runs import SPLITS
from zoo_tables import TABLES, Table

from components.features.config import OPS
from components.ingest import bigquery_reader
from tests.support.runs.transform_runs import Transformed

IN_SHORT = ("numbers_with_gaps",)
"""In `make test`; the others are extended."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=() if name in IN_SHORT else pytest.mark.extended) for name in TABLES],
)
def table(request: pytest.FixtureRequest) -> Table:
    return TABLES[request.param]()


@pytest.fixture(scope="module")
def transform_result(table: Table, tmp_path_factory: pytest.TempPathFactory) -> Transformed:
    """Return the table after Transform."""
    return zoo_runs.run(table, tmp_path_factory.mktemp("zoo"))


def test_rows_are_in_the_split_of_their_part(table: Table, transform_result: Transformed) -> None:
    for split in SPLITS:
        rows = [row for row, part in zip(table.columns["row"], table.columns["part"], strict=True) if part == split]
        assert sorted(transform_result.rows(split)["row_pass_through"].tolist()) == rows


def test_labels_are_those_of_the_reference(table: Table, transform_result: Transformed) -> None:
    np.testing.assert_array_equal(zoo_runs.values_of(transform_result)["label"], table.labels(table.columns))


def test_features_are_those_of_the_reference(table: Table, transform_result: Transformed) -> None:
    zoo_runs.assert_features(table, transform_result)


@pytest.mark.extended
def test_rows_of_a_query_have_the_features_of_the_reference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = TABLES["numbers_with_gaps"]()
    rows = [dict(zip(table.columns, row, strict=True)) for row in zip(*table.columns.values(), strict=True)]

    class Read(beam.PTransform):  # type: ignore[misc]
        """Yields rows as Beam's reader does."""

        def __init__(self, **_options: Any) -> None:
            super().__init__()

        def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
            return pipeline | beam.Create(rows)

    monkeypatch.setattr(bigquery_reader, "ReadFromBigQuery", Read)
    transform_result = zoo_runs.run(replace(table, data={"bigquery": {"query": "SELECT *"}}), tmp_path)
    zoo_runs.assert_features(table, transform_result)
    np.testing.assert_array_equal(zoo_runs.values_of(transform_result)["label"], table.labels(table.columns))


def test_every_operation_is_in_a_table() -> None:
    features = [make().features for make in TABLES.values()]
    used = {
        operation for feature in features for column in feature["columns"].values() for operation in _operations(column)
    }
    # date_parts expands to several date_part operations.
    assert used | {"date_part"} == set(OPS)
    assert any("crosses" in feature for feature in features)


def _operations(column: Any) -> set[str]:
    """Return the names of a column's operations in a config: one or a list, with or without options."""
    listed = column if isinstance(column, list) else [column]
    return {name for operation in listed for name in ([operation] if isinstance(operation, str) else operation)}


@pytest.mark.parametrize("module", [zoo_files, zoo_models, zoo_options, zoo_reference, zoo_scores, zoo_tables])
def test_expected_values_are_computed_without_the_project(module: Any) -> None:
    imported = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8")))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not imported & {"components", "pipeline", "tensorflow", "tensorflow_transform", "tfx"}
