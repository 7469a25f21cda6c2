"""Tests of calling SavedModels of this project and of other sources."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from components.base.errors import InputError
from components.data.examples import to_lists
from components.predictor import model_interface
from tests.support.data import batch_models


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return to_lists(pa.RecordBatch.from_arrays(list(columns.values()), list(columns)))


def test_model_of_this_project_gets_columns(tmp_path: Path) -> None:
    model = model_interface.read(batch_models.own(tmp_path))
    assert (model.signature, model.columns) == ("raw", {"hours": "float", "zip": "bytes"})
    rows = batch(hours=pa.array([20, None, 10], pa.float32()), zip=pa.array([b"007", b"7", None], pa.binary()))
    assert model.predict(rows)["score"].tolist() == [[3.0], [-1.0], [1.0]]


def test_model_of_this_project_gets_examples_if_a_row_has_several_values(tmp_path: Path) -> None:
    model = model_interface.read(batch_models.own(tmp_path))
    rows = batch(hours=pa.array([[10, 40], [], [20]], pa.list_(pa.float32())), zip=pa.array([b"7"] * 3, pa.binary()))
    assert model.predict(rows)["score"].tolist() == [[4.0], [-1.0], [2.0]]


def test_retrieval_signature_gets_columns_like_raw(tmp_path: Path) -> None:
    model = model_interface.read(batch_models.own(tmp_path), "top_k")
    assert (model.signature, model.columns) == ("top_k", {"hours": "float"})
    scores = model.predict(batch(hours=pa.array([20, None], pa.float32())))["scores"]
    np.testing.assert_array_equal(scores, [[20], [np.nan]])
    with pytest.raises(InputError, match="signature top_k: expected at most one value per column and row"):
        model.predict(batch(hours=pa.array([[10, 40], [20]], pa.list_(pa.float32()))))


def test_model_that_parses_examples_gets_all_columns(tmp_path: Path) -> None:
    model = model_interface.read(batch_models.write_doubling_model(tmp_path))
    assert model.columns is None
    rows = batch(number=pa.array([3, -4]), other=pa.array([b"a", None], pa.binary()))
    assert model.predict(rows)["doubled"].tolist() == [6, -8]


def test_columns_are_converted_to_the_dtypes_and_shapes_of_the_model(tmp_path: Path) -> None:
    specs = {
        "small": tf.TensorSpec([None, 1], tf.int32),
        "text": tf.TensorSpec([None], tf.string),
        "pair": tf.TensorSpec([None, 2], tf.float64),
        "flag": tf.TensorSpec([None], tf.bool),
    }
    model = model_interface.read(batch_models.write_identity_model(tmp_path, **specs))
    assert model.columns == {"small": "int", "text": "bytes", "pair": "float", "flag": "int"}
    rows = batch(
        small=pa.array([1, 2]),
        text=pa.array([b"a", b"b"]),
        pair=pa.array([[1, 2], [3, 4]], pa.list_(pa.float32())),
        flag=pa.array([0, 1]),
    )
    assert model.invalid(rows) == {}
    predicted = model.predict(rows)
    assert predicted["small_out"].tolist() == [[1], [2]]
    assert predicted["text_out"].tolist() == [b"a", b"b"]
    assert predicted["pair_out"].tolist() == [[1, 2], [3, 4]]
    assert predicted["flag_out"].tolist() == [False, True]
    assert {name: values.dtype for name, values in predicted.items()} == {
        "small_out": np.int32,
        "text_out": object,
        "pair_out": np.float64,
        "flag_out": np.bool_,
    }


def test_invalid_values_are_reported_by_row_and_column(tmp_path: Path) -> None:
    specs = {"small": tf.TensorSpec([None], tf.int8), "pair": tf.TensorSpec([None, 2], tf.float32)}
    model = model_interface.read(batch_models.write_identity_model(tmp_path, **specs))
    pairs = pa.array([[1, 2], [1], [1, 2]], pa.list_(pa.float32()))
    assert model.invalid(batch(small=pa.array([1, 2, 200]), pair=pairs)) == {
        1: ("pair", "expected 2 values, received one value"),
        2: ("small", "expected int8, received 200"),
    }
    assert model.invalid(batch(small=pa.array([1, None, 3]), pair=pairs.take(pa.array([0, 0, 0])))) == {
        1: ("small", "expected one value, received no value")
    }


def test_models_that_cannot_be_called_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected the folder of a SavedModel"):
        model_interface.read(str(tmp_path))
    images = batch_models.write_identity_model(tmp_path / "images", image=tf.TensorSpec([None, None, 3], tf.float32))
    with pytest.raises(InputError, match=r"a fixed number of values per row, received image: float32 \[-1, -1, 3\]"):
        model_interface.read(images)
    scalar = batch_models.write_identity_model(tmp_path / "scalar", x=tf.TensorSpec([], tf.float32))
    with pytest.raises(InputError, match=r"received x: float32 \[\]"):
        model_interface.read(scalar)
    with pytest.raises(InputError, match="the signature 'serving', received none; did you mean 'serving_default'"):
        model_interface.read(scalar, "serving")
