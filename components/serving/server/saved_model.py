"""Load a SavedModel, check and call its signatures, and convert tensors between messages and NumPy arrays."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from grpc import StatusCode

from components.compat.tensorflow import create_session, load_graph
from components.data.saved_model import MATRIX, MISSING, OF_COLUMNS, OURS, RAW
from components.serving.server.errors import RequestError
from components.serving.server.row_check import Anomalies, RowCheck, read_row_checks

DEFAULT = "serving_default"
"""Signature of a request that does not name one."""
Arrays = Mapping[str, npt.NDArray[Any]]
"""Tensor name → array; strings are bytes in an array of objects."""

_STRING = tf.string.as_datatype_enum
_VALUE_FIELDS = {
    "float32": "float_val",
    "float64": "double_val",
    "int8": "int_val",
    "int16": "int_val",
    "int32": "int_val",
    "int64": "int64_val",
    "uint8": "int_val",
    "uint16": "int_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    "bool": "bool_val",
}
"""Dtype → field of a TensorProto."""
MAX_RANK = 32
"""Maximum number of dimensions that NumPy supports. A message can declare a million sizes, and multiplying them would
take minutes."""
MAX_REPEATED = 1 << 20
"""Maximum number of elements of a tensor that repeats one value. A message of a few bytes can declare any size."""


class TensorSpec(NamedTuple):
    """The dtype and shape of an input or output. A dimension of any size is -1; an unknown shape is None."""

    dtype: tf.DType
    shape: tuple[int, ...] | None


@dataclass(frozen=True)
class Signature:
    """A signature of a loaded model.

    Attributes:
      name: Name of the signature, such as serving_default.
      inputs: Name → spec.
      outputs: Name → spec.
      call: Function from the arrays of the inputs, in order, to the arrays of the outputs, in order.
      pads: Whether the list of a row may be padded with missing values, as in this project's signatures of columns.
      row_check: Checks the rows against the model's schema. If None, only the graph checks them.
      count: Function that is called with the anomalies in the rows of a successful call.
    """

    name: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    call: Any
    pads: bool = False
    row_check: RowCheck | None = None
    count: Callable[[Anomalies], None] = lambda _: None

    @functools.cached_property
    def batches(self) -> bool:
        """Whether rows of several requests can be joined.

        They can if only the first dimension of every input varies, or also the second dimension of padded inputs.
        """
        by_row = all(spec.shape and spec.shape[0] == -1 for spec in [*self.inputs.values(), *self.outputs.values()])
        varying = any(-1 in (spec.shape or ())[2 if self.pads else 1 :] for spec in self.inputs.values())
        return bool(self.inputs) and by_row and not varying

    def join(self, requests: Sequence[Arrays]) -> Arrays:
        """Concatenate the rows of several requests, which needs `batches`. Shorter lists are padded if `pads`."""
        columns = {name: [request[name] for request in requests] for name in self.inputs}
        if self.pads:
            columns = {name: _pad(lists, self.inputs[name].dtype) for name, lists in columns.items()}
        return {name: np.concatenate(lists) for name, lists in columns.items()}

    def check(self, inputs: Arrays) -> None:
        """Raise RequestError unless names, dtypes, shapes and numbers of rows match."""
        if inputs.keys() != (names := self.inputs.keys()):
            raise self.error(f"expected the inputs {sorted(names)}, received {sorted(inputs)}")
        for name, (dtype, shape) in self.inputs.items():
            value = inputs[name]
            if value.dtype != dtype.as_numpy_dtype:
                received = "string" if value.dtype == object else value.dtype
                raise RequestError(f"input {name!r}: expected {dtype.name}, received {received}")
            sizes = zip(shape or (), value.shape, strict=False)
            if shape is not None and (len(shape) != value.ndim or any(size not in (-1, got) for size, got in sizes)):
                raise RequestError(f"input {name!r}: expected shape {list(shape)}, received {list(value.shape)}")
        if self.batches and len({len(value) for value in inputs.values()}) > 1:
            rows = {name: len(value) for name, value in inputs.items()}
            raise self.error(f"expected the same number of rows in each input, received {rows}")

    def run(self, inputs: Arrays) -> dict[str, npt.NDArray[Any]]:
        """Call the model with inputs that passed check().

        Returns:
          Output name → array.

        Raises:
          RequestError: If the schema or the graph rejects the inputs.
        """
        anomalies = self.row_check.check(inputs) if self.row_check else None
        try:
            outputs = self.call(*(inputs[name] for name in self.inputs))
        except tf.errors.InvalidArgumentError as error:
            raise RequestError(_first_line(str(error.message))) from error
        except UnicodeDecodeError as error:
            # TensorFlow decodes every error message as UTF-8, but the message contains bytes of the inputs.
            raise RequestError(_first_line(error.object.decode(errors="replace"))) from error
        if anomalies:
            self.count(anomalies)
        # TensorFlow returns a scalar string as bytes.
        arrays = (np.array(output, object) if isinstance(output, bytes) else output for output in outputs)
        return dict(zip(self.outputs, arrays, strict=True))

    def error(self, text: str) -> RequestError:
        """Return the error for a request that does not match the signature."""
        return RequestError(f"signature {self.name!r}: {text}")


class LoadedModel(ABC):
    """The signatures of a loaded SavedModel.

    Args:
      folder: Folder of the SavedModel.
      meta_graph: The MetaGraphDef, of which the signatures are read.
      key: Feature of a tf.Example that is accepted in addition to the columns of the schema, and ignored; "" for none.

    Attributes:
      meta_graph: The MetaGraphDef.
      row_checks: Checks of rows against the model's schema; None if the model lacks a schema.
      signatures: Signature name → signature.
      warm_up_requests: Number of recorded requests that were run; see `warm_up`.
      threads: Threads that call the model. If None, it shares the server's threads with the other versions.

    Raises:
      ValueError: If the model's schema is not valid.
    """

    threads: Executor | None = None

    def __init__(self, folder: Path, meta_graph: Any, key: str) -> None:
        self.meta_graph = meta_graph
        self.row_checks = read_row_checks(folder, key)
        definitions = self.meta_graph.signature_def.items()
        self.signatures = {name: self._signature(name, info) for name, info in definitions if not name.startswith("__")}
        self.warm_up_requests = 0

    @abstractmethod
    def close(self) -> None:
        """Free the memory. Do not close a model while a call is in progress."""

    @abstractmethod
    def _make_call(
        self, name: str, definition: Any, inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec]
    ) -> Callable[..., Sequence[Any]]:
        """Return the function from the arrays of a signature's inputs to the arrays of its outputs."""

    def find_failure(self) -> str | None:
        """Return why the model cannot answer requests any more; None if it can."""
        return None

    def signature(self, name: str, columns: Collection[str] = ()) -> Signature:
        """Return a signature.

        Args:
          name: Its name. If "", serving_default; or raw if serving_default has none of the `columns`.
          columns: Names of the inputs of the request, if they are known.

        Raises:
          RequestError: If the model does not have the signature.
        """
        if not name:
            name = DEFAULT
            inputs = self.signatures[DEFAULT].inputs if DEFAULT in self.signatures else {}
            if columns and RAW in self.signatures and inputs.keys().isdisjoint(columns):
                name = RAW
        if name not in self.signatures:
            text = f"expected a signature of {sorted(self.signatures)}, received {name!r}"
            # As in TensorFlow Serving.
            raise RequestError(text, StatusCode.FAILED_PRECONDITION)
        return self.signatures[name]

    def _signature(self, name: str, definition: Any) -> Signature:
        inputs, outputs = read_specs(definition.inputs), read_specs(definition.outputs)
        pads = name in (*OF_COLUMNS, MATRIX) and OURS in self.meta_graph.signature_def
        signature = Signature(name, inputs, outputs, self._make_call(name, definition, inputs, outputs), pads)
        if (checks := self.row_checks) is None:
            return signature
        return replace(signature, row_check=checks.create(name, inputs), count=checks.count)


