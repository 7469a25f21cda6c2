"""Tests of parsing and checking requests in the exported graph."""

from __future__ import annotations

import math
from typing import Any

import pytest
import tensorflow as tf

from components.results.request_schema import Column
from components.trainer.packed_columns import SparseColumn
from components.trainer.request_parsing import parse_requests

SPECS = {
    "fare": tf.io.VarLenFeature(tf.float32),
    "hour": tf.io.VarLenFeature(tf.int64),
    "payment": tf.io.VarLenFeature(tf.string),
    "tags": tf.io.VarLenFeature(tf.string),
    "past": tf.io.VarLenFeature(tf.int64),
    "pair": tf.io.FixedLenFeature([2], tf.float32),
}
COLUMNS = {
    "fare": Column(dtype="float32", required=True),
    "hour": Column(dtype="int64", required=True),
    "payment": Column(dtype="string"),
    "tags": Column(dtype="string", most_values=3),
    "past": Column(dtype="int64", most_values=None),
    "pair": Column(dtype="float32", required=True, most_values=2),
}
ROW: dict[str, Any] = {
    "fare": [1.5],
    "hour": [3],
    "payment": [b"Cash"],
    "tags": [b"a", b"b"],
    "past": [],
    "pair": [1.0, 2.0],
}


def example(**columns: Any) -> bytes:
    """Serialize ROW with the given values in these columns. A column with None is left out."""
    features = {}
    for name, values in {**ROW, **columns}.items():
        if values is None:
            continue
        kinds: dict[Any, Any] = {
            tf.float32: lambda items: tf.train.Feature(float_list=tf.train.FloatList(value=items)),
            tf.int64: lambda items: tf.train.Feature(int64_list=tf.train.Int64List(value=items)),
            tf.string: lambda items: tf.train.Feature(bytes_list=tf.train.BytesList(value=items)),
        }
        features[name] = kinds[SPECS[name].dtype](values)
    return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


@pytest.fixture(scope="module")
def parse() -> Any:
    """Return the parser, compiled into a graph."""
    spec = tf.TensorSpec([None], tf.string)
    return tf.function(lambda serialized: parse_requests(serialized, SPECS, COLUMNS), [spec], autograph=False)


def test_valid_rows_are_parsed_as_by_parse_example(parse: Any) -> None:
    rows = tf.constant([example(), example(payment=None, tags=[b"c"], past=[1, 2, 3, 4]), example(hour=[-(2**63)])])
    expected, parsed = tf.io.parse_example(rows, SPECS), parse(rows)
    assert set(parsed) == set(expected)
    for name, values in expected.items():
        assert isinstance(parsed[name], SparseColumn) == isinstance(values, tf.SparseTensor)
        parts = [tf.nest.flatten(column, expand_composites=True) for column in (parsed[name], values)]
        actual, expected_values = ([part.numpy().tolist() for part in column_parts] for column_parts in parts)
        assert actual == expected_values, name


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"fare": None}, "Feature: fare .*is required"),
        ({"hour": []}, "Key: hour"),
        ({"fare": [1.0, 2.0]}, "Key: fare"),
        ({"payment": [b"a", b"b"]}, "at most one value.*payment"),
        ({"tags": [b"a"] * 4}, "at most one value.*tags"),
        ({"fare": [math.nan]}, "a finite number.*fare"),
        ({"fare": [math.inf]}, "a finite number.*fare"),
        ({"pair": [1.0]}, "Key: pair"),
    ],
)
def test_invalid_rows_are_rejected(parse: Any, columns: dict[str, Any], words: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"(?s){words}"):
        parse(tf.constant([example(), example(**columns)]))


def test_columns_without_a_description_are_not_checked() -> None:
    rows = tf.constant([example(fare=None, payment=[b"a", b"b"])])
    parsed = parse_requests(rows, SPECS, {})
    assert (parsed["fare"].values.shape, parsed["payment"].values.shape) == ((0,), (2,))


def test_empty_batch_can_be_parsed() -> None:
    parsed = parse_requests(tf.constant([], tf.string), SPECS, COLUMNS)
    rows = {name: getattr(column, "values", column).shape[0] for name, column in parsed.items()}
    assert rows == dict.fromkeys(SPECS, 0)


@pytest.mark.parametrize("default", [None, 7, [7, 8]])
def test_defaults_come_from_the_spec(default: Any) -> None:
    shape = [2] if isinstance(default, list) else []
    specs = {"hour": tf.io.FixedLenFeature(shape, tf.int64, default), "fare": tf.io.VarLenFeature(tf.float32)}
    rows = tf.constant([example(hour=None)])
    if default is None:
        with pytest.raises(tf.errors.InvalidArgumentError, match="hour"):
            parse_requests(rows, specs, {})
    else:
        expected = tf.io.parse_example(rows, specs)["hour"].numpy().tolist()
        assert parse_requests(rows, specs, {})["hour"].numpy().tolist() == expected == [default]
