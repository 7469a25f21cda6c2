"""The inferred schema: TFDV's where every split has values in all columns, and a place for columns that are empty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from components.data.examples import to_lists
from components.data_gate.inferred_schema import infer
from components.statistics.combine import StatisticsFn

pytestmark = pytest.mark.both_lines

FULL = {"city": [b"Rome", b"Oslo"], "size": [[1, 2], [3, 4]], "age": [7, 8]}
OTHER = {**FULL, "city": [b"Rome", b"Bonn"]}
GAPS = {**FULL, "age": [7, None]}
EMPTY = {**FULL, "city": [None, None], "size": [None, None]}
NO_ROWS: dict[str, list[Any]] = {name: [] for name in FULL}


def statistics(*splits: dict[str, list[Any]]) -> list[statistics_pb2.DatasetFeatureStatisticsList]:
    combine = StatisticsFn(tfdv.StatsOptions().to_json())
    combine.setup()
    batches = [to_lists(pa.RecordBatch.from_pydict({name: pa.array(rows[name]) for name in rows})) for rows in splits]
    return [combine.extract_output(combine.add_input(combine.create_accumulator(), batch)) for batch in batches]


def features(schema: schema_pb2.Schema) -> dict[str, schema_pb2.Feature]:
    return {feature.name: feature for feature in schema.feature}


def assert_accepts(schema: schema_pb2.Schema, splits: Sequence[statistics_pb2.DatasetFeatureStatisticsList]) -> None:
    for split in splits:
        assert not tfdv.validate_statistics(split, schema).anomaly_info


@pytest.mark.parametrize("shapes", [True, False])
@pytest.mark.parametrize("splits", [(FULL, OTHER), (FULL, GAPS), (GAPS, FULL)])
def test_columns_with_values_in_each_split_are_as_tfdv_infers_them(splits: Any, shapes: bool) -> None:
    given = statistics(*splits)
    expected = tfdv.update_schema(tfdv.infer_schema(given[0], shapes), given[1])
    schema = infer(given, shapes)
    assert features(schema) == features(expected)
    assert schema.string_domain == expected.string_domain
    assert features(schema)["size"].HasField("shape") is shapes
    assert features(schema)["age"].HasField("shape") is (shapes and GAPS not in splits)


@pytest.mark.parametrize("splits", [(FULL, EMPTY, OTHER), (EMPTY, FULL, OTHER), (FULL, OTHER, EMPTY)])
def test_column_that_is_empty_in_one_split_has_the_type_of_its_values_and_may_be_missing(splits: Any) -> None:
    given = statistics(*splits)
    schema = infer(given, True)
    found = features(schema)
    assert found["size"].type == schema_pb2.INT
    assert (found["size"].value_count.min, found["size"].value_count.max) == (2, 2)
    for name in ("city", "size"):
        assert not found[name].HasField("shape")
        assert not found[name].HasField("presence")
        assert found[name].lifecycle_stage == schema_pb2.UNKNOWN_STAGE
    assert found["city"].type == schema_pb2.BYTES
    assert [sorted(domain.value) for domain in schema.string_domain] == [["Bonn", "Oslo", "Rome"]]
    assert found["age"].HasField("shape")
    assert_accepts(schema, given)


@pytest.mark.parametrize("splits", [(EMPTY,), (EMPTY, EMPTY)])
def test_column_without_any_value_is_bytes(splits: Any) -> None:
    given = statistics(*splits)
    schema = infer(given, True)
    assert features(schema)["city"].type == features(schema)["size"].type == schema_pb2.BYTES
    assert features(schema) == features(tfdv.infer_schema(given[0]))
    assert_accepts(schema, given)


def test_split_without_rows_leaves_every_column_in_the_schema() -> None:
    given = statistics(FULL, NO_ROWS)
    schema = infer(given, True)
    assert {name: feature.type for name, feature in features(schema).items()} == {
        "age": schema_pb2.INT,
        "city": schema_pb2.BYTES,
        "size": schema_pb2.INT,
    }