class SavedModel(LoadedModel):
    """A SavedModel in a separate session of TensorFlow 1.

    Closing the session frees its memory, and a call does not run Python code of TensorFlow.

    Args:
      folder: Folder of the SavedModel.
      intra_op_threads: Number of threads of one op.
      key: See `LoadedModel`.

    Raises:
      ValueError: If the model's schema is not valid.
      Exception: If TensorFlow cannot load the folder.
    """

    def __init__(self, folder: Path, intra_op_threads: int, key: str = "") -> None:
        # With inter_op_parallelism_threads=-1, ops run in the calling thread, which is faster for small graphs.
        self._session = create_session(intra_op_parallelism_threads=intra_op_threads, inter_op_parallelism_threads=-1)
        super().__init__(folder, load_graph(self._session, str(folder)), key)

    def close(self) -> None:
        """Free the memory. Do not close a model while a call is in progress."""
        self._session.close()

    def _make_call(
        self, _name: str, definition: Any, inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec]
    ) -> Callable[..., Sequence[Any]]:
        fetched = [definition.outputs[key].name for key in outputs]
        fed = [definition.inputs[key].name for key in inputs]
        call: Callable[..., Sequence[Any]] = self._session.make_callable(fetched, fed)
        return call


def _pad(lists: list[npt.NDArray[Any]], dtype: tf.DType) -> list[npt.NDArray[Any]]:
    """Pad arrays of shape [rows, values] with missing values to the same number of values; return others unchanged."""
    if lists[0].ndim != 2 or len({rows.shape[1] for rows in lists}) == 1:
        return lists
    most = max(rows.shape[1] for rows in lists)
    return [np.pad(rows, ((0, 0), (0, most - rows.shape[1])), constant_values=MISSING[dtype]) for rows in lists]


