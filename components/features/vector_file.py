"""Reads files with pretrained vectors, such as word vectors."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from components.base.errors import InputError
from components.data import file_io

_REMEDY = "give an .npz with the arrays `values` and `vectors`, or a text with a value and its numbers in every line"


class PretrainedVectors(NamedTuple):
    """Values and their vectors.

    Attributes:
      values: Distinct values; whole numbers as decimal text, texts in UTF-8.
      vectors: Their vectors, float32 [values, width].
    """

    values: list[bytes]
    vectors: npt.NDArray[np.float32]


def read_vectors(path: str, width: int, most: int | None = None) -> PretrainedVectors:
    """Read the vectors of a file; see `Vectors.path` for the formats.

    Args:
      path: The file.
      width: Expected numbers per value.
      most: Maximum number of values to read. If None, all are read.

    Raises:
      InputError: If the file cannot be read, is not in one of the formats, or its vectors have another width or
        numbers that are not finite.
    """
    try:
        with file_io.open_binary(path) as file:
            values, vectors = _read_npz(file, most) if path.endswith(".npz") else _read_text(file, most)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", "give a file of vectors") from error
    except (KeyError, ValueError) as error:
        raise InputError(f"{path}: expected vectors of values, received something else: {error}", _REMEDY) from error
    if vectors.shape[1] != width:
        raise InputError(
            f"{path}: expected {width} numbers per value, received {vectors.shape[1]}",
            f"set the width to {vectors.shape[1]}",
        )
    if not np.isfinite(vectors).all():
        row = int(np.argmin(np.isfinite(vectors).all(axis=1)))
        raise InputError(f"{path}: expected finite numbers, received {vectors[row]} for {values[row]!r}", _REMEDY)
    first = {value: number for number, value in reversed(list(enumerate(values)))}
    positions = sorted(first.values())
    return PretrainedVectors([values[number] for number in positions], vectors[positions])


def _read_npz(file: IO[bytes], most: int | None) -> tuple[list[bytes], npt.NDArray[np.float32]]:
    with np.load(io.BytesIO(file.read()), allow_pickle=False) as arrays:
        values, vectors = arrays["values"], np.asarray(arrays["vectors"], np.float32)
    if vectors.ndim != 2 or values.shape != vectors.shape[:1] or not len(values):
        raise ValueError(f"`values` has the shape {list(values.shape)}, `vectors` {list(vectors.shape)}")
    if values.dtype.kind not in "SUiu":
        raise ValueError(f"`values` has the dtype {values.dtype}")
    texts = [value if isinstance(value, bytes) else str(value).encode() for value in values[:most].tolist()]
    return texts, vectors[:most]


def _read_text(file: IO[bytes], most: int | None) -> tuple[list[bytes], npt.NDArray[np.float32]]:
    lines = (line.rstrip() for line in file)
    first = next(lines, b"").split(b" ")
    is_header = len(first) == 2 and all(part.isdigit() for part in first)
    head = [] if is_header else [b" ".join(first)]
    values, numbers = [], []
    width = int(first[1]) if is_header else len(first) - 1
    for value, text in _split_lines(itertools.islice(itertools.chain(head, lines), most), width):
        values.append(value)
        numbers.append(text)
    if not values or not width:
        raise ValueError("no line has a value and numbers")
    # One call for all numbers: NumPy parses them a hundred times as fast as a call per line.
    parsed = np.array(b" ".join(numbers).split(), np.float32)
    return values, parsed.reshape(len(values), width)


def _split_lines(lines: Iterator[bytes], width: int) -> Iterator[tuple[bytes, bytes]]:
    for number, line in enumerate(lines, 1):
        # A value may contain spaces.
        value, *parts = line.rsplit(b" ", width)
        if len(parts) != width:
            raise ValueError(f"vector {number} has {len(parts)} numbers, the first one {width}")
        yield value, b" ".join(parts)
