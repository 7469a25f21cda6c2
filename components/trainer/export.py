"""Exports the SavedModel: the transform graph and the network, with these signatures.

    serving_default     serialized tf.Examples → predictions
    raw                 one tensor per raw column → predictions
    transform_features  serialized tf.Examples → the network's inputs; of an image, its pixels
    transform_labels    serialized tf.Examples → the labels, one by one; for evaluation
    transformed         the network's inputs → the prediction; for devices, which have no transform graph

A retrieval has more, see components/trainer/item_index.

A network that reads images predicts a few rows at a time, so that a large batch takes no more memory.

Only `transform_labels` reads the columns of the label.

In `raw` every column has shape [batch], one value for each example. A value is missing where a text is empty, a float
is NaN, or an integer is the smallest int64. The events of a history have shape [batch, events]; missing values follow
the events of shorter ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras
from tensorflow_transform.saved.saved_transform_io_v2 import SavedModelLoader

from components.compat.tfx import transform_resources
from components.data.skew_sample import Predictions, StoredSample
from components.features import feature_names, images
from components.features.plan import FeaturePlan
from components.request_schema import RequestSchema
from components.trainer import export_check, skew_check
from components.trainer.item_index import ItemIndex, Tower
from components.trainer.prediction_head import PREDICTION_KEY
from components.trainer.probe_rows import MISSING_INT, probe_rows
from components.trainer.request_parsing import parse_requests

RawColumns = dict[str, Any]
"""Raw column → tf.Tensor or tf.SparseTensor, as tf.io.parse_example returns it."""


def export(
    network: tf_keras.Model,
    outputs_by_name: Callable[[tf.Tensor], dict[str, tf.Tensor]],
    plan: FeaturePlan,
    transform: tft.TFTransformOutput,
    path: str,
    index: ItemIndex | None = None,
    sample: StoredSample | None = None,
    schema: RequestSchema | None = None,
) -> Predictions | None:
    """Writes the SavedModel, and checks in a new process that it computes what was trained.

    The new process must predict the same as the network here, and compute the features, the labels and the predictions
    of the sample as training does, see `skew_check`.

    Args:
      network: tf_keras model from transformed features to logits.
      outputs_by_name: logits → the outputs of a prediction, by name.
      plan: the features and the labels.
      transform: the transform graph.
      path: the folder to write.
      index: of a retrieval; None: the model has none.
      sample: the sample that Transform wrote; None: none is compared.
      schema: describes the rows that the model takes; None: `serving_default` takes all rows that it can parse.

    Returns:
      The predictions for the sample, for the serving check; None without a sample.

    Raises:
      MachineError: the SavedModel does not load, or what it computes differs.
    """
    loader = SavedModelLoader(transform.transform_savedmodel_dir)
    raw = transform.raw_feature_spec()
    feature_spec = {name: raw[name] for name in plan.features.columns_read}
    label_spec = {name: raw[name] for name in plan.label_columns}
    described = schema.columns if schema else {}
    input_names = tuple(tensor.name for tensor in network.inputs)

    encoded = images.images(plan.features)

    def transformed(columns: RawColumns) -> dict[str, tf.Tensor]:
        outputs = loader.apply_transform_model(columns)
        return {name: outputs[name] for name in input_names}

    def features(columns: RawColumns) -> dict[str, tf.Tensor]:
        return images.decoded(encoded, transformed(columns))

    def predictions(columns: RawColumns) -> dict[str, tf.Tensor]:
        def predict(rows: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return outputs_of(network, outputs_by_name, images.decoded(encoded, rows), index)

        rows = transformed(columns)
        return images.in_parts(encoded, predict, rows) if encoded else predict(rows)

    def labels(columns: RawColumns) -> dict[str, tf.Tensor]:
        label = loader.apply_transform_model(columns)[feature_names.LABEL]
        names = [each.named(feature_names.LABEL) for each in plan.declared_labels]
        return dict(zip(names, tf.unstack(label, axis=1) if plan.labels else [label], strict=True))

    examples = tf.TensorSpec([None], tf.string, name="examples")
    histories = plan.features.histories
    columns = {
        name: tf.TensorSpec([None, None] if name in histories else [None], spec.dtype, name=name)
        for name, spec in feature_spec.items()
    }

    def of_tower(tower: Tower, outputs: Callable[[tf.Tensor, dict[str, tf.Tensor]], dict[str, tf.Tensor]]) -> Any:
        def compute(values: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            found = loader.apply_transform_model(
                {name: _as_parsed(values[name], feature_spec[name]) for name in tower.columns}
            )
            features = {each.name: found[each.name] for each in tower.network.inputs}
            return outputs(tower.network(features, training=False), features)

        return _graph(compute, {name: columns[name] for name in tower.columns})

    signatures = {
        "serving_default": _graph(
            lambda serialized: predictions(parse_requests(serialized, feature_spec, described)), examples
        ),
        "raw": _graph(
            lambda values: predictions({name: _as_parsed(values[name], spec) for name, spec in feature_spec.items()}),
            columns,
        ),
        "transform_features": _graph(
            lambda serialized: features(tf.io.parse_example(serialized, feature_spec)), examples
        ),
        "transform_labels": _graph(lambda serialized: labels(tf.io.parse_example(serialized, label_spec)), examples),
        "transformed": transformed_signature(network, outputs_by_name, plan, index),
    }
    if index is not None:
        signatures |= {
            name: of_tower(tower, lambda vector, _: {"vector": vector}) for name, tower in index.towers.items()
        }
        signatures["top_k"] = of_tower(index.query, index.top_k)
    # The process imports TensorFlow while the model is written.
    with export_check.prediction_process() as predict:
        tf.saved_model.save(_Resources(network, loader, index), path, signatures=signatures)
        probes = probe_rows(plan, feature_spec, transform, [name for name, each in described.items() if each.required])
        with tf.device("CPU:0"):
            expected = signatures["serving_default"](probes.examples())
        trained = None
        if sample:
            # Of the network itself, and not of a signature, which reads the transform graph that was exported.
            trained = skew_check.compute(
                sample, plan, transform, input_names, lambda rows: outputs_of(network, outputs_by_name, rows, index)
            )
        export_check.check(predict, path, probes, expected, trained)
    return trained.predictions if trained else None


def outputs_of(
    network: tf_keras.Model,
    outputs_by_name: Callable[[tf.Tensor], dict[str, tf.Tensor]],
    rows: dict[str, tf.Tensor],
    index: ItemIndex | None = None,
) -> dict[str, tf.Tensor]:
    """Returns the outputs of a prediction of rows of the network's inputs; arguments as for `export`."""
    found = outputs_by_name(network(rows, training=False))
    return found if index is None else index.predictions(found, rows)


