"""Which SavedModels are evaluated from columns."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow_model_analysis as tfma
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import saved_model_pb2

from components.config_section import Task
from components.evaluator.saved_model import unsupported


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
