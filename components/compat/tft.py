"""Private parts of TensorFlow Transform (TFT) for writing and applying transform graphs.

TFT's public interface can write a graph only after TFT's Beam analysis, which traces the function about ten times and
loads the graph again for every step. Here the analysis is already complete. Checked with TFT 1.16 and 1.21.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_transform as tft
from apache_beam.pipeline import AppliedPTransform
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform import graph_context, impl_helper, schema_inference, tf2_utils
from tensorflow_transform.saved import saved_transform_io_v2
from tensorflow_transform.tf_metadata import dataset_metadata, metadata_io
from tfx_bsl.tfxio import tensor_to_arrow

Tensors: TypeAlias = Mapping[str, "tf.Tensor | tf.SparseTensor | tf.RaggedTensor"]
Function: TypeAlias = Callable[[Tensors], Tensors]


def write_transform_graph(
    function: Function, specs: Mapping[str, tf.TypeSpec], assets: Mapping[str, str], folder: str
) -> Function:
    """Write a transform graph in the layout of TFT's WriteTransformFn: `transform_fn` and `transformed_metadata`.

    Hooks: the functions that TFT calls in its last phase, when all analyzers have results. The function is traced a
    second time, for the schema of the outputs, only if the range of an output depends on a vocabulary.

    Args:
      function: The preprocessing_fn, which must not use TFT's analyzers. Files that its graph reads must be in the
        collection ASSET_FILEPATHS.
      specs: Type specs of the raw features, by name.
      assets: File names of the vocabularies, by the name under which `TFTransformOutput` finds them.
      folder: Folder of the graph, local or remote.

    Returns:
      The graph as a function of batches, so that this process does not have to load it.
    """
    ranges: list[bool] = []

    module = tf.Module()
    context = graph_context.TFGraphContext(module_to_export=module, temp_dir=None, evaluated_replacements={})

    # As TFT's get_traced_transform_fn, but without copying the inputs, because the dictionary already is a copy.
    def compute_outputs(inputs: Tensors) -> Tensors:
        with context:
            outputs = function(inputs)
        ranges.append(_has_ranges(outputs))
        return outputs

    transform_fn = tf.function(compute_outputs, input_signature=[dict(specs)], autograph=False)
    concrete = saved_transform_io_v2.trace_and_update_module(module, transform_fn, "transform_fn", False)
    # Do not save signatures. TFT reads the function itself, and a signature would store all inputs and outputs again.
    path = os.path.join(folder, tft.TFTransformOutput.TRANSFORM_FN_DIR)  # noqa: PTH118 - a URL
    tf.saved_model.save(module, path, signatures={})
    if ranges[-1]:
        inputs = tf2_utils.get_structured_inputs_from_func_graph(concrete.graph)
        schema = impl_helper._trace_and_get_metadata(concrete, inputs, function, None, {}).schema
    else:
        schema = schema_inference.infer_feature_schema_v2(concrete.structured_outputs, dict, True)
    metadata = os.path.join(folder, tft.TFTransformOutput.TRANSFORMED_METADATA_DIR)  # noqa: PTH118
    write_schema(schema, metadata)
    if assets:
        with tf.io.gfile.GFile(os.path.join(metadata, tft.TFTransformOutput.ASSET_MAP), "w") as file:  # noqa: PTH118
            file.write(json.dumps(dict(assets)))
    return _make_batch_function(module)


def trace(function: Callable[..., Any], signature: Any) -> tuple[Any, tf.Module]:
    """Trace a function that looks up vocabularies, as in a transform graph, without saving it.

    Args:
      function: The function, which must not use TFT's analyzers.
      signature: Specs of its arguments.

    Returns:
      The concrete function, and a module that holds its tables: the function can be called while the module exists.
    """
    module = tf.Module()
    context = graph_context.TFGraphContext(module_to_export=module, temp_dir=None, evaluated_replacements={})

    def call_in_context(*arguments: Any) -> Any:
        with context:
            return function(*arguments)

    return tf.function(call_in_context, signature, autograph=False).get_concrete_function(), module


def load_transform_graph(folder: str) -> Function:
    """Load a transform graph as a function of batches that contain all raw features.

    TFT's layer is not used, because it copies its inputs and compares the feature names in every call.

    Args:
      folder: Folder of the graph, local or remote.
    """
    return _make_batch_function(tf.saved_model.load(os.path.join(folder, tft.TFTransformOutput.TRANSFORM_FN_DIR)))  # noqa: PTH118


_RESOURCES = {"assets", "created_variables", "initializers", "pruned_variables", "resources", "trackable_objects"}
"""Attributes that saved_transform_io_v2.trace_and_update_module adds to the module, in addition to the function."""


class LoadedTransformGraph:
    """A transform graph that can compute some of its outputs from some of the raw features.

    TFT's SavedModelLoader walks through the graph once per output to find its inputs. If features are computed
    together, the total time of these walks grows with the square of the number of columns.

    Hooks: tf2_utils.get_structured_inputs_from_func_graph, which SavedModelLoader uses for the same purpose. Checked
    with TFT 1.16 and 1.21.

    Args:
      path: Path of the graph's SavedModel.

    Attributes:
      outputs: Tensors of the loaded graph, by name of the output.
      resources: Tables and asset files, which a SavedModel that contains the graph must track.
    """

    outputs: Tensors
    resources: tf.Module

    _last: LoadedTransformGraph | None = None
    """The graph that this process loaded last."""

    def __init__(self, path: str) -> None:
        loaded = tf.saved_model.load(path)
        # Keep the last graph until the process ends: to delete a table, TensorFlow traces a function for 20 ms.
        LoadedTransformGraph._last = self
        self.resources = tf.Module()
        # Leave out the function of the whole graph, which would otherwise be saved and loaded with every model.
        for name in _RESOURCES & vars(loaded).keys():
            setattr(self.resources, name, getattr(loaded, name))
        function = loaded.transform_fn
        # TFX's executor may save a polymorphic function, which then has a single concrete function.
        if hasattr(function, "concrete_functions"):
            (function,) = function.concrete_functions
        self.outputs = tf.nest.pack_sequence_as(function.structured_outputs, function.outputs, expand_composites=True)
        self._inputs: Tensors = tf2_utils.get_structured_inputs_from_func_graph(function.graph)
        placeholders = function.inputs[len(function.inputs) - len(function.captured_inputs) :]
        self._captured = {
            placeholder.name: tensor for placeholder, tensor in zip(placeholders, function.captured_inputs, strict=True)
        }
        self._graph = _Nodes(function.graph.as_graph_def())

    def __call__(self, features: Tensors, names: Collection[str]) -> dict[str, Any]:
        """Add the nodes that some outputs need to the function that is being traced.

        Args:
          features: Values of raw features by name, for at least one feature. Features that are left out count as
            missing in every row. Instead of a SparseTensor, a tuple of its components may be given.
          names: Names of the outputs.

        Returns:
          The output tensors by name. Outputs that depend on features that were left out are computed from missing
          values.
        """
        outputs = {name: self.outputs[name] for name in names}
        fetched = tf.nest.flatten(outputs, expand_composites=True)
        tensor_names = [self._graph.tensor(tensor.name) for tensor in fetched]
        nodes = self._graph.nodes_before(tensor_names)
        inputs = {
            name: placeholders
            for name, placeholders in self._inputs.items()
            if name in features or _is_read(placeholders, nodes)
        }
        values = _with_missing(features, inputs)
        feeds = self._captured | {
            placeholder.name: value
            for name, placeholders in inputs.items()
            for placeholder, value in zip(_flat(placeholders), _flat(values[name]), strict=True)
        }
        # Inputs may be tensors of other graphs, or tables. The function that is being traced must capture them.
        capture = tf.compat.v1.get_default_graph().capture
        feeds = {name: capture(value) for name, value in feeds.items() if name.partition(":")[0] in nodes}
        added = iter(
            tf.graph_util.import_graph_def(
                self._graph.definition(nodes, feeds),
                input_map=feeds,
                return_elements=[name for name in tensor_names if name not in feeds],
                name="transform",
            )
        )
        tensors = [feeds[name] if name in feeds else next(added) for name in tensor_names]
        for tensor, original in zip(tensors, fetched, strict=True):
            tensor.set_shape(original.shape)
        return dict(tf.nest.pack_sequence_as(outputs, tensors, expand_composites=True))


class _Nodes:
    """The nodes of a graph without identity nodes. TFT adds an identity node to every input and output.

    Args:
      graph: The graph.
    """

    def __init__(self, graph: tf.compat.v1.GraphDef) -> None:
        pinned = {name[1:] for node in graph.node for name in node.input if name.startswith("^")}
        pinned.update(
            group.decode().removeprefix("loc:@") for node in graph.node for group in node.attr["_class"].list.s
        )
        self._source: dict[str, str] = {}
        self._nodes: dict[str, Any] = {}
        self._graph = graph
        for node in graph.node:
            if node.op == "Identity" and len(node.input) == 1 and node.name not in pinned:
                self._source[f"{node.name}:0"] = _tensor_name(node.input[0])
            else:
                self._nodes[node.name] = node
        for node in self._nodes.values():
            node.input[:] = [name if name.startswith("^") else self.tensor(_tensor_name(name)) for name in node.input]

    def tensor(self, name: str) -> str:
        """Return the name of the tensor that remains after identity nodes were removed."""
        while name in self._source:
            name = self._source[name]
        return name

    def nodes_before(self, tensors: Collection[str]) -> Mapping[str, Any]:
        """Return the nodes that the given tensors depend on, by name."""
        nodes: dict[str, Any] = {}
        waiting = [name.partition(":")[0] for name in tensors]
        while waiting:
            name = waiting.pop()
            if name not in nodes:
                nodes[name] = self._nodes[name]
                waiting.extend(source.removeprefix("^").partition(":")[0] for source in nodes[name].input)
        return nodes

    def definition(self, nodes: Mapping[str, Any], feeds: Collection[str]) -> tf.compat.v1.GraphDef:
        """Return a graph with some of the nodes.

        Args:
          nodes: Nodes by name.
          feeds: Names of tensors that are fed. Nodes whose first output is among them are left out.
        """
        graph = tf.compat.v1.GraphDef(versions=self._graph.versions, library=self._graph.library)
        removed = {name.partition(":")[0] for name in feeds}
        for node in (node for name, node in nodes.items() if name not in removed):
            added = graph.node.add()
            added.CopyFrom(node)
            # Drop control dependencies on removed nodes. Nodes of inputs do not have side effects to wait for.
            added.input[:] = [name for name in node.input if name[1:] not in removed or not name.startswith("^")]
        return graph


def _tensor_name(name: str) -> str:
    """Return the full name of a node's input tensor. The name in a GraphDef may lack the number of the output."""
    return name if ":" in name else f"{name}:0"


