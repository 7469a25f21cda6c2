"""Export the operations of a model's inputs as data, with vocabularies, boundaries and moments; check the export."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow.core.protobuf import saved_model_pb2

from components.data.saved_model import column_of
from components.data.split_sample import first_values
from components.features import feature_names
from components.features.config import Feature, Vocab
from components.features.host.preprocessing import Preprocessing
from components.features.image_ops import Image
from components.features.plan import FeaturePlan

_DTYPES = {tf.int64: "int", tf.float32: "float", tf.string: "bytes"}
_TOLERANCE = 1e-5
"""Relative and absolute tolerance of floats. NumPy and TensorFlow round logarithms, sines and cosines differently."""


def preprocessing(plan: FeaturePlan, transform: tft.TFTransformOutput) -> str:
    """Return the content of preprocessing.json; arguments as for `describe`."""
    return json.dumps(describe(plan, transform), indent=1, allow_nan=False) + "\n"


def describe(
    plan: FeaturePlan, transform: tft.TFTransformOutput, features: Sequence[Feature] | None = None
) -> dict[str, Any]:
    """Describe operations with their analysis results, in the form that `Preprocessing` reads.

    Args:
      plan: Plan with the operations.
      transform: Transform graph with the results of the analysis.
      features: Features of the plan to describe; their operations must be in EXPORTED_OPS. If None, all features.
    """
    features = plan.features.declared if features is None else features
    specs = transform.raw_feature_spec()
    analysis = _read_analysis(transform)
    pixels = {feature.columns[0] for feature in features if isinstance(feature.op, Image)}
    read = {name for feature in features for name in feature.columns}
    content: dict[str, Any] = {
        "inputs": {
            name: "pixels" if name in pixels else _DTYPES[specs[name].dtype]
            for name in plan.features.columns_read
            if name in read
        },
        "features": [_describe_feature(feature, analysis, transform) for feature in features],
    }
    if plan.task == "multiclass":
        classes = transform.vocabulary_by_name(feature_names.LABEL_CLASSES)
        content["classes"] = [name.decode(errors="surrogateescape") for name in classes]
    return content


_NOT_EXPORTED = {
    "op",
    "embedding",
    "quotient_remainder",
    "composition",
    "columns",
    "size",
    "min_frequency",
    "keep_runs",
}
"""Fields of an operation that do not change its output, or that the exported vocabulary already reflects."""


def _describe_feature(
    feature: Feature, analysis: Mapping[str, npt.NDArray[np.float64]], transform: tft.TFTransformOutput
) -> dict[str, Any]:
    options = feature.op.model_dump(exclude=_NOT_EXPORTED)
    content = {"name": feature.name, "op": feature.op.op, "columns": list(feature.columns), "options": options}
    if feature.name in analysis:
        content["analysis"] = analysis[feature.name].tolist()
    if isinstance(feature.op, Vocab):
        entries = transform.vocabulary_by_name(feature.name)
        content["vocabulary"] = [entry.decode(errors="surrogateescape") for entry in entries]
    return content


def _read_analysis(transform: tft.TFTransformOutput) -> dict[str, npt.NDArray[np.float64]]:
    """Return feature name → analysis results, read from named tensors; see `feature_names.analysis_tensor`."""
    folder = transform.transform_savedmodel_dir
    numbers = _read_constants(folder)
    if numbers is None:
        numbers = _compute_captured(folder)
    return {
        name: values.reshape(len(values), -1)[:, at]
        for group, values in numbers.items()
        if group.startswith(feature_names.ANALYSIS)
        for at, name in enumerate(_read_feature_names(group, numbers))
    }


def _read_feature_names(group: str, constants: Mapping[str, npt.NDArray[Any]]) -> list[str]:
    number = int(group.removeprefix(feature_names.ANALYSIS))
    return [name.decode() for name in constants[feature_names.feature_names_constant(number)].tolist()]


def _read_constants(folder: str) -> dict[str, npt.NDArray[Any]] | None:
    """Read the results of our analysis, which are constants of the graph; return None if some are not constants.

    This parses the file, because loading the graph takes a second.
    """
    with tf.io.gfile.GFile(f"{folder}/saved_model.pb", "rb") as file:
        (graph,) = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs
    values = {}
    for function in graph.graph_def.library.function:
        nodes = {node.name: node for node in function.node_def}
        for path, node in nodes.items():
            name = _parse_analysis_name(path, node.op)
            if name is not None:
                source = nodes.get(node.input[0].partition(":")[0]) if node.input else node
                if source is None or source.op != "Const":
                    return None
                values[name] = tf.make_ndarray(source.attr["value"].tensor)
    return values


def _compute_captured(folder: str) -> dict[str, npt.NDArray[Any]]:
    """Compute the results of TFT's analysis, which are captured inputs of the graph's function."""
    function = tf.saved_model.load(folder).transform_fn
    tensors = {
        name: operation.outputs[0]
        for operation in function.graph.get_operations()
        if (name := _parse_analysis_name(operation.name, operation.type)) is not None
    }
    captured = zip(function.captured_inputs, function.graph.internal_captures, strict=True)
    feeds = {inside.name: value.numpy() for value, inside in captured if value.dtype.is_floating}
    with tf.compat.v1.Session(graph=function.graph) as session:
        return {name: session.run(tensor, feeds) for name, tensor in tensors.items()}


def _parse_analysis_name(path: str, kind: str) -> str | None:
    """Return the name of an op with analysis results or with names of features; None for other ops."""
    name = path.rpartition("/")[2]
    prefixes = {"Identity": feature_names.ANALYSIS, "Const": feature_names.ANALYZED_FEATURES}
    return name if kind in prefixes and name.startswith(prefixes[kind]) else None


def host_columns(batch: pa.RecordBatch, names: Iterable[str]) -> dict[str, Any]:
    """Convert columns of raw rows to the form that `Preprocessing` reads: the first value of a row, or None."""
    return {name: _to_list(first_values(column_of(batch, name))) for name in names}


def _to_list(values: pa.Array) -> list[Any]:
    """Convert values to Python objects, at least four times as fast as `to_pylist`, which creates Arrow scalars."""
    if not pa.types.is_integer(values.type) and not pa.types.is_floating(values.type):
        return values.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
    numbers: list[Any] = values.fill_null(0).to_numpy().tolist()
    for row in np.flatnonzero(values.is_null()).tolist():
        numbers[row] = None
    return numbers


def difference(
    preprocessing: Preprocessing, batch: pa.RecordBatch, expected: Mapping[str, npt.NDArray[Any]]
) -> str | None:
    """Compare the NumPy implementation with the transform graph.

    Args:
      preprocessing: NumPy implementation.
      batch: Raw rows.
      expected: Inputs of the model, computed by the graph.

    Returns:
      A description of the first difference, with feature, row and both values; None if all values are equal, where
      floats may differ by 1e-5.
    """
    columns = host_columns(batch, [name for name, dtype in preprocessing.inputs.items() if dtype != "pixels"])
    # The host decodes images, so pass it the expected pixels. This still compares their place, and missing images.
    for name, column in preprocessing.pixels.items():
        present = column_of(batch, column).is_valid().to_pylist()
        columns[column] = [row if here else None for row, here in zip(expected[name], present, strict=True)]
    different = first_difference(expected, preprocessing(columns))
    return different and f"preprocessing: {different}"


def first_difference(expected: Mapping[str, npt.NDArray[Any]], received: Mapping[str, npt.NDArray[Any]]) -> str | None:
    """Describe the first difference between features, with row and both values; None if all values are equal.

    Args:
      expected: Feature name → values of shape [rows, ...].
      received: Feature name → values of any shape with the same number of elements. Floats may differ by 1e-5.
    """
    for name, values in expected.items():
        if name not in received or received[name].size != values.size:
            return f"{name}: expected shape {values.shape}, received {getattr(received.get(name), 'shape', None)}"
        actual = received[name].reshape(values.shape)
        is_float = values.dtype.kind == "f"
        # `isclose` also handles infinities and NaN, but takes three times as long as this comparison.
        with np.errstate(invalid="ignore"):
            if is_float and (np.abs(actual - values) <= _TOLERANCE).all():
                continue
        same = np.isclose(actual, values, rtol=_TOLERANCE, atol=_TOLERANCE) if is_float else actual == values
        if not same.all():
            row = int(np.argwhere(~same)[0][0])
            return f"{name}, row {row}: expected {values[row]}, received {actual[row]}"
    return None
