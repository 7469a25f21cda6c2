"""Encodes record batches as serialized tf.Examples, column by column.

A tf.Example is a protobuf map from the name of a feature to a list of values, and a protobuf message is the
concatenation of its fields. So each column is turned into two arrays, the bytes that come before its values and the
bytes of the values, and the pieces of all columns are joined row by row. The features of a row stand in the order of
their names: the same row always gives the same bytes, and bytes that are alike stand near to each other, which
compresses better.

Sources: https://protobuf.dev/programming-guides/encoding, and example.proto and feature.proto of TensorFlow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
"""Bytes of the same number for each row; shape [rows, bytes]."""
Piece: TypeAlias = Any
"""A binary array with bytes for each row, or a binary scalar for all of them."""

_NOTHING = pa.scalar(b"", pa.binary())
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3
"""The fields of the message Feature."""
_DENSE = 1 << 16
"""Lengths up to this are looked up in a table rather than sorted."""

Form = Literal["one", "packed", "tagged"]
"""What the bytes of a row's values are: one bytes value; numbers without tags; bytes values, each with its tag."""


def encode(batch: pa.RecordBatch, head: Callable[[int], bytes] | None = None, foot: bytes = b"") -> pa.Array:
    """Each row as a serialized tf.Example.

    Args:
      batch: columns of int64, float32, binary or null, or lists of one of these without nulls inside.
      head: makes of an example's length what is to stand before it.
      foot: what is to stand behind each example.

    Returns:
      Binary, one for each row. A missing value or list is a feature without a kind, which TFDV counts as missing; an
      empty list is a list without values.
    """
    pieces: list[Piece] = []
    fixed: list[Bytes] = []
    for name in sorted(batch.schema.names):
        found = _feature(name, batch.column(batch.schema.get_field_index(name)))
        if isinstance(found, np.ndarray):
            fixed.append(found)
            continue
        pieces += [*_side_by_side(fixed), *found]
        fixed = []
    pieces += _side_by_side(fixed)
    sizes: Ints = np.zeros(batch.num_rows, np.int64)
    for piece in pieces:
        sizes += len(piece.as_py()) if isinstance(piece, pa.Scalar) else lengths(piece)

    def before(size: int) -> bytes:
        own = _head(1, size)
        return (head(len(own) + size) if head else b"") + own

    return join([by_length(sizes, before), *pieces, pa.scalar(foot, pa.binary())], batch.num_rows)


def join(pieces: list[Piece], rows: int) -> pa.Array:
    """The pieces of each row one behind the other, as binary."""
    if all(isinstance(piece, pa.Scalar) for piece in pieces):
        return pa.array([b"".join(piece.as_py() for piece in pieces)] * rows, pa.binary())
    return pc.binary_join_element_wise(*pieces, _NOTHING)


def fixed_size(values: Bytes) -> pa.Array:
    """The rows of a matrix of bytes as binary values."""
    rows, width = values.shape
    ends = np.arange(0, width * rows + 1, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(values)])


def lengths(texts: pa.Array) -> Ints:
    """The length of each of the values of a binary array without nulls, in bytes."""
    return np.diff(offsets_of(texts)).astype(np.int64)


def by_length(sizes: Ints, make: Callable[[int], bytes]) -> Piece:
    """For each row `make(its size)`; `make` is called once for each size there is."""
    most = int(sizes.max(initial=0))
    if most < _DENSE:
        distinct = np.flatnonzero(np.bincount(sizes))
        place = np.zeros(most + 1, np.int32)
        place[distinct] = np.arange(len(distinct))
        places = place[sizes] if len(distinct) > 1 else None
    else:
        distinct, places = np.unique(sizes, return_inverse=True)
    made = pa.array([make(int(size)) for size in distinct], pa.binary())
    if not len(made):
        return made
    return made.take(pa.array(places)) if places is not None and len(distinct) > 1 else made[0]


def offsets_of(texts: pa.Array) -> npt.NDArray[np.int32]:
    """Where the values of a binary or list array start in its data, and where the last one ends; shape [rows + 1]."""
    offsets: npt.NDArray[np.int32] = np.frombuffer(texts.buffers()[1], np.int32)
    return offsets[texts.offset : texts.offset + len(texts) + 1]


@dataclass(frozen=True)
class _Flat:
    """All values of a column in one piece of memory.

    Attributes:
      field: of the message Feature.
      form: see `Form`.
      data: the bytes of all values.
      ends: where each value starts in `data`, and where the last one ends; shape [values + 1].
    """

    field: int
    form: Form
    data: Any
    ends: Ints


