"""What a user's function `model.train` returns, and its conversion to a network of this project."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf
import tf_keras

from components.base.errors import InputError
from components.models.inputs import Inputs
from components.models.layers import input_layers
from components.trainer.prediction_head import BinaryHead, PredictionHead, RegressionHead

Output: TypeAlias = Literal["prediction", "logits", "logarithm"]
"""What a model computes. `prediction`: the probability of class 1, the probabilities of all classes, or the number.
`logits`: numbers whose sigmoid or softmax is the prediction. `logarithm`: the logarithm of the number."""
Predict: TypeAlias = Callable[[pa.Table], npt.ArrayLike]
"""Rows, such as `TrainingData.validation` → the predictions of a library's own model, [rows] or [rows, outputs]."""

_LEAST = 1e-7
"""Minimum probability: the logarithm of 0 is not finite."""


@dataclass(frozen=True)
class OnnxModel:
    """A model in the ONNX format, as PyTorch exports it.

    An input whose name is a feature reads this feature. Any other input reads `TrainingData.numbers`, [rows, columns].

    Attributes:
      content: The model, serialized.
      predict: The predictions of the library, to compare the exported model with.
      output: What the model computes.
    """

    content: bytes
    predict: Predict
    output: Output = "prediction"


@dataclass(frozen=True)
class TensorFlowModel:
    """A function of TensorFlow, such as a callable tf.Module.

    Attributes:
      call: Transformed features by name, as the columns of the tables → float32 [rows] or [rows, outputs].
      output: What it computes.
    """

    call: Callable[[dict[str, tf.Tensor]], tf.Tensor]
    output: Output = "prediction"


@dataclass(frozen=True)
class Predictor:
    """A model that was converted to TensorFlow.

    Attributes:
      layer: Layer from transformed features, by name, to values of shape [rows] or [rows, outputs].
      output: What the layer computes.
      predict: The predictions of the library's own model.
      predict_output: What `predict` computes.
      classes: Indices of the classes that the values are for; None if they are for all classes.
    """

    layer: tf_keras.layers.Layer
    output: Output
    predict: Predict
    predict_output: Output = "prediction"
    classes: Sequence[int] | None = None

    def build_network(self, features: Inputs, head: PredictionHead) -> tf_keras.Model:
        """Build the network from transformed features to the logits of a head."""
        tensors = input_layers(features)
        to_logits = tf_keras.layers.Lambda(lambda values: self._to_logits(values, self.output, head), dtype="float32")
        return tf_keras.Model(tensors, to_logits(self.layer(tensors)), name="converted")

    def compute_expected_logits(self, table: pa.Table, head: PredictionHead) -> tf.Tensor:
        """Compute the logits of a head from the predictions of the library's own model."""
        values = tf.constant(np.asarray(self.predict(table)), tf.float32)
        return self._to_logits(values, self.predict_output, head)

    def _to_logits(self, values: tf.Tensor, output: Output, head: PredictionHead) -> tf.Tensor:
        """Convert values to the logits of a head, [rows, outputs]."""
        expected = head.outputs if self.classes is None else len(self.classes)
        values = values[:, tf.newaxis] if values.shape.rank == 1 else values
        if self.classes is not None and expected == 2 and values.shape[1] == 1:
            # A library computes one logit if only two of the classes have rows.
            values = tf.concat([tf.zeros_like(values), values], axis=1)
        if values.shape.rank != 2 or values.shape[1] != expected:
            raise InputError(
                f"model.train: expected a model with predictions of shape [rows, {expected}], received "
                f"{[*values.shape]}",
                "return a model of the label; a binary label has one output, which is the probability of class 1",
            )
        is_regression = isinstance(head, RegressionHead)
        if output == ("logits" if is_regression else "logarithm"):
            task = "a regression" if is_regression else "a classification"
            raise InputError(
                f"model.train: expected a model for {task}, received one that computes the {output}",
                "choose the objective of the library that fits data.task",
            )
        if is_regression:
            shift, unit = head.scale or (0.0, 1.0)
            return ((tf.exp(values) if output == "logarithm" else values) - shift) / unit
        if isinstance(head, BinaryHead):
            bounded = tf.clip_by_value(values, _LEAST, 1 - _LEAST)
            return values if output == "logits" else tf.math.log(bounded) - tf.math.log1p(-bounded)
        logits = tf.nn.log_softmax(values) if output == "logits" else tf.math.log(tf.maximum(values, _LEAST))
        if self.classes is None:
            return logits
        # Classes without rows to train on have the minimum probability.
        position = np.full(head.outputs, expected)
        position[np.asarray(self.classes)] = np.arange(expected)
        absent = tf.fill([tf.shape(logits)[0], 1], tf.math.log(_LEAST))
        return tf.gather(tf.concat([logits, absent], axis=1), position, axis=1)


class FunctionLayer(tf_keras.layers.Layer):  # type: ignore[misc]
    """Calls a function of TensorFlow, and keeps its variables.

    Args:
      call: Transformed features by name → values.
      features: The transformed features.
    """

    def __init__(self, call: Callable[[dict[str, tf.Tensor]], tf.Tensor], features: Inputs) -> None:
        super().__init__(trainable=False, dtype="float32", name="function")
        names = _list_input_names(call)
        self._function: Callable[[dict[str, tf.Tensor]], tf.Tensor] = lambda tensors: call(
            {name: tensors[name] for name in names} if names else tensors  # A Keras model refuses further inputs.
        )
        specs = {
            name: tf.TensorSpec(tensor.shape, tensor.dtype, name=name)
            for name, tensor in input_layers(features).items()
        }
        # Tracing finds the variables, also of a Keras 3 model, whose variables are not tf.Variables.
        traced: Any = tf.function(self._function, autograph=False)
        self._captured = [*traced.get_concrete_function(specs).graph.variables]

    def call(self, features: dict[str, tf.Tensor]) -> tf.Tensor:
        """Return the function's values."""
        return self._function(features)


def _list_input_names(call: Any) -> list[str]:
    """Return the names of the inputs of a Keras model; empty for any other function."""
    inputs = getattr(call, "inputs", None) or []
    return [tensor.name for tensor in inputs if isinstance(getattr(tensor, "name", None), str)]
