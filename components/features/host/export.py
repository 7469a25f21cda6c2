"""Exports what precedes a model as data: the operations, with vocabularies, boundaries and moments; and checks it."""

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
"""Of floats, relative and absolute: NumPy and TensorFlow round logarithms, sines and cosines differently."""


def preprocessing(plan: FeaturePlan, transform: tft.TFTransformOutput) -> str:
    """Return the content of preprocessing.json; arguments as for `describe`."""
    return json.dumps(describe(plan, transform), indent=1, allow_nan=False) + "\n"


def describe(
    plan: FeaturePlan, transform: tft.TFTransformOutput, features: Sequence[Feature] | None = None
) -> dict[str, Any]:
    """Describe operations with the results of their analysis, as `Preprocessing` reads them.

    Args:
      plan: The operations.
      transform: The transform graph, with the results of the analysis.
      features: Those of the plan that are described; all of them have an operation of EXPORTED_OPS. None: all.
    """
    features = plan.features.declared if features is None else features
    specs = transform.raw_feature_spec()
    analysis = _analysis(transform)
    pixels = {each.columns[0] for each in features if isinstance(each.op, Image)}
    read = {name for each in features for name in each.columns}
    content: dict[str, Any] = {
        "inputs": {
            name: "pixels" if name in pixels else _DTYPES[specs[name].dtype]
            for name in plan.features.columns_read
            if name in read
        },
        "features": [_feature(each, analysis, transform) for each in features],
    }
    if plan.task == "multiclass":
        classes = transform.vocabulary_by_name(feature_names.LABEL_CLASSES)
        content["classes"] = [name.decode(errors="surrogateescape") for name in classes]
    return content


_NOT_EXPORTED = {"op", "embedding", "quotient_remainder", "composition", "columns", "size", "min_frequency"}
"""Fields of an operation that do not change its ids, or are in the vocabulary."""


def _feature(
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


def _analysis(transform: tft.TFTransformOutput) -> dict[str, npt.NDArray[np.float64]]:
    """Return the numbers of the analysis by feature, which the graph names, see `feature_names.analysis_tensor`."""
    folder = transform.transform_savedmodel_dir
    numbers = _constants(folder)
    if numbers is None:
        numbers = _captured(folder)
    return {
        name: values.reshape(len(values), -1)[:, at]
        for group, values in numbers.items()
        if group.startswith(feature_names.ANALYSIS)
        for at, name in enumerate(_names_of(group, numbers))
    }


def _names_of(group: str, constants: Mapping[str, npt.NDArray[Any]]) -> list[str]:
    number = int(group.removeprefix(feature_names.ANALYSIS))
    return [name.decode() for name in constants[feature_names.analyzed_features(number)].tolist()]


def _constants(folder: str) -> dict[str, npt.NDArray[Any]] | None:
    """Read the numbers of our own analysis, which are constants of the graph; None if some are not.

    The file is parsed, because loading a graph takes a second.
    """
    with tf.io.gfile.GFile(f"{folder}/saved_model.pb", "rb") as file:
        (graph,) = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs
    values = {}
    for function in graph.graph_def.library.function:
        nodes = {node.name: node for node in function.node_def}
        for path, node in nodes.items():
            name = _name_of_analysis(path, node.op)
            if name is not None:
                source = nodes.get(node.input[0].partition(":")[0]) if node.input else node
                if source is None or source.op != "Const":
                    return None
                values[name] = tf.make_ndarray(source.attr["value"].tensor)
    return values


def _captured(folder: str) -> dict[str, npt.NDArray[Any]]:
    """Compute the numbers of TFT's own analysis, which are inputs that the graph's function has captured."""
    function = tf.saved_model.load(folder).transform_fn
    tensors = {
        name: operation.outputs[0]
        for operation in function.graph.get_operations()
        if (name := _name_of_analysis(operation.name, operation.type)) is not None
    }
    captured = zip(function.captured_inputs, function.graph.internal_captures, strict=True)
    feeds = {inside.name: value.numpy() for value, inside in captured if value.dtype.is_floating}
    with tf.compat.v1.Session(graph=function.graph) as session:
        return {name: session.run(tensor, feeds) for name, tensor in tensors.items()}


def _name_of_analysis(path: str, kind: str) -> str | None:
    """Return the name of an operation with numbers of the analysis, or with the features' names; None of another."""
    name = path.rpartition("/")[2]
    prefixes = {"Identity": feature_names.ANALYSIS, "Const": feature_names.ANALYZED_FEATURES}
    return name if kind in prefixes and name.startswith(prefixes[kind]) else None


def host_columns(batch: pa.RecordBatch, names: Iterable[str]) -> dict[str, Any]:
    """Return columns of raw rows as `Preprocessing` takes them: the first value of each row, None without one."""
    return {name: first_values(column_of(batch, name)).to_pylist() for name in names}


def difference(
    preprocessing: Preprocessing, batch: pa.RecordBatch, expected: Mapping[str, npt.NDArray[Any]]
) -> str | None:
    """Compare the reference with the transform graph.

    Args:
      preprocessing: The reference.
      batch: Raw rows.
      expected: The model's inputs, computed by the graph.

    Returns:
      The first feature and row that differ, and both values; None if all are equal, floats within 1e-5.
    """
    columns = host_columns(batch, [name for name, dtype in preprocessing.inputs.items() if dtype != "pixels"])
    # The host makes an image's pixels: what is compared is that they, and a missing image, take the right place.
    for name, column in preprocessing.pixels.items():
        present = column_of(batch, column).is_valid().to_pylist()
        columns[column] = [row if here else None for row, here in zip(expected[name], present, strict=True)]
    different = first_difference(expected, preprocessing(columns))
    return different and f"preprocessing: {different}"


def first_difference(expected: Mapping[str, npt.NDArray[Any]], received: Mapping[str, npt.NDArray[Any]]) -> str | None:
    """Return the first feature and row that differ, and both values; None if all are equal, floats within 1e-5.

    Args:
      expected: Features by name, [rows, ...].
      received: Likewise, of any shape with as many elements.
    """
    for name, values in expected.items():
        if name not in received or received[name].size != values.size:
            return f"{name}: expected shape {values.shape}, received {getattr(received.get(name), 'shape', None)}"
        own = received[name].reshape(values.shape)
        same = np.isclose(own, values, rtol=_TOLERANCE, atol=_TOLERANCE) if values.dtype.kind == "f" else own == values
        if not same.all():
            row = int(np.argwhere(~same)[0][0])
            return f"{name}, row {row}: expected {values[row]}, received {own[row]}"
    return None
