"""Which values the signature `raw` can get as columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from components.data.saved_model import raw_columns

INPUTS = {
    "age": tf.TensorSpec([None], tf.int64),
    "fare": tf.TensorSpec([None]),
    "plan": tf.TensorSpec([None], tf.string),
}
TYPES = {"age": pa.int64(), "fare": pa.float32(), "plan": pa.large_binary()}
VALUES: dict[str, list[Any]] = {
    "age": [[3], None, [-4]],
    "fare": [None, [0.5], [np.inf]],
    "plan": [[b"a"], [b"b"], None],
}


def batch(**replaced: Any) -> pa.RecordBatch:
    arrays = {
        name: values if isinstance(values, pa.Array) else pa.array(values, pa.large_list(TYPES[name]))
        for name, values in {**VALUES, **replaced}.items()
    }
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def test_columns_have_one_value_for_each_row_or_that_of_a_missing_one() -> None:
    found = raw_columns(batch(), INPUTS)
    assert found is not None
    assert found["age"].tolist() == [3, np.iinfo(np.int64).min, -4]
    np.testing.assert_array_equal(found["fare"], np.array([np.nan, 0.5, np.inf], np.float32))
    assert found["plan"].tolist() == [b"a", b"b", b""]
    assert {name: each.dtype for name, each in found.items()} == {"age": np.int64, "fare": np.float32, "plan": object}


def test_part_of_a_batch_and_a_column_without_values() -> None:
    found = raw_columns(batch(age=pa.nulls(3)).slice(1, 2), INPUTS)
    assert found is not None
    assert found["age"].tolist() == [np.iinfo(np.int64).min] * 2
    assert found["plan"].tolist() == [b"b", b""]


def test_histories_are_made_equally_long() -> None:
    histories = {name: tf.TensorSpec([None, None], spec.dtype) for name, spec in INPUTS.items()}
    missing = np.iinfo(np.int64).min
    given = {"age": [[3, 4], None, [5, 6, 7]], "fare": pa.nulls(3), "plan": [[b"a"], [b"b", b"c"], []]}
    found = raw_columns(batch(**given), histories)
    assert found is not None
    assert found["age"].tolist() == [[3, 4, missing], [missing] * 3, [5, 6, 7]]
    assert np.isnan(found["fare"]).all()
    assert found["fare"].shape == (3, 1)
    assert found["plan"].tolist() == [[b"a", b""], [b"b", b"c"], [b"", b""]]
    found = raw_columns(batch(**given).slice(1, 2), histories)
    assert found is not None
    assert found["age"].tolist() == [[missing] * 3, [5, 6, 7]]
    assert raw_columns(batch(plan=[[b"a", b""], None, None]), histories) is None


@pytest.mark.parametrize(
    "replaced",
    [
        {"age": [[3, 4], [1], [1]]},
        {"age": [[np.iinfo(np.int64).min], [1], [1]]},
        {"fare": [[np.nan], [0.5], None]},
        {"plan": [[b""], [b"a"], None]},
        {"age": pa.array([[0.5], None, None], pa.large_list(pa.float32()))},
    ],
    ids=["several values", "smallest integer", "NaN", "empty text", "another type"],
)
def test_values_that_raw_would_read_otherwise_are_left_to_examples(replaced: dict[str, Any]) -> None:
    assert raw_columns(batch(**replaced), INPUTS) is None
