"""Predictions as columns, and the files that they are written to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from components.data import file_io
from components.data.examples import to_lists
from components.data.tfrecord_writer import TfrecordWriter, framed_examples
from components.errors import InputError
from components.predictor.config import OutputFormat

SUFFIXES: Mapping[OutputFormat, str] = {"parquet": ".parquet", "csv": ".csv", "tfrecord": ".tfrecord.gz"}
_CLASSES, _PROBABILITIES = "classes", "probabilities"


class Writer(Protocol):
    """Writes batches of the same columns to a file."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Appends rows."""

    def close(self) -> None:
        """Completes the file."""


def columns(outputs: Mapping[str, npt.NDArray[Any]]) -> dict[str, pa.Array]:
    """Converts the outputs of a model to columns.

    An output of one number or text for each row is a column of its name; one of several values is a list column. The
    outputs `classes` and `probabilities` of a classification become `prediction`, the most probable class, and for each
    class `probability_CLASS`.

    Args:
      outputs: name → values; [rows, ...].

    Raises:
      InputError: an output has no value for each row.
    """
    arrays = dict(outputs)
    converted: dict[str, pa.Array] = {}
    if arrays.keys() == {_CLASSES, _PROBABILITIES} and arrays[_CLASSES].shape == arrays[_PROBABILITIES].shape:
        probabilities, classes = arrays.pop(_PROBABILITIES), arrays.pop(_CLASSES)
        names = _text(classes[0])
        converted["prediction"] = names.take(pa.array(probabilities.argmax(axis=1)))
        converted |= {f"probability_{name}": pa.array(probabilities[:, at]) for at, name in enumerate(names)}
    for name, values in arrays.items():
        if not values.ndim:
            raise InputError(
                f"output {name}: expected a value for each row, received one for the whole batch",
                "name another signature",
            )
        flat = values.reshape([len(values), -1])
        width = flat.shape[1]
        items = _text(flat.ravel()) if values.dtype == object else pa.array(flat.ravel())
        converted[name] = items if width == 1 else pa.FixedSizeListArray.from_arrays(items, width)
    return dict(sorted(converted.items()))


def create(path: str, format_: OutputFormat, schema: pa.Schema) -> Writer:
    """Creates a file, local or remote; the caller gives it its final name when it is complete."""
    if format_ == "parquet":
        return _Parquet(path, schema)
    return _Csv(path, schema) if format_ == "csv" else _Tfrecord(path)


class _Parquet:
    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._file = file_io.create(path)
        self._writer = parquet.ParquetWriter(self._file, schema, compression="zstd", use_compliant_nested_type=True)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()
        self._file.close()


class _Csv:
    """Lists of a fixed number of values become a column for each."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        flat = _flat(pa.RecordBatch.from_pylist([], schema)).schema
        self._file = file_io.create(path)
        self._writer = csv.CSVWriter(self._file, flat)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(_flat(batch))

    def close(self) -> None:
        self._writer.close()
        self._file.close()


class _Tfrecord:
    def __init__(self, path: str) -> None:
        self._writer = TfrecordWriter(path)

    def write(self, batch: pa.RecordBatch) -> None:
        arrays = [_as_feature(column) for column in batch.columns]
        self._writer.write(framed_examples(to_lists(pa.RecordBatch.from_arrays(arrays, batch.schema.names))))

    def close(self) -> None:
        self._writer.close()


def _flat(batch: pa.RecordBatch) -> pa.RecordBatch:
    arrays: dict[str, pa.Array] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_fixed_size_list(column.type):
            arrays |= {f"{name}_{at}": pc.list_element(column, at) for at in range(column.type.list_size)}
        elif pa.types.is_nested(column.type):
            raise InputError(
                f"column {name}: expected one value in each row, received {column.type}", "write parquet or tfrecord"
            )
        else:
            arrays[name] = column
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def _as_feature(column: pa.Array) -> pa.Array:
    """A column in the types of a tf.Example."""
    if pa.types.is_fixed_size_list(column.type) or pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return pa.ListArray.from_arrays(_offsets(column), _as_feature(column.flatten()))
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        return column.cast(pa.int64())
    if pa.types.is_floating(column.type):
        return column.cast(pa.float32())
    return column if pa.types.is_binary(column.type) else column.cast(pa.string()).cast(pa.binary())


def _offsets(column: pa.Array) -> pa.Array:
    sizes = np.asarray(pc.list_value_length(column).fill_null(0))
    return pa.array(np.append(0, np.cumsum(sizes)).astype(np.int32))


def _text(values: npt.NDArray[Any]) -> pa.Array:
    """Bytes as text; those that are not UTF-8 are escaped."""
    column = pa.array(values, pa.binary())
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode(errors="backslashreplace") for value in values])
