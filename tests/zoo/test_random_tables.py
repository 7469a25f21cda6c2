"""Random tables through ingestion, statistics, schema and Transform, compared with `zoo_reference`."""

from __future__ import annotations

import string
from typing import Any

import numpy as np
import pytest
import zoo_reference as reference
import zoo_runs
import zoo_tables
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from zoo_tables import Columns, Expected, Table

_MOST_ROWS = 24
_NUMBERS = ("z_score", "log", "min_max", "pass_through", "missing")
_LETTERS = string.ascii_letters + string.digits + " ,;'\"|éßя東\U0001f600"


def _floats() -> st.SearchStrategy[float]:
    return st.floats(-1e6, 1e6, width=32) | st.sampled_from([0.0, -0.0, 1.0, 0.1])


def _integers() -> st.SearchStrategy[int]:
    return st.integers(-1000, 1000) | st.integers(1_700_000_000_000, 1_700_000_900_000)


def _texts() -> st.SearchStrategy[str]:
    # Begins with a letter, so that a text column is never read as numbers.
    return st.text(_LETTERS, max_size=6).map("t".__add__) | st.sampled_from(["taxi", "train"])


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Return tables of one to four columns, each float, integer or text, some of whose values are missing."""
    count = draw(st.integers(9, _MOST_ROWS))
    columns: Columns = {}
    operations: dict[str, Any] = {}
    kinds = draw(st.lists(st.sampled_from(["float", "integer", "text"]), min_size=1, max_size=4))
    for number, kind in enumerate(kinds):
        values = {"float": _floats, "integer": _integers, "text": _texts}[kind]()
        name = f"{kind}_{number}"
        drawn = draw(st.lists(st.none() | values, min_size=count, max_size=count))
        # The first two rows are in the training split, which a column must not leave empty.
        columns[name] = [draw(values), draw(values), *drawn[2:]]
        operations[name] = [*_NUMBERS] if kind != "text" else [{"vocab": {"size": 3}}, {"hash": {"buckets": 7}}]
    columns["y"] = [row % 2 for row in range(count)]

    def compute(columns: Columns, training: reference.Training) -> Expected:
        expected_features: dict[str, Any] = {}
        for name in operations:
            values = columns[name]
            if name.startswith("text"):
                expected_features[f"{name}_vocab"] = zoo_tables.vocabulary_ids(values, training, 3)
                expected_features[f"{name}_hash"] = reference.hash_texts(
                    [None if v is None else v.encode() for v in values], 7
                )
                continue
            expected_features |= {
                f"{name}_z_score": reference.z_score(values, training),
                f"{name}_log": reference.log(values, training),
                f"{name}_min_max": reference.min_max(values, training),
                f"{name}_pass_through": reference.pass_through(values),
                f"{name}_missing": reference.missing(values),
            }
        return expected_features

    stored = draw(st.sampled_from(["csv", "parquet"]))
    features = {"columns": operations}
    with_rows = zoo_tables.with_rows(columns)
    return Table(with_rows, features, compute, "y", lambda table: np.array(table["y"]), stored=stored)


@pytest.mark.slow
def test_features_of_random_tables(tmp_path_factory: pytest.TempPathFactory) -> None:
    _check(10, 0, tmp_path_factory)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(1, 11))
def test_features_of_many_random_tables(part: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    _check(50, part, tmp_path_factory)


def _check(count: int, number: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    @seed(number)
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(tables())
    def check(table: Table) -> None:
        folder = tmp_path_factory.mktemp("random")
        transformed = zoo_runs.run(table, folder)
        zoo_runs.assert_features(table, transformed)
        np.testing.assert_array_equal(zoo_runs.values_of(transformed)["label"], table.labels(table.columns))

    check()
