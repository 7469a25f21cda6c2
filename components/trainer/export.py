"""Export of the SavedModel: the transform graph and the network, with these signatures.

    serving_default     serialized tf.Examples → predictions
    raw                 one tensor per raw column → predictions
    matrix              one tensor per dtype of the raw columns → predictions; only of models with many columns
    transform_features  serialized tf.Examples → the network's inputs; an image as its pixels, see `compact`
    transform_labels    serialized tf.Examples → the labels, one by one; for evaluation; only of models with a label
    transformed         the network's inputs → the prediction; for devices, which run without the transform graph

A retrieval has more signatures, see components/trainer/item_index.

A network whose inputs are large, such as images, predicts a few rows at a time, so that the memory does not grow with
the batch.

Only `transform_labels` reads the columns of the label.

The signatures share one function for the features and another for the prediction, so that both are traced and saved
once. The arguments and results of these functions are a few tensors per dtype, see packed_columns and input_columns.
The columns of `raw` are described in components/trainer/raw_columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from components.compat import tft as compat
from components.data.skew_sample import Predictions, StoredSample
from components.features import feature_names
from components.features.compact import CompactFeatures
from components.features.plan import FeaturePlan
from components.results.model_outputs import PREDICTION_KEY
from components.results.request_schema import Column, RequestSchema
from components.trainer import export_check, skew_check
from components.trainer.input_columns import stack, unstack
from components.trainer.item_index import ItemIndex, Tower
from components.trainer.packed_columns import FeatureSpecs, PackedColumns, ParsedColumns, describe_packed, pack, unpack
from components.trainer.probe_rows import probe_rows
from components.trainer.raw_columns import as_parsed, join_columns, matrix_specs, pack_matrices, raw_specs
from components.trainer.request_parsing import parse_requests


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
    """Write the SavedModel, and check in a new process that it computes the same as the trained model.

    The new process must predict the same as the network here, and compute the features, the labels and the predictions
    of the sample as training does, see `skew_check`.

    Args:
      network: tf_keras model from transformed features to logits.
      outputs_by_name: Logits → the outputs of a prediction, by name.
      plan: The features and the labels.
      transform: The transform graph.
      path: Folder to write.
      index: The item index of a retrieval; None for other tasks.
      sample: The sample that Transform wrote; if None, no sample is compared.
      schema: The rows that the model takes; if None, `serving_default` takes all rows that it can parse.

    Returns:
      The predictions for the sample, for the serving check; None without a sample.

    Raises:
      MachineError: If the SavedModel does not load, or it computes other values.
    """
    graph = compat.LoadedTransformGraph(transform.transform_savedmodel_dir)
    raw = transform.raw_feature_spec()
    feature_spec = {name: raw[name] for name in plan.features.columns_read}
    label_spec = {name: raw[name] for name in plan.label_columns}
    described = schema.columns if schema else {}
    input_names = tuple(tensor.name for tensor in network.inputs)
    compact = CompactFeatures.find(plan.features).only(input_names)
    network_spec = {
        name: tf.io.FixedLenFeature(graph.outputs[name].shape[1:].as_list(), graph.outputs[name].dtype)
        for name in input_names
    }

    def transform_columns(columns: PackedColumns) -> dict[str, tf.Tensor]:
        return stack(graph(unpack(columns, feature_spec), input_names))

    transformed = _create_function(transform_columns, describe_packed(feature_spec)).get_concrete_function()

    def transform_parsed(columns: ParsedColumns) -> dict[str, tf.Tensor]:
        stacked: dict[str, tf.Tensor] = transformed(pack(columns, feature_spec))
        return stacked

    def predict_part(part: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return predict_outputs(network, outputs_by_name, compact.expand(unstack(part, network_spec)), index)

    def predict_rows(stacked: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        # Divide the few stacked tensors, not every feature: see packed_columns for the cost of a node.
        return compact.in_parts(predict_part, stacked)

    specs = {name: tf.TensorSpec(tensor.shape, tensor.dtype) for name, tensor in transformed.structured_outputs.items()}
    predicted = _create_function(predict_rows, specs)

    def labels(columns: ParsedColumns) -> dict[str, tf.Tensor]:
        label = graph(columns, [feature_names.LABEL])[feature_names.LABEL]
        names = [label.add_name(feature_names.LABEL) for label in plan.labels]
        return dict(zip(names, tf.unstack(label, axis=1) if len(names) > 1 else [label], strict=True))

    examples = tf.TensorSpec([None], tf.string, name="examples")
    columns = raw_specs(feature_spec, plan.features.histories)

    def create_tower_signature(
        tower: Tower, outputs: Callable[[tf.Tensor, dict[str, tf.Tensor]], dict[str, tf.Tensor]]
    ) -> Any:
        def compute(values: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            names = [tensor.name for tensor in tower.network.inputs]
            features = compact.expand(graph(as_parsed(values, feature_spec), names))
            return outputs(tower.network(features, training=False), features)

        return _create_function(compute, {name: columns[name] for name in tower.columns})

    def parse_then(
        compute: Callable[[ParsedColumns], dict[str, tf.Tensor]],
        specs: FeatureSpecs,
        checked: Mapping[str, Column] = MappingProxyType({}),
    ) -> Any:
        return _create_function(lambda serialized: compute(parse_requests(serialized, specs, checked)), examples)

    signatures = {
        "serving_default": parse_then(lambda parsed: predicted(transform_parsed(parsed)), feature_spec, described),
        "raw": _create_function(lambda values: predicted(transform_parsed(as_parsed(values, feature_spec))), columns),
        "transform_features": parse_then(
            lambda parsed: compact.expand(unstack(transform_parsed(parsed), network_spec)), feature_spec
        ),
        "transformed": create_transformed_signature(network, outputs_by_name, plan, index),
    }
    if label_spec:
        signatures["transform_labels"] = parse_then(labels, label_spec)
    if matrices := matrix_specs(feature_spec, described):
        signatures["matrix"] = _create_function(lambda values: predicted(transformed(pack_matrices(values))), matrices)
    if index is not None:
        signatures |= {
            name: create_tower_signature(tower, lambda vector, _: {"vector": vector})
            for name, tower in index.towers.items()
        }
        signatures["top_k"] = create_tower_signature(index.query, index.top_k)
    # The process imports TensorFlow while the model is written.
    with export_check.prediction_process() as predict:
        tf.saved_model.save(_Resources(network, graph, index), path, signatures=signatures)
        probes = probe_rows(
            plan, feature_spec, transform, [name for name, column in described.items() if column.required]
        )
        with tf.device("CPU:0"):
            expected = signatures["serving_default"](probes.examples())
        trained = None
        if sample:
            # Call the network itself, because a signature reads the exported transform graph.
            trained = skew_check.compute(
                sample,
                plan,
                transform,
                input_names,
                lambda rows: predict_outputs(network, outputs_by_name, rows, index),
            )
        joined = join_columns(probes.tensors(), described) if matrices else None
        export_check.check(predict, path, probes, expected, trained, joined)
    return trained.predictions if trained else None


def predict_outputs(
    network: tf_keras.Model,
    outputs_by_name: Callable[[tf.Tensor], dict[str, tf.Tensor]],
    rows: dict[str, tf.Tensor],
    index: ItemIndex | None = None,
) -> dict[str, tf.Tensor]:
    """Return the outputs of a prediction for rows of the network's inputs; see `export` for the arguments."""
    outputs = outputs_by_name(network(rows, training=False))
    return outputs if index is None else index.predictions(outputs, rows)


