"""The inferred schema equals TFDV's unless a column is entirely missing in a split."""

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
def test_columns_with_values_in_every_split_are_inferred_as_by_tfdv(splits: Any, shapes: bool) -> None:
    split_statistics = statistics(*splits)
    expected = tfdv.update_schema(tfdv.infer_schema(split_statistics[0], shapes), split_statistics[1])
    schema = infer(split_statistics, shapes)
    assert features(schema) == features(expected)
    assert schema.string_domain == expected.string_domain
    assert features(schema)["size"].HasField("shape") is shapes
    assert features(schema)["age"].HasField("shape") is (shapes and GAPS not in splits)


@pytest.mark.parametrize("splits", [(FULL, EMPTY, OTHER), (EMPTY, FULL, OTHER), (FULL, OTHER, EMPTY)])
def test_column_that_is_empty_in_one_split_keeps_its_type_and_is_optional(splits: Any) -> None:
    split_statistics = statistics(*splits)
    schema = infer(split_statistics, True)
    inferred = features(schema)
    assert inferred["size"].type == schema_pb2.INT
    assert (inferred["size"].value_count.min, inferred["size"].value_count.max) == (2, 2)
    for name in ("city", "size"):
        assert not inferred[name].HasField("shape")
        assert not inferred[name].HasField("presence")
        assert inferred[name].lifecycle_stage == schema_pb2.UNKNOWN_STAGE
    assert inferred["city"].type == schema_pb2.BYTES
    assert [sorted(domain.value) for domain in schema.string_domain] == [["Bonn", "Oslo", "Rome"]]
    assert inferred["age"].HasField("shape")
    assert_accepts(schema, split_statistics)


@pytest.mark.parametrize("splits", [(EMPTY,), (EMPTY, EMPTY)])
def test_column_without_values_has_the_type_bytes(splits: Any) -> None:
    split_statistics = statistics(*splits)
    schema = infer(split_statistics, True)
    assert features(schema)["city"].type == features(schema)["size"].type == schema_pb2.BYTES
    assert features(schema) == features(tfdv.infer_schema(split_statistics[0]))
    assert_accepts(schema, split_statistics)


def test_split_without_rows_does_not_remove_columns() -> None:
    split_statistics = statistics(FULL, NO_ROWS)
    schema = infer(split_statistics, True)
    assert {name: feature.type for name, feature in features(schema).items()} == {
        "age": schema_pb2.INT,
        "city": schema_pb2.BYTES,
        "size": schema_pb2.INT,
    }
