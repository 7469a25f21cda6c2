"""Tests of masking private columns: hashes equal RFC 2104, missing values remain, unknown inputs are not logged."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from components.data.private_columns import PrivateColumns

SECRET = b"a secret of 23 bytes..."
PRIVATE = PrivateColumns({"user": "hash", "city": "hash", "age": "drop"}, SECRET)


def hmac(column: str, text: str) -> bytes:
    """Compute the hash of a value by the definition of HMAC, for a key shorter than the block of 64 bytes."""
    key = np.frombuffer(SECRET.ljust(64, b"\0"), np.uint8)
    inner = hashlib.sha256(bytes(key ^ 0x36) + column.encode() + b"\0" + text.encode()).digest()
    return hashlib.sha256(bytes(key ^ 0x5C) + inner).hexdigest()[:32].encode()


def encode(**columns: list[Any]) -> bytes:
    """Return a tf.Example."""
    example = tf.train.Example()
    for name, values in columns.items():
        feature = example.features.feature[name]
        kinds = {int: feature.int64_list, float: feature.float_list, bytes: feature.bytes_list}
        if values:
            kinds[type(values[0])].value.extend(values)
    return bytes(example.SerializeToString())


def decode(serialized: bytes) -> dict[str, list[Any]]:
    features = tf.train.Example.FromString(serialized).features.feature
    return {name: [*getattr(feature, feature.WhichOneof("kind")).value] for name, feature in features.items()}


def test_columns_by_name_are_hashed_or_dropped() -> None:
    smallest = np.iinfo(np.int64).min
    masked = PRIVATE.mask_request(
        "raw",
        {
            "user": np.array([17, smallest, 17], np.int64),
            "city": np.array([[b"Oslo", b""], [b"17", b"Oslo"]], object),
            "age": np.array([40.5], np.float32),
            "fare": np.array([1.5, np.nan], np.float32),
        },
    )
    assert masked is not None
    assert {name: values.tolist() for name, values in masked.items() if name != "fare"} == {
        "user": [hmac("user", "17"), b"", hmac("user", "17")],
        "city": [[hmac("city", "Oslo"), b""], [hmac("city", "17"), hmac("city", "Oslo")]],
    }
    np.testing.assert_array_equal(masked["fare"], np.array([1.5, np.nan], np.float32))
    assert hmac("city", "17") != hmac("user", "17")


def test_columns_of_examples_are_hashed_or_dropped() -> None:
    rows = [encode(user=[17], city=[b"Oslo", b"Bergen"], age=[40.5], fare=[1.5]), encode(city=[], fare=[2.5])]
    masked = PRIVATE.mask_request("serving_default", {"examples": np.array(rows, object)})
    assert masked is not None
    assert [decode(row) for row in masked["examples"]] == [
        {"user": [hmac("user", "17")], "city": [hmac("city", "Oslo"), hmac("city", "Bergen")], "fare": [1.5]},
        {"fare": [2.5]},
    ]


@pytest.mark.parametrize(
    ("signature", "inputs"),
    [
        ("transform_features", np.array([encode(user=[1])], object)),
        ("matrix", np.zeros([1, 2], np.float32)),
        ("serving_default", np.array([b"not an example"], object)),
        ("serving_default", np.zeros([1, 2], np.float32)),
    ],
)
def test_request_is_not_logged_if_its_columns_are_unknown(signature: str, inputs: Any) -> None:
    assert PRIVATE.mask_request(signature, {"inputs": inputs}) is None


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array([17, None, 17, 8]), ["17", None, "17", "8"]),
        (pa.array([b"17", b"Oslo", None], pa.large_binary()), ["17", "Oslo", None]),
        (pa.array([0.5, float("nan"), None, -0.0], pa.float32()), ["0.5", None, None, "0.0"]),
    ],
)
def test_training_rows_are_hashed_like_requests(column: pa.Array, texts: list[str | None]) -> None:
    expected = [None if text is None else hmac("user", text) for text in texts]
    assert PRIVATE.hash_column("user", column).to_pylist() == expected
    assert PRIVATE.hash_column("fare", column) is column


def test_output_with_the_name_of_a_column_is_masked() -> None:
    outputs = {"age": np.array([1.0]), "user": np.array([b"x"], object), "score": np.array([0.5])}
    masked = PRIVATE.mask_arrays(outputs)
    assert {name: values.tolist() for name, values in masked.items()} == {"user": [hmac("user", "x")], "score": [0.5]}