def create_transformed_signature(
    network: tf_keras.Model,
    outputs_by_name: Callable[[tf.Tensor], dict[str, tf.Tensor]],
    plan: FeaturePlan,
    index: ItemIndex | None = None,
) -> tf.types.experimental.GenericFunction:
    """Create the function from the network's inputs to the prediction of every label."""
    keys = [label.add_name(PREDICTION_KEY[plan.task]) for label in plan.labels]

    def predict(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        # Leave out the names of classes, because devices do not support strings.
        outputs = predict_outputs(network, outputs_by_name, inputs, index)
        return {key: outputs[key] for key in keys}

    return _create_function(predict, {tensor.name: _describe_tensor(tensor) for tensor in network.inputs})


class _Resources(tf.Module):  # type: ignore[misc]
    """The resources of the signatures' graphs: the weights, and the transform graph's tables and files.

    The network itself is left out: tf_keras would trace every layer again for Keras' loader, which is not used. That
    would take longer than the training, and would also save the optimizer's slots.
    """

    def __init__(self, network: tf_keras.Model, graph: compat.LoadedTransformGraph, index: ItemIndex | None) -> None:
        super().__init__()
        self.index = [] if index is None else index.resources
        self.weights = network.variables
        self.transform = graph.resources


def _create_function(
    function: Callable[[Any], dict[str, tf.Tensor]], signature: Any
) -> tf.types.experimental.GenericFunction:
    # Disable AutoGraph: it would search all of tf_keras for Python control flow, and there is none to convert.
    return tf.function(function, input_signature=[signature], autograph=False)


def _describe_tensor(tensor: Any) -> tf.TensorSpec:
    return tf.TensorSpec(tensor.shape, tensor.dtype, name=tensor.name)