def _flat(value: Any) -> list[tf.Tensor]:
    return tf.nest.flatten(value, expand_composites=True)  # type: ignore[no-any-return]


def _is_read(placeholders: Any, nodes: Collection[str]) -> bool:
    return any(placeholder.op.name in nodes for placeholder in _flat(placeholders))


def _with_missing(features: Tensors, inputs: Tensors) -> Tensors:
    """Add values for all missing inputs. The added features are missing in every row."""
    feature = next(iter(features.values()))
    rows = feature.dense_shape[0] if hasattr(feature, "dense_shape") else tf.shape(feature, tf.int64)[0]
    missing: dict[Any, Any] = {}
    values = dict(features)
    for name, spec in inputs.items():
        if name not in values:
            # There may be thousands of missing features, so features with the same type and shape share a tensor.
            key = type(spec), spec.dtype, *spec.shape.as_list()[1:]
            if key not in missing:
                missing[key] = _missing(spec, rows)
            values[name] = missing[key]
    return values


def _missing(spec: Any, rows: tf.Tensor) -> Any:
    """Return a value for a feature that is missing in every row.

    Args:
      spec: Input of the graph for this feature.
      rows: Number of rows, int64 scalar.

    Returns:
      A SparseTensor or RaggedTensor without values; or a dense tensor of zeros or empty strings.
    """
    if isinstance(spec, tf.Tensor):
        shape = tf.concat([rows[tf.newaxis], tf.constant(spec.shape.as_list()[1:], tf.int64)], axis=0)
        return tf.fill(shape, tf.constant("" if spec.dtype == tf.string else 0, spec.dtype))
    if isinstance(spec, tf.SparseTensor):
        rank = spec.shape.rank
        shape = tf.concat([rows[tf.newaxis], tf.zeros([rank - 1], tf.int64)], axis=0)
        return tf.SparseTensor(tf.zeros([0, rank], tf.int64), tf.zeros([0], spec.dtype), shape)
    return tf2_utils.supply_missing_inputs({"": spec}, rows)[""]


