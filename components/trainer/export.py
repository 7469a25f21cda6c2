"""The SavedModel that leaves the Trainer: the transform graph and the network in one, behind named signatures.

    serving_default     serialized tf.Examples → the answer
    raw                 one tensor per raw column → the answer
    transform_features  serialized tf.Examples → what the network reads
    transform_labels    serialized tf.Examples → the label; for evaluation

The label's own columns are asked for by `transform_labels` alone.

In `raw` every column has shape [batch], one value for each example. A value is missing where a text is empty, a float
is NaN, or a whole number is the smallest int64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform.saved.saved_transform_io_v2 import SavedModelLoader

from components.features import names
from components.features.plan import FeaturePlan
from components.trainer import fresh
from components.trainer.rows import MISSING_INT, rows


def export(
    network: Any,
    answers: Callable[[Any], dict[str, Any]],
    plan: FeaturePlan,
    transform: tft.TFTransformOutput,
    path: str,
) -> None:
    """Writes the SavedModel, and has a fresh process load it and answer as the network does.

    Args:
      network: tf_keras model from transformed features to logits.
      answers: logits → named answers.
      plan: the features and the label.
      transform: the transform graph.
      path: the folder to write.

    Raises:
      MachineError: the SavedModel does not load, or answers something else.
    """
    loader = SavedModelLoader(transform.transform_savedmodel_dir)
    raw = transform.raw_feature_spec()
    feature_spec = {name: raw[name] for name in plan.features.columns_read}
    label_spec = {name: raw[name] for name in plan.label_expression().columns}
    reads = tuple(tensor.name for tensor in network.inputs)

    def features(columns: dict[str, Any]) -> dict[str, Any]:
        transformed = loader.apply_transform_model(columns)
        return {name: transformed[name] for name in reads}

    def answer(columns: dict[str, Any]) -> dict[str, Any]:
        return answers(network(features(columns), training=False))

    def label(columns: dict[str, Any]) -> dict[str, Any]:
        return {names.LABEL: loader.apply_transform_model(columns)[names.LABEL]}

    examples = tf.TensorSpec([None], tf.string, name="examples")
    columns = {name: tf.TensorSpec([None], spec.dtype, name=name) for name, spec in feature_spec.items()}
    signatures = {
        "serving_default": _graph(lambda given: answer(tf.io.parse_example(given, feature_spec)), examples),
        "raw": _graph(
            lambda given: answer({name: _as_parsed(given[name], spec) for name, spec in feature_spec.items()}), columns
        ),
        "transform_features": _graph(lambda given: features(tf.io.parse_example(given, feature_spec)), examples),
        "transform_labels": _graph(lambda given: label(tf.io.parse_example(given, label_spec)), examples),
    }
    # The process imports TensorFlow while the model is written.
    with fresh.process() as ask:
        tf.saved_model.save(_Resources(network, loader), path, signatures=signatures)
        tried = rows(plan, feature_spec, transform)
        with tf.device("CPU:0"):
            wanted = signatures["serving_default"](tried.examples())
        fresh.check(ask, path, tried, wanted)


class _Resources(tf.Module):  # type: ignore[misc]
    """What the signatures need beside their graphs: the weights, and the transform graph's tables and files.

    The network itself stays out. tf_keras would trace each of its layers once more for a Keras loader that nobody
    uses, which takes longer than the training, and its optimizer's slots would be saved too.
    """

    def __init__(self, network: Any, loader: SavedModelLoader) -> None:
        super().__init__()
        self.weights = network.variables
        self.transform = loader.__dict__


def _graph(function: Callable[[Any], dict[str, Any]], signature: Any) -> Any:
    # There is no Python control flow to convert in here, and AutoGraph would go through all of tf_keras to see that.
    return tf.function(function, input_signature=[signature], autograph=False)


def _as_parsed(values: Any, spec: Any) -> Any:
    """A column of `raw`, shape [batch], in the form that parsing a tf.Example gives it."""
    if not isinstance(spec, tf.io.VarLenFeature):
        # Where the schema asks for several values, the one stands for all: the operations make the same of it.
        several = tf.tile(values[:, tf.newaxis], [1, math.prod(spec.shape)])
        return tf.reshape(several, [-1, *spec.shape])
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
