"""Find out how a SavedModel is called, and call it with record batches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from components.base.errors import InputError
from components.base.names import did_you_mean
from components.data import file_io, saved_model
from components.ingest.config import ValueType

_SERVING = "serving_default"
_TRANSFORM = "transform_features"
"""Name of a signature that only this project's models contain."""
Outputs = dict[str, npt.NDArray[Any]]
"""Name of an output → values; [rows, ...]."""


@dataclass(frozen=True)
class ModelInterface:
    """How a model is called. It is kept small, because Beam sends it to every worker.

    Attributes:
      folder: Folder of the SavedModel.
      signature: Name of the signature that is called.
      columns: Column → its type. If None, the signature takes serialized tf.Examples of all columns.
      inputs: Name → input of the signature. Empty for a model of this project, or one that takes tf.Examples.
      raw: Whether the signature belongs to a model of this project and takes columns in which missing values are
        encoded, such as `raw`.
    """

    folder: str
    signature: str
    columns: Mapping[str, ValueType] | None = None
    inputs: Mapping[str, _Input] = field(default_factory=dict)
    raw: bool = False

    def predict(self, batch: pa.RecordBatch) -> Outputs:
        """Predict the rows of a batch. A process loads the model only once.

        Args:
          batch: Rows in the form of `components.data.examples`: at least one, and none that `invalid` returns.

        Returns:
          The outputs of the signature.

        Raises:
          InputError: If a row contains values that the signature cannot encode.
        """
        signatures = saved_model.load(self.folder)
        signature = signatures[self.signature]
        if self.raw:
            columns = saved_model.raw_columns(batch, signature.inputs)
            if columns is None and self.signature != saved_model.RAW:
                raise InputError(
                    f"signature {self.signature}: expected at most one value per column and row (lists only for "
                    "histories), received lists, empty strings or NaN",
                    "give a single value per column, and omit missing values",
                )
            if columns is None:
                # `raw` cannot encode these rows, but the signature that parses tf.Examples can.
                return saved_model.call(signatures[_SERVING], saved_model.serialize(batch, tuple(self.columns or ())))
            return saved_model.call(signature, columns)
        if self.columns is None:
            return saved_model.call(signature, saved_model.serialize(batch, None))
        tensors = {name: input_.to_tensor(saved_model.column_of(batch, name)) for name, input_ in self.inputs.items()}
        return saved_model.call(signature, tensors)

    def invalid(self, batch: pa.RecordBatch) -> dict[int, tuple[str, str]]:
        """Find the rows that the model does not accept.

        Returns:
          Index of a row → the column, and a text that states what was expected and received.
        """
        return {
            row: (name, reason)
            for name, input_ in self.inputs.items()
            for row, reason in input_.find_invalid(saved_model.column_of(batch, name)).items()
        }


def read(folder: str, signature: str | None = None) -> ModelInterface:
    """Find out how a model is called.

    Only the file of the graph is read. Loading the model would start TensorFlow's threads, and Beam forks workers from
    this process.

    Args:
      folder: Folder of a SavedModel, local or remote.
      signature: Name of the signature to call. If None, `raw` for a model of this project, otherwise `serving_default`.

    Raises:
      InputError: If the folder does not contain a SavedModel, the model lacks the signature, or an input takes neither
        serialized tf.Examples nor a fixed number of values per row.
    """
    path = file_io.join(folder, "saved_model.pb")
    if not file_io.file_system(folder).exists(path):
        raise InputError(f"expected the folder of a SavedModel, received {folder}", "name a folder with saved_model.pb")
    with file_io.open_binary(path) as file:
        graph = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs[0]
    names = [name for name in graph.signature_def if not name.startswith("__")]
    is_project_model = {saved_model.RAW, _TRANSFORM, _SERVING} <= set(names)
    name = signature or (saved_model.RAW if is_project_model else _SERVING)
    if name not in names:
        raise InputError(
            f"{folder}: expected the signature {name!r}, received none{did_you_mean(name, names)}",
            f"name one of {', '.join(sorted(names))}" if names else "name a model that has signatures",
        )
    inputs = {key: _Input.parse(info) for key, info in graph.signature_def[name].inputs.items()}
    raw = is_project_model and name in saved_model.OF_COLUMNS
    if not raw and [input_.is_text for input_ in inputs.values()] == [True] and _has_example_parser(graph):
        return ModelInterface(folder, name)
    for key, input_ in inputs.items():
        if input_.type is None or (input_.size is None and not raw):
            raise InputError(
                f"signature {name}: expected inputs of a fixed number of values per row, received {key}: {input_}",
                "name a signature that takes serialized tf.Examples, or columns",
            )
    columns = {key: input_.type for key, input_ in inputs.items() if input_.type}
    return ModelInterface(folder, name, columns, {} if raw else inputs, raw)


