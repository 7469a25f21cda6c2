"""SavedModels that the columnar Evaluator supports, and predictions of rows whose columns are permuted."""

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

from components.base.config_section import Task
from components.evaluator import saved_model
from components.evaluator.saved_model import Model, find_unsupported


def write(folder: Path, outputs: dict[str, list[int] | None], inputs: int = 1) -> str:
    saved = saved_model_pb2.SavedModel()
    signature = saved.meta_graphs.add().signature_def["serving_default"]
    for number in range(inputs):
        input_info = signature.inputs[f"examples{number}"]
        input_info.dtype = types_pb2.DT_STRING
        input_info.tensor_shape.dim.add(size=-1)
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
def test_shape_of_the_predictions_must_fit_the_task(
    task: Task, outputs: dict[str, list[int] | None], key: str, reason: str | None, tmp_path: Path
) -> None:
    spec = tfma.ModelSpec(signature_name="serving_default", prediction_key=key)
    assert find_unsupported(write(tmp_path, outputs), spec, task) == reason


def test_signatures_must_take_serialized_examples(tmp_path: Path) -> None:
    spec = tfma.ModelSpec(signature_name="serving_default", preprocessing_function_names=["labels"])
    assert find_unsupported(write(tmp_path, {"p": [-1]}, inputs=2), spec, "binary") == (
        "signature serving_default, which does not take serialized tf.Examples alone"
    )
    assert str(find_unsupported(write(tmp_path, {"p": [-1]}), spec, "binary")).startswith("signature labels,")


class Lengths(tf.Module):  # type: ignore[misc]
    """A model with the signatures of this project: the probability is the number times the length of the word."""

    def predict(self, columns: dict[str, Any]) -> dict[str, Any]:
        lengths = tf.cast(tf.strings.length(columns["word"]), tf.float32)
        return {"probability": (columns["number"] * lengths)[:, None]}

    def save(self, path: Path) -> None:
        features = {name: tf.io.FixedLenFeature([], dtype) for name, dtype in DTYPES.items()}
        columns = {name: tf.TensorSpec([None], dtype, name=name) for name, dtype in DTYPES.items()}
        serve = tf.function(
            lambda examples: self.predict(tf.io.parse_example(examples, features)),
            input_signature=[tf.TensorSpec([None], tf.string, name="examples")],
        )
        raw = tf.function(self.predict, input_signature=[columns])
        tf.saved_model.save(self, str(path), signatures={"serving_default": serve, "raw": raw})


DTYPES = {"number": tf.float32, "word": tf.string}


@pytest.mark.both_lines
def test_permuted_columns_are_converted_once_and_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Lengths().save(tmp_path)
    spec = tfma.ModelSpec(signature_name="serving_default", prediction_key="probability", label_key="label")
    model = Model(str(tmp_path), spec, ("label",))
    numbers, words = np.float32([0.5, 0.25, 1.0]), [b"a", b"bcd", b""]
    columns = [pa.array([[number] for number in numbers.tolist()], pa.large_list(pa.float32()))]

    def lists(texts: list[bytes]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [*columns, pa.array([[text] for text in texts], pa.large_list(pa.large_binary()))], list(DTYPES)
        )

    converted = []
    convert = saved_model.raw_columns
    monkeypatch.setattr(
        saved_model, "raw_columns", lambda *arguments: converted.append(arguments) or convert(*arguments)
    )
    order = np.array([1, 2, 0])
    # In the signature `raw` an empty text means missing, so rows with an empty text are sent as tf.Examples instead.
    for texts, conversions in (([b"a", b"bcd", b"ef"], 1), (words, 3)):
        converted.clear()
        predict = model.recombine(lists(texts))
        lengths = np.float32([len(texts[at]) for at in order])
        np.testing.assert_array_equal(predict({"word": order})[0], numbers * lengths)
        expected = numbers[order] * np.float32(list(map(len, texts)))
        np.testing.assert_array_equal(predict({"number": order})[0], expected)
        assert len(converted) == conversions
