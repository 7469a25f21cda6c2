"""The parser of requests in the exported graph."""

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
    """Serialize a row: ROW with other values in these columns; None: without the column."""
    features = {}
    for name, values in {**ROW, **columns}.items():
        if values is None:
            continue
        kinds: dict[Any, Any] = {
            tf.float32: lambda each: tf.train.Feature(float_list=tf.train.FloatList(value=each)),
            tf.int64: lambda each: tf.train.Feature(int64_list=tf.train.Int64List(value=each)),
            tf.string: lambda each: tf.train.Feature(bytes_list=tf.train.BytesList(value=each)),
        }
        features[name] = kinds[SPECS[name].dtype](values)
    return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


@pytest.fixture(scope="module")
def parse() -> Any:
    """Return the parser as a graph."""
    spec = tf.TensorSpec([None], tf.string)
    return tf.function(lambda serialized: parse_requests(serialized, SPECS, COLUMNS), [spec], autograph=False)


def test_usual_rows_are_parsed_as_without_the_check(parse: Any) -> None:
    rows = tf.constant([example(), example(payment=None, tags=[b"c"], past=[1, 2, 3, 4]), example(hour=[-(2**63)])])
    expected, found = tf.io.parse_example(rows, SPECS), parse(rows)
    assert set(found) == set(expected)
    for name, values in expected.items():
        assert isinstance(found[name], SparseColumn) == isinstance(values, tf.SparseTensor)
        parts = [tf.nest.flatten(each, expand_composites=True) for each in (found[name], values)]
        one, other = ([part.numpy().tolist() for part in each] for each in parts)
        assert one == other, name


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
def test_rows_that_cannot_be_right_are_refused(parse: Any, columns: dict[str, Any], words: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"(?s){words}"):
        parse(tf.constant([example(), example(**columns)]))


def test_columns_of_which_nothing_is_known_are_not_checked() -> None:
    rows = tf.constant([example(fare=None, payment=[b"a", b"b"])])
    parsed = parse_requests(rows, SPECS, {})
    assert (parsed["fare"].values.shape, parsed["payment"].values.shape) == ((0,), (2,))


def test_no_row_is_parsed() -> None:
    parsed = parse_requests(tf.constant([], tf.string), SPECS, COLUMNS)
    rows = {name: getattr(column, "values", column).shape[0] for name, column in parsed.items()}
    assert rows == dict.fromkeys(SPECS, 0)


@pytest.mark.parametrize("default", [None, 7, [7, 8]])
def test_defaults_are_those_of_the_spec(default: Any) -> None:
    shape = [2] if isinstance(default, list) else []
    specs = {"hour": tf.io.FixedLenFeature(shape, tf.int64, default), "fare": tf.io.VarLenFeature(tf.float32)}
    rows = tf.constant([example(hour=None)])
    if default is None:
        with pytest.raises(tf.errors.InvalidArgumentError, match="hour"):
            parse_requests(rows, specs, {})
    else:
        expected = tf.io.parse_example(rows, specs)["hour"].numpy().tolist()
        assert parse_requests(rows, specs, {})["hour"].numpy().tolist() == expected == [default]