def transformed_signature(
    network: tf_keras.Model,
    outputs_by_name: Callable[[tf.Tensor], dict[str, tf.Tensor]],
    plan: FeaturePlan,
    index: ItemIndex | None = None,
) -> tf.types.experimental.GenericFunction:
    """Returns the function from the network's inputs to the prediction of each label."""
    keys = [each.named(PREDICTION_KEY[plan.task]) for each in plan.declared_labels]

    def prediction(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        # Without the names of classes: devices have no texts.
        outputs = outputs_of(network, outputs_by_name, inputs, index)
        return {key: outputs[key] for key in keys}

    return _graph(prediction, {tensor.name: _spec_of(tensor) for tensor in network.inputs})


class _Resources(tf.Module):  # type: ignore[misc]
    """The resources of the signatures' graphs: the weights, and the transform graph's tables and files.

    Not the network itself: tf_keras would trace each of its layers again for Keras' loader, which is not used, in more
    time than the training takes, and would save the optimizer's slots too.
    """

    def __init__(self, network: tf_keras.Model, loader: SavedModelLoader, index: ItemIndex | None) -> None:
        super().__init__()
        self.index = [] if index is None else index.resources
        self.weights = network.variables
        self.transform = transform_resources(loader)


def _graph(function: Callable[[Any], dict[str, tf.Tensor]], signature: Any) -> tf.types.experimental.GenericFunction:
    # Without AutoGraph: there is no Python control flow to convert, and AutoGraph would search all of tf_keras for it.
    return tf.function(function, input_signature=[signature], autograph=False)


def _spec_of(tensor: Any) -> tf.TensorSpec:
    return tf.TensorSpec(tensor.shape, tensor.dtype, name=tensor.name)


def _as_parsed(values: tf.Tensor, spec: Any) -> tf.Tensor | tf.SparseTensor:
    """A column of `raw`, shape [batch] or [batch, events], in the form of a column of a parsed tf.Example.

    Args:
      values: the column; a missing value as in the module's docstring.
      spec: tf.io.VarLenFeature or tf.io.FixedLenFeature.
    """
    if not isinstance(spec, tf.io.VarLenFeature) and values.shape.rank == 2:
        return tf.reshape(values, [-1, *spec.shape])
    if not isinstance(spec, tf.io.VarLenFeature):
        # If the schema expects several values, all are set to the one: the operations compute the same from it.
        repeated = tf.tile(values[:, tf.newaxis], [1, math.prod(spec.shape)])
        return tf.reshape(repeated, [-1, *spec.shape])
    if values.dtype == tf.string:
        present = tf.not_equal(values, "")
    elif values.dtype.is_floating:
        present = tf.logical_not(tf.math.is_nan(values))
    else:
        present = tf.not_equal(values, MISSING_INT)
    if values.shape.rank == 2:
        return tf.ragged.boolean_mask(values, present).to_sparse()
    rows = tf.where(present)
    indices = tf.concat([rows, tf.zeros_like(rows)], axis=1)
    shape = tf.stack([tf.shape(values, out_type=tf.int64)[0], tf.constant(1, tf.int64)])
    return tf.SparseTensor(indices, tf.gather(values, rows[:, 0]), shape)