def _feature(name: str, column: pa.Array) -> list[Piece] | Bytes:
    """The bytes of each row for one column: the head of its map entry, and its values."""
    if column.null_count == len(column):
        return [pa.scalar(_missing(name), pa.binary())]
    if pa.types.is_list(column.type):
        flat = _flat(column.flatten(), repeated=True)
        ends = flat.ends[np.append(0, np.cumsum(np.asarray(pc.list_value_length(column).fill_null(0))))]
    elif column.null_count:
        flat = _flat(column.drop_null(), repeated=False)
        ends = flat.ends[np.append(0, np.cumsum(np.asarray(column.is_valid())))]
    else:
        flat = _flat(column, repeated=False)
        ends = flat.ends
    sizes = np.diff(ends)
    head = functools.partial(_entry_head, name, flat.field, flat.form)
    if not column.null_count and flat.field != _BYTES_LIST and (sizes == sizes[0]).all():
        return _filled(head(int(sizes[0])), np.asarray(flat.data)[int(ends[0]) : int(ends[-1])], len(column))
    values = pa.Array.from_buffers(
        pa.binary(), len(column), [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(flat.data)]
    )
    if not column.null_count:
        return [by_length(sizes, head), values]
    # Size 0 stands for missing, and every other size is one more than it is.
    sizes = np.where(column.is_valid(), sizes + 1, 0)
    return [by_length(sizes, lambda size: head(size - 1) if size else _missing(name)), values]


def _filled(head: bytes, values: npt.NDArray[np.uint8], rows: int) -> Bytes:
    """The same head in every row, and values of one size behind it."""
    width = len(values) // rows
    filled: Bytes = np.empty((rows, len(head) + width), np.uint8)
    filled[:, : len(head)] = np.frombuffer(head, np.uint8)
    filled[:, len(head) :] = values.reshape(rows, width)
    return filled


def _side_by_side(columns: list[Bytes]) -> list[Piece]:
    """Columns whose bytes have one size in all rows, as one: the fewer pieces there are to join, the faster."""
    return [fixed_size(np.concatenate(columns, axis=1))] if columns else []


def _flat(values: pa.Array, repeated: bool) -> _Flat:
    """Values without nulls as they stand in their list message; `repeated` if a row may have several."""
    if pa.types.is_floating(values.type):
        floats = np.ascontiguousarray(np.asarray(values), "<f4")
        return _Flat(_FLOAT_LIST, "packed", floats.view(np.uint8), np.arange(0, 4 * len(floats) + 1, 4, dtype=np.int64))
    if pa.types.is_integer(values.type):
        return _Flat(_INT64_LIST, "packed", *_varints(np.asarray(values).view(np.uint64)))
    if repeated:
        values = join([by_length(lengths(values), functools.partial(_head, 1)), values], len(values))
    data = values.buffers()[2]
    form: Form = "tagged" if repeated else "one"
    return _Flat(_BYTES_LIST, form, data if data is not None else b"", offsets_of(values).astype(np.int64))


def _varints(values: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Base-128 varints one behind the other, and where each one starts; negative numbers take ten bytes."""
    most = int(values.max(initial=0))
    if most < 128:
        return values.astype(np.uint8), np.arange(len(values) + 1, dtype=np.int64)
    longest = -(-most.bit_length() // 7)
    sizes: Ints = np.ones(len(values), np.int64)
    for size in range(1, longest):
        sizes += values >= np.uint64(1 << 7 * size)
    ends: Ints = np.append(0, np.cumsum(sizes))
    out = np.empty(int(ends[-1]), np.uint8)
    rows, starts = values, ends[:-1]
    for place in range(longest):
        if place:
            longer = sizes > place
            rows, starts, sizes = rows[longer], starts[longer], sizes[longer]
        digits = ((rows >> np.uint64(7 * place)) & np.uint64(127)).astype(np.uint8)
        out[starts + place] = digits | ((sizes > place + 1).astype(np.uint8) << 7)
    return out, ends


@functools.lru_cache(maxsize=1 << 16)
def _entry_head(name: str, field: int, form: Form, length: int) -> bytes:
    """What stands before the `length` bytes of a row's values, from the tag of the map entry on."""
    if form == "one" or (form == "packed" and length):
        feature = _head(field, len(_head(1, length)) + length) + _head(1, length)
    else:
        feature = _head(field, length)
    key = _key(name)
    value = _head(2, len(feature) + length) + feature
    return _head(1, len(key) + len(value) + length) + key + value


def _missing(name: str) -> bytes:
    """The map entry of a feature without a kind."""
    entry = _key(name) + _head(2, 0)
    return _head(1, len(entry)) + entry


def _key(name: str) -> bytes:
    key = name.encode()
    return _head(1, len(key)) + key


def _head(field: int, length: int) -> bytes:
    """Tag and length of a length-delimited field."""
    return bytes([field << 3 | 2]) + _varint(length)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
