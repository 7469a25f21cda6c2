"""Encode record batches as serialized tf.Examples, column by column.

A tf.Example is a protobuf map from the name of a feature to a list of values, and a protobuf message is the
concatenation of its fields. Therefore a column is converted to two arrays, the bytes that precede its values and the
bytes of the values, and the arrays of all columns are joined row by row. Features are sorted by name, so that equal
rows have equal bytes, and similar bytes are close to each other, which improves compression.

Sources: https://protobuf.dev/programming-guides/encoding, and example.proto and feature.proto of TensorFlow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
"""Bytes of rows that have the same number of bytes; shape [rows, bytes]."""
Part: TypeAlias = "pa.Array | pa.Scalar"
"""A part of the bytes of rows: a binary array of shape [rows], or a binary scalar that all rows share."""

_EMPTY = pa.scalar(b"", pa.binary())
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3
"""The fields of the message Feature."""
_DENSE = 1 << 16
"""Length below which lengths are looked up in a table instead of being sorted."""

Form = Literal["one", "packed", "tagged"]
"""The encoding of a row's values: `one` bytes value, `packed` numbers without tags, or `tagged` bytes values."""


def encode(batch: pa.RecordBatch, head: Callable[[int], bytes] | None = None, foot: bytes = b"") -> pa.Array:
    """Encode the rows of a batch as serialized tf.Examples.

    Args:
      batch: Columns of int64, float32, binary or null, or of lists of these without nulls inside; or a batch of
        `Examples`.
      head: Function from the length of an example to the bytes to write before it.
      foot: Bytes to write after every example.

    Returns:
      Binary, shape [rows]. A missing value or list becomes a feature without a kind, which TFDV counts as missing. An
      empty list becomes a list without values.
    """
    parts: list[Part] = []
    fixed: list[Bytes] = []
    for name in sorted(batch.schema.names):
        feature = _encode_column(name, batch.column(batch.schema.get_field_index(name)))
        if isinstance(feature, np.ndarray):
            fixed.append(feature)
            continue
        parts += [*_concatenate(fixed), *feature]
        fixed = []
    parts += _concatenate(fixed)
    sizes: Ints = np.zeros(batch.num_rows, np.int64)
    for part in parts:
        sizes += len(part.as_py()) if isinstance(part, pa.Scalar) else lengths(part)

    def prefix(size: int) -> bytes:
        tag = _tag(1, size)
        return (head(len(tag) + size) if head else b"") + tag

    return join([by_length(sizes, prefix), *parts, pa.scalar(foot, pa.binary())], batch.num_rows)


def join(parts: list[Part], rows: int) -> pa.Array:
    """Concatenate the parts row by row; return binary of shape [rows]."""
    if all(isinstance(part, pa.Scalar) for part in parts):
        return pa.array([b"".join(part.as_py() for part in parts)] * rows, pa.binary())
    return pc.binary_join_element_wise(*parts, _EMPTY)


def to_fixed_size(values: Bytes) -> pa.Array:
    """Convert a matrix of bytes to binary values, one per row."""
    rows, width = values.shape
    ends = np.arange(0, width * rows + 1, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(values)])


def lengths(texts: pa.Array) -> Ints:
    """Return the lengths in bytes of the values of a binary array without nulls; shape [rows]."""
    return np.diff(offsets_of(texts)).astype(np.int64)


def by_length(sizes: Ints, make: Callable[[int], bytes]) -> Part:
    """Return `make(size)` for the sizes of all rows; call `make` once per distinct size."""
    largest = int(sizes.max(initial=0))
    if largest < _DENSE:
        distinct = np.flatnonzero(np.bincount(sizes))
        index_of = np.zeros(largest + 1, np.int32)
        index_of[distinct] = np.arange(len(distinct))
        indices = index_of[sizes] if len(distinct) > 1 else None
    else:
        distinct, indices = np.unique(sizes, return_inverse=True)
    texts = pa.array([make(int(size)) for size in distinct], pa.binary())
    if not len(texts):
        return texts
    return texts.take(pa.array(indices)) if indices is not None and len(distinct) > 1 else texts[0]


def offsets_of(texts: pa.Array) -> npt.NDArray[np.int32]:
    """Return the offsets of the values of a binary or list array, and the end of the last value; shape [rows + 1]."""
    offsets: npt.NDArray[np.int32] = np.frombuffer(texts.buffers()[1], np.int32)
    return offsets[texts.offset : texts.offset + len(texts) + 1]


@dataclass(frozen=True)
class _Flat:
    """The values of a column in one buffer.

    Attributes:
      field: Number of the field in the message Feature.
      form: Encoding of the values.
      data: Bytes of all values.
      ends: Offsets of the values in `data`, and the end of the last value; shape [values + 1].
    """

    field: int
    form: Form
    data: pa.Buffer | npt.NDArray[np.uint8] | bytes
    ends: Ints


