"""Tests of the columns that are passed to the signature `raw`, and of the columns made from a model's outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from components.base.errors import InputError
from components.data.saved_model import convert_outputs, raw_columns

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


def test_columns_have_one_value_per_row_and_a_placeholder_for_missing_values() -> None:
    columns = raw_columns(batch(), INPUTS)
    assert columns is not None
    assert columns["age"].tolist() == [3, np.iinfo(np.int64).min, -4]
    np.testing.assert_array_equal(columns["fare"], np.array([np.nan, 0.5, np.inf], np.float32))
    assert columns["plan"].tolist() == [b"a", b"b", b""]
    assert {name: column.dtype for name, column in columns.items()} == {
        "age": np.int64,
        "fare": np.float32,
        "plan": object,
    }


def test_sliced_batch_with_an_empty_column_is_converted() -> None:
    columns = raw_columns(batch(age=pa.nulls(3)).slice(1, 2), INPUTS)
    assert columns is not None
    assert columns["age"].tolist() == [np.iinfo(np.int64).min] * 2
    assert columns["plan"].tolist() == [b"b", b""]


def test_histories_are_padded() -> None:
    histories = {name: tf.TensorSpec([None, None], spec.dtype) for name, spec in INPUTS.items()}
    missing = np.iinfo(np.int64).min
    lists = {"age": [[3, 4], None, [5, 6, 7]], "fare": pa.nulls(3), "plan": [[b"a"], [b"b", b"c"], []]}
    columns = raw_columns(batch(**lists), histories)
    assert columns is not None
    assert columns["age"].tolist() == [[3, 4, missing], [missing] * 3, [5, 6, 7]]
    assert np.isnan(columns["fare"]).all()
    assert columns["fare"].shape == (3, 1)
    assert columns["plan"].tolist() == [[b"a", b""], [b"b", b"c"], [b"", b""]]
    columns = raw_columns(batch(**lists).slice(1, 2), histories)
    assert columns is not None
    assert columns["age"].tolist() == [[missing] * 3, [5, 6, 7]]
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
def test_values_that_raw_would_misread_are_not_converted(replaced: dict[str, Any]) -> None:
    assert raw_columns(batch(**replaced), INPUTS) is None


def test_outputs_become_columns() -> None:
    columns = convert_outputs(
        {
            "probability": np.array([[0.5], [0.25]], np.float32),
            "count": np.array([1, 2]),
            "embedding": np.array([[1, 2, 3], [4, 5, 6]], np.float32),
            "name": np.array([b"a", b"\xff"], object),
        }
    )
    assert {name: (str(column.type), column.to_pylist()) for name, column in columns.items()} == {
        "count": ("int64", [1, 2]),
        "embedding": ("fixed_size_list<item: float>[3]", [[1, 2, 3], [4, 5, 6]]),
        "name": ("string", ["a", "\\xff"]),
        "probability": ("float", [0.5, 0.25]),
    }


def test_classification_becomes_a_prediction_and_a_probability_per_class() -> None:
    classes = np.array([[b"cat", b"dog"]] * 2, object)
    columns = convert_outputs({"probabilities": np.array([[0.25, 0.75], [0.5, 0.5]], np.float32), "classes": classes})
    assert {name: column.to_pylist() for name, column in columns.items()} == {
        "prediction": ["dog", "cat"],
        "probability_cat": [0.25, 0.5],
        "probability_dog": [0.75, 0.5],
    }


def test_multilabel_classification_becomes_a_list_of_classes_and_a_probability_per_class() -> None:
    outputs = {
        "probabilities": np.array([[0.25, 0.75], [0.5, 0.6], [0.1, 0.2]], np.float32),
        "classes": np.array([[b"cat", b"dog"]] * 3, object),
        "predicted": np.array([[0, 1], [1, 1], [0, 0]]),
    }
    columns = convert_outputs(outputs)
    assert list(columns) == ["prediction", "probability_cat", "probability_dog"]
    assert columns["prediction"].to_pylist() == [["dog"], ["cat", "dog"], []]
    np.testing.assert_allclose(columns["probability_dog"], [0.75, 0.6, 0.2], atol=1e-7)


def test_survival_becomes_a_probability_per_time_in_the_order_of_the_times() -> None:
    times = np.array([[97.0, 272.0, 1000.5]] * 2, np.float32)
    outputs = {
        "times": times,
        "survival": np.array([[0.75, 0.5, 0.25], [0.5, 0.25, 0.125]], np.float32),
        "cumulative_hazard": np.ones((2, 3), np.float32),
        "prediction": np.array([[600.0], [300.0]], np.float32),
    }
    columns = convert_outputs(outputs)
    assert list(columns) == ["prediction", "survival_at_97", "survival_at_272", "survival_at_1000.5"]
    assert columns["survival_at_272"].to_pylist() == [0.5, 0.25]


def test_output_of_a_whole_batch_is_rejected() -> None:
    with pytest.raises(InputError, match="output rows: expected one value per row"):
        convert_outputs({"rows": np.array(2)})
