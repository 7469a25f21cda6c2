"""What a SavedModel takes and returns, and its predictions for record batches."""

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

from components.data import file_io, saved_model
from components.errors import InputError
from components.ingest.config import ValueType
from components.names import did_you_mean

_SERVING = "serving_default"
_TRANSFORM = "transform_features"
"""A signature that only this project's models have."""
Outputs = dict[str, npt.NDArray[Any]]
"""Name → values; [rows, ...]."""


@dataclass(frozen=True)
class ModelInterface:
    """How a model is called; small, as Beam sends it to every worker.

    Attributes:
      folder: of the SavedModel.
      signature: the signature that is called.
      columns: the columns that it reads, with their types; None: it takes serialized tf.Examples, of all columns.
      inputs: name → input, for a model of another project that takes columns.
      raw: whether it is the signature `raw` of this project's models, which defines what a missing value is, or another
        one that does.
    """

    folder: str
    signature: str
    columns: Mapping[str, ValueType] | None = None
    inputs: Mapping[str, _Input] = field(default_factory=dict)
    raw: bool = False

    def predict(self, batch: pa.RecordBatch) -> Outputs:
        """Calls the model, which a process loads once.

        Args:
          batch: a batch of `components.data.examples`, at least one row, and none of `invalid`.
        """
        signatures = saved_model.load(self.folder)
        signature = signatures[self.signature]
        if self.raw:
            columns = saved_model.raw_columns(batch, signature.inputs)
            if columns is None and self.signature != saved_model.RAW:
                raise InputError(
                    f"signature {self.signature}: expected at most one value of each column in a row, lists for "
                    "histories, and no text that is empty and no NaN; received other rows",
                    "leave values out that are missing",
                )
            if columns is None:
                return saved_model.call(signatures[_SERVING], saved_model.serialized(batch, tuple(self.columns or ())))
            return saved_model.call(signature, columns)
        if self.columns is None:
            return saved_model.call(signature, saved_model.serialized(batch, None))
        tensors = {name: each.tensor(saved_model.column_of(batch, name)) for name, each in self.inputs.items()}
        return saved_model.call(signature, tensors)

    def invalid(self, batch: pa.RecordBatch) -> dict[int, tuple[str, str]]:
        """Rows that the model does not take: index → the column, and what was expected and received."""
        return {
            row: (name, reason)
            for name, each in self.inputs.items()
            for row, reason in each.invalid(saved_model.column_of(batch, name)).items()
        }


def read(folder: str, signature: str | None = None) -> ModelInterface:
    """Finds out how a model is called; reads only the file of the graph, since workers are forked from this process.

    Without a name, `raw` is called if it is a model of this project, else `serving_default`.

    Args:
      folder: of a SavedModel, local or remote.
      signature: the signature to call.

    Raises:
      InputError: it is no SavedModel, or has no such signature; or an input takes neither serialized tf.Examples nor a
        fixed number of values for each row.
    """
    path = file_io.join(folder, "saved_model.pb")
    if not file_io.file_system(folder).exists(path):
        raise InputError(f"expected the folder of a SavedModel, received {folder}", "name a folder with saved_model.pb")
    with file_io.open_binary(path) as file:
        graph = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs[0]
    names = [name for name in graph.signature_def if not name.startswith("__")]
    own = {saved_model.RAW, _TRANSFORM, _SERVING} <= set(names)
    name = signature or (saved_model.RAW if own else _SERVING)
    if name not in names:
        raise InputError(
            f"{folder} has no signature {name!r}{did_you_mean(name, names)}",
            f"name one of {', '.join(sorted(names)) or 'another model: this one has none'}",
        )
    inputs = {key: _Input.of(info) for key, info in graph.signature_def[name].inputs.items()}
    raw = own and name in saved_model.OF_COLUMNS
    if not raw and [each.is_text for each in inputs.values()] == [True] and _parses_examples(graph):
        return ModelInterface(folder, name)
    for key, each in inputs.items():
        if each.type is None or (each.size is None and not raw):
            raise InputError(
                f"signature {name}: expected inputs of a fixed number of values per row, received {key}: {each}",
                "name a signature that takes serialized tf.Examples, or columns",
            )
    columns = {key: each.type for key, each in inputs.items() if each.type}
    return ModelInterface(folder, name, columns, {} if raw else inputs, raw)


@dataclass(frozen=True)
class _Input:
    """An input of a signature: its dtype, as the number of the enum, and its shape; None: of unknown rank."""

    dtype: int
    shape: tuple[int, ...] | None

    @classmethod
    def of(cls, info: Any) -> _Input:
        """Reads a TensorInfo message."""
        shape = info.tensor_shape
        return cls(info.dtype, None if shape.unknown_rank else tuple(dim.size for dim in shape.dim))

    def __str__(self) -> str:
        return f"{tf.dtypes.as_dtype(self.dtype).name} {'of any shape' if self.shape is None else list(self.shape)}"

    @property
    def is_text(self) -> bool:
        """Whether it takes one text for each row, perhaps a serialized tf.Example."""
        return self.dtype == types_pb2.DT_STRING and self.shape is not None and len(self.shape) == 1

    @property
    def size(self) -> int | None:
        """Number of values of a row; None if that may vary, or if the first dimension is not that of the rows."""
        if not self.shape or self.shape[0] != -1 or -1 in self.shape[1:]:
            return None
        return math.prod(self.shape[1:])

    @property
    def type(self) -> ValueType | None:
        """The type of a column for it; None if there is none."""
        dtype = tf.dtypes.as_dtype(self.dtype)
        if dtype == tf.string:
            return "bytes"
        if dtype.is_floating:
            return "float"
        return "int" if dtype.is_integer or dtype.is_bool else None

    def invalid(self, column: pa.Array) -> dict[int, str]:
        """Rows that do not have as many values as it takes, or a greater one than its dtype holds: index → reason."""
        counts = np.zeros(len(column), int) if pa.types.is_null(column.type) else np.diff(np.asarray(column.offsets))
        bad = {
            int(row): f"expected {_values(self.size or 1)}, received {_values(int(counts[row]))}"
            for row in np.flatnonzero(counts != self.size)
        }
        dtype = tf.dtypes.as_dtype(self.dtype)
        if self.type == "int" and not bad:
            values = column.flatten().to_numpy(zero_copy_only=False)
            least, greatest = (0, 1) if dtype.is_bool else (int(dtype.min), int(dtype.max))
            beyond = (values < least) | (values > greatest)
            for at in np.flatnonzero(beyond).tolist():
                bad[at // (self.size or 1)] = f"expected {dtype.name}, received {values[at]}"
        return bad

    def tensor(self, column: pa.Array) -> npt.NDArray[Any]:
        """The values of a column without invalid rows, in the dtype and shape that it takes."""
        values = column.flatten().to_numpy(zero_copy_only=False)
        dtype = tf.dtypes.as_dtype(self.dtype)
        array = values if dtype == tf.string else values.astype(dtype.as_numpy_dtype)
        return array.reshape([len(column), *(self.shape or ())[1:]])


def _parses_examples(graph: meta_graph_pb2.MetaGraphDef) -> bool:
    nodes = itertools.chain(graph.graph_def.node, *(each.node_def for each in graph.graph_def.library.function))
    return any(node.op.startswith("ParseExample") for node in nodes)


def _values(number: int) -> str:
    return {0: "no value", 1: "one value"}.get(number, f"{number} values")