def _encode_column(name: str, column: pa.Array) -> list[Part] | Bytes:
    """Encode the map entries of a column: the tags that precede the values, and the values."""
    if column.null_count == len(column):
        return [pa.scalar(_missing(name), pa.binary())]
    if pa.types.is_large_list(column.type):
        item = column.type.value_type
        column = column.cast(pa.list_(pa.binary() if pa.types.is_large_binary(item) else item))
    if pa.types.is_list(column.type):
        flat = _encode_values(column.flatten(), repeated=True)
        ends = flat.ends[np.append(0, np.cumsum(np.asarray(pc.list_value_length(column).fill_null(0))))]
    elif column.null_count:
        flat = _encode_values(column.drop_null(), repeated=False)
        ends = flat.ends[np.append(0, np.cumsum(np.asarray(column.is_valid())))]
    else:
        flat = _encode_values(column, repeated=False)
        ends = flat.ends
    sizes = np.diff(ends)
    head = functools.partial(_entry_tags, name, flat.field, flat.form)
    if not column.null_count and flat.field != _BYTES_LIST and (sizes == sizes[0]).all():
        return _prepend(head(int(sizes[0])), np.asarray(flat.data)[int(ends[0]) : int(ends[-1])], len(column))
    values = pa.Array.from_buffers(
        pa.binary(), len(column), [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(flat.data)]
    )
    if not column.null_count:
        return [by_length(sizes, head), values]
    # Size 0 means missing; every other size is increased by one.
    sizes = np.where(column.is_valid(), sizes + 1, 0)
    return [by_length(sizes, lambda size: head(size - 1) if size else _missing(name)), values]


def _prepend(head: bytes, values: npt.NDArray[np.uint8], rows: int) -> Bytes:
    """Put the same head before the values of every row, which must have the same size."""
    width = len(values) // rows
    filled: Bytes = np.empty((rows, len(head) + width), np.uint8)
    filled[:, : len(head)] = np.frombuffer(head, np.uint8)
    filled[:, len(head) :] = values.reshape(rows, width)
    return filled


def _concatenate(columns: list[Bytes]) -> list[Part]:
    """Concatenate columns with a fixed number of bytes, because joining fewer parts is faster."""
    return [to_fixed_size(np.concatenate(columns, axis=1))] if columns else []


def _encode_values(values: pa.Array, repeated: bool) -> _Flat:
    """Encode values without nulls as in their list message. If `repeated`, a row may have several values."""
    if pa.types.is_floating(values.type):
        floats = np.ascontiguousarray(np.asarray(values), "<f4")
        return _Flat(_FLOAT_LIST, "packed", floats.view(np.uint8), np.arange(0, 4 * len(floats) + 1, 4, dtype=np.int64))
    if pa.types.is_integer(values.type):
        return _Flat(_INT64_LIST, "packed", *_varints(np.asarray(values).view(np.uint64)))
    if repeated:
        values = join([by_length(lengths(values), functools.partial(_tag, 1)), values], len(values))
    data = values.buffers()[2]
    form: Form = "tagged" if repeated else "one"
    return _Flat(_BYTES_LIST, form, data if data is not None else b"", offsets_of(values).astype(np.int64))


def _varints(values: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Encode values as base-128 varints. Negative numbers need ten bytes.

    Returns:
      The bytes of all varints; and their offsets with the end of the last varint, shape [values + 1].
    """
    largest = int(values.max(initial=0))
    if largest < 128:
        return values.astype(np.uint8), np.arange(len(values) + 1, dtype=np.int64)
    longest = -(-largest.bit_length() // 7)
    sizes: Ints = np.ones(len(values), np.int64)
    for size in range(1, longest):
        sizes += values >= np.uint64(1 << 7 * size)
    ends: Ints = np.append(0, np.cumsum(sizes))
    out = np.empty(int(ends[-1]), np.uint8)
    rows, starts = values, ends[:-1]
    for index in range(longest):
        if index:
            longer = sizes > index
            rows, starts, sizes = rows[longer], starts[longer], sizes[longer]
        digits = ((rows >> np.uint64(7 * index)) & np.uint64(127)).astype(np.uint8)
        out[starts + index] = digits | ((sizes > index + 1).astype(np.uint8) << 7)
    return out, ends


@functools.lru_cache(maxsize=1 << 16)
def _entry_tags(name: str, field: int, form: Form, length: int) -> bytes:
    """Return the bytes of a map entry that precede the `length` bytes of a row's values."""
    if form == "one" or (form == "packed" and length):
        feature = _tag(field, len(_tag(1, length)) + length) + _tag(1, length)
    else:
        feature = _tag(field, length)
    key = _key(name)
    value = _tag(2, len(feature) + length) + feature
    return _tag(1, len(key) + len(value) + length) + key + value


def _missing(name: str) -> bytes:
    """Return the map entry of a feature without a kind."""
    entry = _key(name) + _tag(2, 0)
    return _tag(1, len(entry)) + entry


def _key(name: str) -> bytes:
    key = name.encode()
    return _tag(1, len(key)) + key


def _tag(field: int, length: int) -> bytes:
    """Return tag and length of a length-delimited field."""
    return bytes([field << 3 | 2]) + _varint(length)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