def write_schema(schema: schema_pb2.Schema, folder: str) -> None:
    """Write the schema of raw or transformed features to `schema.pbtxt` in a folder, as TFT does."""
    metadata_io.write_metadata(dataset_metadata.DatasetMetadata(schema), folder)


def repair_deep_copies() -> None:
    """Make it possible for TFT to copy the part of a Beam pipeline that reads the data.

    Later phases then read the data again. Otherwise Beam keeps all record batches for them, in memory if the pipeline
    runs on one machine. TFT copies an AppliedPTransform without its last two arguments, which Beam
    requires. This function sets their defaults to None in this process. Checked with Beam 2.74 and 2.77.
    """
    AppliedPTransform.__init__.__defaults__ = (None, None)


def arrow_converter(schema: schema_pb2.Schema) -> tensor_to_arrow.TensorsToRecordBatchConverter:
    """Return TFT's converter from transformed tensors to record batches, which its TransformDataset uses."""
    return impl_helper.make_tensor_to_arrow_converter(schema)


def _has_ranges(outputs: Tensors) -> bool:
    """Return whether a vocabulary determines the range of an output. It reads collections of the default graph."""
    collected = tf.compat.v1.get_collection(schema_inference._TF_METADATA_TENSOR_COLLECTION)
    names = schema_inference._get_tensor_value_to_key_map(outputs)
    return any(tensor.name in names for tensor in collected)


def _make_batch_function(module: Any) -> Function:
    """Return the function of a transform graph.

    Hooks: ConcreteFunction._call_with_flat_signature. A normal call tries the structured signature first. Before it
    tries the flat signature, it formats the values of all tensors into an error message, which takes a third of the
    time of a call with 200 columns. Checked with TensorFlow 2.16 and 2.21.
    """
    function = module.transform_fn
    # TFX's executor may save a polymorphic function, which then has a single concrete function.
    if hasattr(function, "concrete_functions"):
        (function,) = function.concrete_functions
    # The graph takes its inputs as a flat list. Both the graph and tf.nest sort the features by name.
    return lambda tensors: dict(function._call_with_flat_signature(_flat(dict(tensors)), {}))
