"""Tests of converting the outputs of a model to columns."""

from __future__ import annotations

import numpy as np
import pytest

from components.base.errors import InputError
from components.data import output_columns


def test_outputs_become_columns() -> None:
    columns = output_columns.convert(
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
    columns = output_columns.convert(
        {"probabilities": np.array([[0.25, 0.75], [0.5, 0.5]], np.float32), "classes": classes}
    )
    assert {name: column.to_pylist() for name, column in columns.items()} == {
        "prediction": ["dog", "cat"],
        "probability_cat": [0.25, 0.5],
        "probability_dog": [0.75, 0.5],
    }


def test_output_of_a_whole_batch_is_rejected() -> None:
    with pytest.raises(InputError, match="output rows: expected one value per row"):
        output_columns.convert({"rows": np.array(2)})
