"""Models that LightGBM, XGBoost and PyTorch stored predict in TensorFlow what the libraries predicted.

tests/support/programs/framework_models.py trained the models and wrote these files.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.base.errors import InputError
from components.models.forest import TreeInput, matrix
from components.results.model_outputs import PREDICTION_KEY
from components.trainer.frameworks import lightgbm_trees, onnx_format, xgboost_trees
from components.trainer.frameworks.conversion import convert
from components.trainer.frameworks.predictor import OnnxModel, Output, Predictor
from components.trainer.frameworks.training_data import TrainingData
from tests.support.data.framework_rows import FEATURES, HEADS, make_data
from tests.support.data.tolerances import Tolerance

STORED = Path(__file__).parents[4] / "support" / "data" / "frameworks"
NAMES = sorted(path.stem for path in STORED.glob("*.json"))


def read(name: str) -> tuple[Any, Any, Any]:
    """Return a stored model, the numbers that it read, and its predictions; [rows, columns] and [rows, outputs]."""
    content = json.loads((STORED / f"{name}.json").read_text())
    predictions = np.array(content["predictions"], np.float32)
    return content["model"], np.array(content["numbers"], np.float32), predictions.reshape(len(predictions), -1)


def find_task(name: str) -> str:
    task = name.partition("_")[2]
    return {"sigmoid": "binary", "average": "binary", "poisson": "regression", "parallel": "multiclass"}.get(task, task)


def to_features(numbers: Any) -> dict[str, tf.Tensor]:
    """Return transformed features whose matrix is these numbers."""
    words = numbers[:, 5:] * np.arange(1, 6)
    return {
        "age_z_score": tf.constant(numbers[:, 0]),
        "city_vocab": tf.constant(numbers[:, 1], tf.int64),
        "hours_bins": tf.constant(numbers[:, 2:5]),
        "words_tokens": tf.constant(words, tf.int64),
    }


def convert_stored(name: str, model: Any, data: TrainingData) -> Predictor:
    columns = list(range(len(data.columns)))
    if name.startswith("onnx"):
        content, output = base64.b64decode(model), "logits"
        return convert(OnnxModel(content, lambda table: table, output), data, FEATURES)  # type: ignore[arg-type]
    layer: tf_keras.layers.Layer
    kind: Output
    if name.startswith("lightgbm"):
        layer, kind = lightgbm_trees.convert(model, data.inputs, columns)
    else:
        layer, kind = xgboost_trees.convert(model, None, data.inputs, columns)
    return Predictor(layer, kind, lambda table: table)


def predict(predictor: Predictor, task: str, features: dict[str, tf.Tensor]) -> Any:
    head = HEADS[task]
    logits = predictor._to_logits(predictor.layer(features), predictor.output, head)
    return head.outputs_by_name(logits)[PREDICTION_KEY[task]].numpy()


def test_models_of_every_library_are_stored() -> None:
    assert {name.partition("_")[0] for name in NAMES} == {"lightgbm", "xgboost", "onnx"}


@pytest.mark.parametrize("name", NAMES)
def test_stored_model_predicts_the_same(name: str) -> None:
    model, numbers, expected = read(name)
    task = find_task(name)
    data, features = make_data(task, 5), to_features(numbers)
    np.testing.assert_array_equal(matrix(data.inputs, features), numbers)
    predicted = predict(convert_stored(name, model, data), task, features)
    unit = 30 if task == "regression" else 1
    Tolerance(1e-6, 1e-5 * unit).assert_close(predicted, expected)
    assert np.ptp(expected) > 0.2 * unit, "the model predicts different values"


def test_network_of_several_inputs_is_exported_with_its_features() -> None:
    model, numbers, expected = read("onnx_binary")
    data = make_data("binary", 5)
    network = convert_stored("onnx_binary", model, data).build_network(FEATURES, HEADS["binary"])
    assert len(network.variables) == 3, "the table, the weights and the bias"
    Tolerance(1e-6, 1e-5).assert_close(tf.sigmoid(network(to_features(numbers))), expected)


def test_unknown_category_goes_the_way_of_other_categories() -> None:
    """As LightGBM documents it: a category without a condition goes right."""
    tree = {
        "split_feature": 1,
        "decision_type": "==",
        "threshold": "2||5",
        "missing_type": "None",
        "left_child": {"leaf_value": 1.0},
        "right_child": {"leaf_value": -1.0},
    }
    dump = {"objective": "regression", "num_tree_per_iteration": 1, "tree_info": [{"tree_structure": tree}]}
    inputs = (TreeInput("age", "number"), TreeInput("city", "number"))
    layer, _ = lightgbm_trees.convert(dump, inputs, [0, 1])
    ids = [0, 1, 2, 3, 5, 6, 99]
    values = layer({"age": tf.zeros(len(ids)), "city": tf.constant(ids, tf.int64)})
    assert [number for number, [value] in zip(ids, values.numpy(), strict=True) if value > 0] == [2, 5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"objective": "multiclassova num_class:3"}, "received objective multiclassova num_class:3"),
        ({"objective": "regression sqrt"}, "received objective regression sqrt"),
        ({"objective": ""}, "received objective none"),
    ],
)
def test_objectives_without_a_conversion_are_refused(change: dict[str, Any], message: str) -> None:
    model, _, _ = read("lightgbm_binary")
    data = make_data("binary", 5)
    with pytest.raises(InputError, match=message):
        lightgbm_trees.convert({**model, **change}, data.inputs, list(range(len(data.columns))))
    model, _, _ = read("xgboost_binary")
    model["learner"]["gradient_booster"]["name"] = "dart"
    with pytest.raises(InputError, match="received booster dart with objective binary:logistic"):
        xgboost_trees.convert(model, None, data.inputs, list(range(len(data.columns))))


def test_objective_of_another_task_is_refused() -> None:
    model, numbers, _ = read("lightgbm_binary")
    data = make_data("regression", 5)
    predictor = convert_stored("lightgbm_binary", model, data)
    with pytest.raises(InputError, match="expected a model for a regression, received one that computes the logits"):
        predict(predictor, "regression", to_features(numbers))
    with pytest.raises(InputError, match=r"predictions of shape \[rows, 3\], received \[60, 1\]"):
        predict(predictor, "multiclass", to_features(numbers))


def test_operation_that_is_not_converted_is_refused() -> None:
    content = base64.b64decode(read("onnx_multiclass")[0])
    data = make_data("multiclass", 5)
    unknown = content.replace(b"LayerNormalization", b"LayerNormalizatioX")
    assert unknown != content
    with pytest.raises(InputError, match="received LayerNormalizatioX"):
        convert(OnnxModel(unknown, lambda table: table), data, FEATURES)
    for broken, received in ((b"no model", "bytes that cannot be parsed"), (b"", "a model without nodes")):
        with pytest.raises(InputError, match=received):
            onnx_format.parse(broken)
