"""The SavedModel that leaves the Trainer: the transform graph and the network in one, behind named signatures.

    serving_default     serialized tf.Examples → the answer
    raw                 one tensor per raw column → the answer
    transform_features  serialized tf.Examples → what the network reads
    transform_labels    serialized tf.Examples → the label; for evaluation

The label's own columns are asked for by `transform_labels` alone.

In `raw` every column has shape [batch]. A value is missing where a text is empty, a float is NaN, or a whole number
is the smallest int64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from components.features import names
from components.features.plan import FeaturePlan

MISSING_INT = tf.int64.min


def export(
    network: Any,
    answers: Callable[[Any], dict[str, Any]],
    plan: FeaturePlan,
    transform: tft.TFTransformOutput,
    path: str,
) -> None:
    """Writes the SavedModel.

    Args:
      network: tf_keras model from transformed features to logits.
      answers: logits → named answers.
      plan: the features and the label.
      transform: the transform graph.
      path: the folder to write.
    """
    served = _Served(network, answers, plan, transform)
    tf.saved_model.save(served, path, signatures=served.signatures())


class _Served(tf.Module):  # type: ignore[misc]
    """The network without its optimizer (whose slots would be saved too), and the transform graph."""

    def __init__(
        self,
        network: Any,
        answers: Callable[[Any], dict[str, Any]],
        plan: FeaturePlan,
        transform: tft.TFTransformOutput,
    ) -> None:
        super().__init__()
        self.network = tf_keras.Model(network.inputs, network.outputs)
        self.transform = transform.transform_features_layer()
        self.answers = answers
        self.reads = tuple(tensor.name for tensor in network.inputs)
        raw = transform.raw_feature_spec()
        self.feature_spec = {name: raw[name] for name in plan.features.columns}
        self.label_spec = {name: raw[name] for name in plan.label_expression().columns}

    def signatures(self) -> dict[str, Any]:
        """The functions to serve, by name."""
        examples = tf.TensorSpec([None], tf.string, name="examples")
        columns = {name: tf.TensorSpec([None], spec.dtype, name=name) for name, spec in self.feature_spec.items()}
        return {
            "serving_default": tf.function(self._from_examples, input_signature=[examples]),
            "raw": tf.function(self._from_columns, input_signature=[columns]),
            "transform_features": tf.function(self._features, input_signature=[examples]),
            "transform_labels": tf.function(self._labels, input_signature=[examples]),
        }

    def _from_examples(self, examples: Any) -> dict[str, Any]:
        return self._answer(tf.io.parse_example(examples, self.feature_spec))

    def _from_columns(self, columns: dict[str, Any]) -> dict[str, Any]:
        return self._answer({name: _as_parsed(columns[name], spec) for name, spec in self.feature_spec.items()})

    def _features(self, examples: Any) -> dict[str, Any]:
        transformed = self.transform(tf.io.parse_example(examples, self.feature_spec))
        return {name: transformed[name] for name in self.reads}

    def _labels(self, examples: Any) -> dict[str, Any]:
        return {names.LABEL: self.transform(tf.io.parse_example(examples, self.label_spec))[names.LABEL]}

    def _answer(self, raw: dict[str, Any]) -> dict[str, Any]:
        transformed = self.transform(raw)
        logits = self.network({name: transformed[name] for name in self.reads}, training=False)
        return self.answers(logits)


def _as_parsed(values: Any, spec: Any) -> Any:
    """A column of `raw`, shape [batch], in the form that parsing a tf.Example gives it."""
    if not isinstance(spec, tf.io.VarLenFeature):
        return tf.reshape(values, [-1, *spec.shape])
    if values.dtype == tf.string:
        present = tf.not_equal(values, "")
    elif values.dtype.is_floating:
        present = tf.logical_not(tf.math.is_nan(values))
    else:
        present = tf.not_equal(values, MISSING_INT)
    rows = tf.where(present)
    indices = tf.concat([rows, tf.zeros_like(rows)], axis=1)
    shape = tf.stack([tf.shape(values, out_type=tf.int64)[0], tf.constant(1, tf.int64)])
    return tf.SparseTensor(indices, tf.gather(values, rows[:, 0]), shape)