def read_specs(infos: Mapping[str, Any]) -> dict[str, TensorSpec]:
    """Convert the inputs or outputs of a SignatureDef, name → TensorInfo, to specs sorted by name."""
    return {name: _to_spec(info) for name, info in sorted(infos.items())}


def _to_spec(info: Any) -> TensorSpec:
    sizes = tuple(dim.size for dim in info.tensor_shape.dim)
    return TensorSpec(tf.dtypes.as_dtype(info.dtype), None if info.tensor_shape.unknown_rank else sizes)


def _first_line(message: str) -> str:
    """Return the cause in a message of TensorFlow, without the description of the graph around it."""
    context = ("Graph execution error", "Detected at node", "File ", "[[", "Original stack trace")
    lines = (line.strip() for line in message.splitlines())
    return next((line for line in lines if line and not line.startswith(context)), "the graph rejects the inputs")


def from_proto(proto: Any) -> npt.NDArray[Any]:
    """Convert a TensorProto to an array; raise RequestError if its content does not match its shape or dtype."""
    dimensions = proto.tensor_shape.dim
    sizes = [dimension.size for dimension in dimensions[:MAX_RANK]]
    if proto.tensor_shape.unknown_rank or len(dimensions) > MAX_RANK or min(sizes, default=0) < 0:
        raise RequestError(f"a tensor of {len(dimensions)} dimensions and shape {sizes} is not valid")
    if proto.dtype == _STRING and sizes == [len(proto.string_val)] and not proto.tensor_content:
        # Serialized tf.Examples arrive in this form, for which make_ndarray is several times slower.
        return np.array([*proto.string_val], object)
    if (count := math.prod(sizes)) > MAX_REPEATED and count > proto.ByteSize():
        raise RequestError(f"a tensor of shape {sizes}: expected {count} elements, received {proto.ByteSize()} bytes")
    try:
        return tf.make_ndarray(proto)
    except (KeyError, OverflowError, TypeError, ValueError, IndexError) as error:
        raise RequestError(f"a tensor of dtype {proto.dtype} and shape {sizes}: {error}") from error


def to_proto(array: npt.NDArray[Any], proto: Any, *, typed: bool = False) -> None:
    """Write an array into an empty TensorProto.

    Args:
      array: The array.
      proto: An empty TensorProto.
      typed: Whether numbers are written into the field of their dtype, such as `float_val`, as TensorFlow Serving does.
        Clients without TensorFlow often read only this field. Otherwise they are written as raw bytes, which is faster.
    """
    if array.dtype == object:
        proto.dtype = _STRING
        proto.string_val.extend(array.ravel().tolist())
    else:
        proto.dtype = tf.dtypes.as_dtype(array.dtype).as_datatype_enum
        if typed and (field := _VALUE_FIELDS.get(array.dtype.name)):
            getattr(proto, field).extend(array.ravel().tolist())
        else:
            proto.tensor_content = array.tobytes()
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