@dataclass(frozen=True)
class _Input:
    """An input of a signature.

    Attributes:
      dtype: Value of TensorFlow's enum DataType.
      shape: Size of each dimension, -1 if it is unknown. None if the rank is unknown.
    """

    dtype: int
    shape: tuple[int, ...] | None

    @classmethod
    def parse(cls, info: Any) -> _Input:
        """Convert a TensorInfo message."""
        shape = info.tensor_shape
        return cls(info.dtype, None if shape.unknown_rank else tuple(dim.size for dim in shape.dim))

    def __str__(self) -> str:
        return f"{tf.dtypes.as_dtype(self.dtype).name} {'of any shape' if self.shape is None else list(self.shape)}"

    @property
    def is_text(self) -> bool:
        """Whether the input takes one text per row, which may be a serialized tf.Example."""
        return self.dtype == types_pb2.DT_STRING and self.shape is not None and len(self.shape) == 1

    @property
    def size(self) -> int | None:
        """Number of values per row; None if it may vary, or if the first dimension is not the number of rows."""
        if not self.shape or self.shape[0] != -1 or -1 in self.shape[1:]:
            return None
        return math.prod(self.shape[1:])

    @property
    def type(self) -> ValueType | None:
        """Type of a column that the input accepts; None if columns do not support its dtype."""
        dtype = tf.dtypes.as_dtype(self.dtype)
        if dtype == tf.string:
            return "bytes"
        if dtype.is_floating:
            return "float"
        return "int" if dtype.is_integer or dtype.is_bool else None

    def find_invalid(self, column: pa.Array) -> dict[int, str]:
        """Find rows with another number of values than the input takes, or with integers beyond the range of its dtype.

        Returns:
          Index of a row → a text that states what was expected and received.
        """
        counts = np.zeros(len(column), int) if pa.types.is_null(column.type) else np.diff(np.asarray(column.offsets))
        bad = {
            int(row): f"expected {_format_count(self.size or 1)}, received {_format_count(int(counts[row]))}"
            for row in np.flatnonzero(counts != self.size)
        }
        dtype = tf.dtypes.as_dtype(self.dtype)
        if self.type == "int" and not bad:
            values = column.flatten().to_numpy(zero_copy_only=False)
            least, greatest = (0, 1) if dtype.is_bool else (int(dtype.min), int(dtype.max))
            is_out_of_range = (values < least) | (values > greatest)
            for index in np.flatnonzero(is_out_of_range).tolist():
                bad[index // (self.size or 1)] = f"expected {dtype.name}, received {values[index]}"
        return bad

    def to_tensor(self, column: pa.Array) -> npt.NDArray[Any]:
        """Convert a column without invalid rows to the dtype and shape of the input."""
        values = column.flatten().to_numpy(zero_copy_only=False)
        dtype = tf.dtypes.as_dtype(self.dtype)
        array = values if dtype == tf.string else values.astype(dtype.as_numpy_dtype)
        return array.reshape([len(column), *(self.shape or ())[1:]])


def _has_example_parser(graph: meta_graph_pb2.MetaGraphDef) -> bool:
    functions = graph.graph_def.library.function
    nodes = itertools.chain(graph.graph_def.node, *(function.node_def for function in functions))
    return any(node.op.startswith("ParseExample") for node in nodes)


def _format_count(number: int) -> str:
    return {0: "no value", 1: "one value"}.get(number, f"{number} values")
