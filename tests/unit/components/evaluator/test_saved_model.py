"""Which SavedModels are evaluated from columns, and which values the signature `raw` can get as columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import saved_model_pb2

from components.config_section import Task
from components.evaluator.saved_model import raw_columns, unsupported

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


def write(folder: Path, outputs: dict[str, list[int] | None], inputs: int = 1) -> str:
    saved = saved_model_pb2.SavedModel()
    signature = saved.meta_graphs.add().signature_def["serving_default"]
    for number in range(inputs):
        given = signature.inputs[f"examples{number}"]
        given.dtype = types_pb2.DT_STRING
        given.tensor_shape.dim.add(size=-1)
    for name, sizes in outputs.items():
        shape = signature.outputs[name].tensor_shape
        shape.unknown_rank = sizes is None
        for size in sizes or ():
            shape.dim.add(size=size)
    (folder / "saved_model.pb").write_bytes(saved.SerializeToString())
    return str(folder)


@pytest.mark.parametrize(
    ("task", "outputs", "key", "reason"),
    [
        ("binary", {"p": [-1, 1]}, "p", None),
        ("regression", {"p": [-1]}, "", None),
        ("multiclass", {"p": [-1, 7], "q": [-1]}, "p", None),
        ("binary", {"p": [-1, 2]}, "p", "predictions of shape [-1, 2]"),
        ("multiclass", {"p": [-1]}, "p", "predictions of shape [-1]"),
        ("binary", {"p": None}, "p", "predictions of unknown shape"),
        ("binary", {"p": [-1], "q": [-1]}, "", "outputs p, q of signature serving_default"),
        ("binary", {"p": [-1]}, "r", "outputs p of signature serving_default"),
    ],
)
def test_predictions_have_the_shape_of_the_task(
    task: Task, outputs: dict[str, list[int] | None], key: str, reason: str | None, tmp_path: Path
) -> None:
    spec = tfma.ModelSpec(signature_name="serving_default", prediction_key=key)
    assert unsupported(write(tmp_path, outputs), spec, task) == reason


def test_signatures_take_serialized_examples(tmp_path: Path) -> None:
    spec = tfma.ModelSpec(signature_name="serving_default", preprocessing_function_names=["labels"])
    assert unsupported(write(tmp_path, {"p": [-1]}, inputs=2), spec, "binary") == (
        "signature serving_default, which does not take serialized tf.Examples alone"
    )
    assert str(unsupported(write(tmp_path, {"p": [-1]}), spec, "binary")).startswith("signature labels,")
