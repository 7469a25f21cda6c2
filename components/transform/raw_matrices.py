"""Raw examples as a few matrices, from which `FilledColumns` reads columns without several values in a row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf

from components.features.column_group import Columns
from components.features.filled_columns import FilledColumns
from components.transform.raw_batches import RawBatches

Matrix: TypeAlias = "tuple[tf.Tensor, tf.Tensor]"
"""Numbers: the values and whether they are present, both of shape [columns, rows]. Texts: the distinct texts of all
columns, shape [texts], and for every value its position among them, int32 of shape [columns, rows]; 0 if missing."""
Inputs: TypeAlias = "tuple[list[Matrix], dict[str, Any]]"
"""The matrices, and the columns with several values in a row as SparseTensors."""

_DTYPES = (tf.int64, tf.float32, tf.string)


class RawMatrices:
    """The columns that a function reads, as the inputs of a graph.

    Args:
      batches: The raw features.
      columns: Names of the columns to read. Other columns count as missing in every row.
      lists: Names of columns with several values in a row, which remain SparseTensors.
    """

    def __init__(self, batches: RawBatches, columns: Collection[str], lists: Collection[str]) -> None:
        self._batches = batches
        specs = {name: spec for name, spec in batches.specs.items() if isinstance(spec, tf.SparseTensorSpec)}
        flat = [name for name in specs if name not in lists]
        self._names = [[name for name in flat if specs[name].dtype == dtype] for dtype in _DTYPES]
        self._read = frozenset(columns)
        self._parsed = [name for name in batches.specs if name not in flat]

    def trace(self, function: Callable[[Columns], Any], tracer: Callable[..., Any]) -> Any:
        """Trace a function of Columns with the inputs that `pack` returns."""
        matrices = [
            (tf.TensorSpec([None], tf.string), tf.TensorSpec([len(names), None], tf.int32))
            if dtype == tf.string
            else (tf.TensorSpec([len(names), None], dtype), tf.TensorSpec([len(names), None], tf.bool))
            for dtype, names in zip(_DTYPES, self._names, strict=True)
        ]
        parsed = {name: self._batches.specs[name] for name in self._parsed}

        def compute_outputs(matrices: list[Matrix], parsed: Mapping[str, Any]) -> Any:
            filled = [
                (tf.gather(first, second), second > 0) if first.dtype == tf.string else (first, second)
                for first, second in matrices
            ]
            return function(FilledColumns(self._names, filled, parsed))

        return tracer(compute_outputs, [matrices, parsed])

    def pack(self, batch: pa.RecordBatch) -> Inputs | None:
        """Convert a batch that was read with `batches.schema`; None if a row has several values in a flat column."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        matrices = []
        for dtype, names in zip(_DTYPES, self._names, strict=True):
            pack = _pack_texts if dtype == tf.string else _pack_numbers
            present = [columns[name] if name in self._read and name in columns else None for name in names]
            packed = pack(present, batch.num_rows, dtype)
            if packed is None:
                return None
            matrices.append(packed)
        tensors = self._batches.tensors(batch) if self._parsed else {}
        return matrices, {name: tensors[name] for name in self._parsed}


def _pack_numbers(columns: list[pa.Array | None], rows: int, dtype: tf.DType) -> Matrix | None:
    values = np.zeros((len(columns), rows), dtype.as_numpy_dtype)
    present = np.zeros((len(columns), rows), bool)
    for at, column in enumerate(columns):
        flattened = None if column is None else _flatten(column)
        if flattened is None:
            continue
        flat, counts = flattened
        if len(flat) == rows and counts is None:
            values[at], present[at] = flat.to_numpy(), True
            continue
        if counts is not None and counts.max() > 1:
            return None
        present[at] = counts
        values[at, present[at]] = flat.to_numpy()
    return tf.constant(values), tf.constant(present)


def _pack_texts(columns: list[pa.Array | None], rows: int, _: tf.DType) -> Matrix | None:
    positions = np.zeros((len(columns), rows), np.int32)
    texts = [np.array([b""], object)]
    count = 1
    for at, column in enumerate(columns):
        flattened = None if column is None else _flatten(column)
        if flattened is None:
            continue
        flat, counts = flattened
        if counts is not None and counts.max() > 1:
            return None
        # Python objects are created for distinct texts only, which repeat in most columns.
        encoded = flat.dictionary_encode()
        indices = encoded.indices.to_numpy() + count
        positions[at, slice(None) if counts is None else counts.astype(bool)] = indices
        texts.append(encoded.dictionary.to_numpy(zero_copy_only=False))
        count += len(encoded.dictionary)
    return tf.constant(np.concatenate(texts), tf.string), tf.constant(positions)


def _flatten(column: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64] | None] | None:
    """Return the values of a column of lists, and their numbers by row, or None if every row has one value.

    Return None for a column without values.
    """
    if pa.types.is_null(column.type) or not len(column):
        return None
    offsets = np.asarray(column.offsets)
    flat = column.values.slice(offsets[0], offsets[-1] - offsets[0])
    if not len(flat):
        return None
    counts = np.diff(offsets)
    return flat, None if (counts == 1).all() else counts
