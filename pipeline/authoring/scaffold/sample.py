"""A random sample of the data, read once with ExampleGen's readers."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from components.data.compression import open_decompressed
from components.errors import InputError
from components.ingest import input_files, readers
from components.ingest.blocks import Block, RowLog
from components.ingest.column_types import ColumnConverter
from components.ingest.config import CsvConfig, DataConfig

_SAMPLE_ROWS = 200_000
"""Maximum size of the sample; about: it has between half and all of it."""
_HEAD = 64 << 10
"""Bytes of text from which the delimiter is derived."""
_DELIMITERS = ",;\t|"
_NULL_TEXTS = ("?", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null")
"""Texts that mean a missing value in any column."""
_NULL_IN_NUMBERS = ("-", "--", ".", "None", "none", "unknown", "Unknown", "missing")
"""Texts that mean a missing value in a column whose other texts are numbers."""


@dataclass(frozen=True)
class Table:
    """A sample of the data.

    Attributes:
      columns: name → int64, float32, binary or null, or lists of these; null where a value is missing.
      rows: number of rows of the data; `columns` has at most as many.
      bad: number of invalid rows of the data.
      csv: options of the CSV format; None if the data is no text.
      files: number of files.
      format: csv, parquet, tfrecord or images.
    """

    columns: dict[str, pa.Array]
    rows: int
    bad: int
    csv: CsvConfig | None
    files: int
    format: str

    @property
    def sampled(self) -> int:
        """Number of rows of `columns`."""
        return len(next(iter(self.columns.values())))


def read(paths: Sequence[str]) -> Table:
    """Reads a table.

    Args:
      paths: files, folders or patterns, as in `data.path`.

    Raises:
      InputError: there is no data, it is no table, or it cannot be read.
    """
    # The label is chosen later; the config requires one.
    config = DataConfig(path=tuple(paths), label="label")
    format_ = input_files.find(config).format
    if format_ in ("images", "tfrecord"):
        raise InputError(
            f"--data: expected a table in CSV or Parquet files, received {format_} files",
            "write the config by hand; configs/digits.yaml shows one for images",
        )
    files = [file for of_pattern in input_files.files(config).values() for file in of_pattern]
    text = format_ == "csv"
    style = _style(files[0]) if text else CsvConfig()
    config = config.model_copy(update={"format": format_, "csv": style})
    reader = readers.reader(config, files)
    row_log, sample = RowLog(None), _Sample()
    for file in files:
        for file_range in reader.ranges(file, None):
            for block in reader.read(file_range, row_log):
                sample.add(block)
    counts = row_log.close()
    batch = sample.rows()
    if text:
        null_texts = tuple(_null_texts(batch))
        batch = _with_nulls(batch, null_texts)
        if null_texts:
            style = style.model_copy(update={"null_values": ("", *null_texts)})
    columns, invalid = _typed(batch, style.encoding if text else None)
    bad = counts.bad + round(invalid * counts.rows / max(1, batch.num_rows))
    return Table(columns, counts.rows, bad, style if text else None, len(files), format_)


class _Sample:
    """A uniform random sample of bounded size: when it is full, each of its rows is kept with probability 1/2."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self._share, self._count = 1.0, 0
        self._batches: list[pa.RecordBatch] = []

    def add(self, block: Block) -> None:
        """Adds a sample of a block's rows."""
        self._keep(block.columns)
        while self._count > _SAMPLE_ROWS:
            self._share /= 2
            batches, self._batches, self._count = self._batches, [], 0
            for batch in batches:
                self._keep(batch, 0.5)

    def _keep(self, batch: pa.RecordBatch, share: float | None = None) -> None:
        share = self._share if share is None else share
        if share < 1:
            batch = batch.filter(pa.array(self._random.random(batch.num_rows) < share))
        self._batches.append(batch)
        self._count += batch.num_rows

    def rows(self) -> pa.RecordBatch:
        """Returns the sample."""
        if not self._count:
            raise InputError("--data: there is no row that can be read", "give a file with rows below its header")
        (batch,) = pa.Table.from_batches(self._batches).combine_chunks().to_batches()
        return batch


def _style(path: str) -> CsvConfig:
    """Derives the delimiter of a text file, and whether spaces follow it."""
    with open_decompressed(path) as file:
        head = file.read(_HEAD).decode("utf-8", errors="replace")
    lines = head.splitlines()[:-1] or head.splitlines()
    delimiter = max(_DELIMITERS, key=lambda sign: _regularity(lines, sign))
    fields = [field for line in lines[1:] for field in line.split(delimiter)[1:]]
    spaced = sum(field.startswith(" ") for field in fields)
    # In `1, ?, a` the spaces belong to no value.
    return CsvConfig(delimiter=delimiter, skip_initial_space=bool(fields) and spaced > len(fields) / 2)


def _regularity(lines: Sequence[str], delimiter: str) -> tuple[float, int]:
    """Returns the share of lines with as many fields as the first line, and this number of fields."""
    widths = [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
    if not widths or widths[0] == 1:
        return 0.0, 0
    return sum(width == widths[0] for width in widths) / len(widths), widths[0]


def _null_texts(batch: pa.RecordBatch) -> Iterator[str]:
    """Yields the texts that stand for a missing value in this data."""
    nulls: set[bytes] = set()
    for column in batch.columns:
        distinct = column.drop_null().unique()
        if len(distinct) > 10_000:
            distinct = distinct.slice(0, 10_000)
        texts = set(distinct.to_pylist())
        nulls |= texts & {text.encode() for text in _NULL_TEXTS}
        candidates = texts & {text.encode() for text in _NULL_IN_NUMBERS}
        rest = texts - nulls - candidates
        if candidates and rest and all(_is_number(text) for text in rest):
            nulls |= candidates
    # Python and ExampleGen parse "nan" as a number.
    return (text for text in (*_NULL_TEXTS, *_NULL_IN_NUMBERS) if text.encode() in nulls and text.lower() != "nan")


def _is_number(text: bytes) -> bool:
    return re.fullmatch(rb"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*", text) is not None


def _with_nulls(batch: pa.RecordBatch, null_texts: Iterable[str]) -> pa.RecordBatch:
    """Replaces the texts that stand for a missing value by null."""
    texts = pa.array([text.encode() for text in null_texts], pa.binary())
    columns = [pc.if_else(pc.is_in(column, texts), pa.scalar(None, column.type), column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _typed(batch: pa.RecordBatch, encoding: str | None) -> tuple[dict[str, pa.Array], int]:
    """Converts the columns to their types; returns them, and the number of rows removed for an invalid value."""
    converter = ColumnConverter({}, {}, encoding)
    _, invalid = converter.convert(batch)
    rows = {value.row for value in invalid}
    if rows:
        keep = np.ones(batch.num_rows, bool)
        keep[list(rows)] = False
        columns, others = _typed(batch.filter(pa.array(keep)), encoding)
        return columns, others + len(rows)
    # With these types every value can be converted.
    converted, _ = ColumnConverter({}, {**converter.output_kinds, **converter.kinds}, encoding).convert(batch)
    columns = converted.columns if converted else batch.columns
    return dict(zip(batch.schema.names, columns, strict=True)), 0


def numbers(column: pa.Array) -> npt.NDArray[np.float64]:
    """Returns a column of numbers as float64 (rows); NaN where a value is missing."""
    return np.asarray(column.cast(pa.float64()).fill_null(float("nan")), np.float64)


def texts(column: pa.Array) -> npt.NDArray[np.object_]:
    """Returns a column of texts as str (rows); None where a value is missing."""
    return np.array([None if each is None else each.decode(errors="replace") for each in column.to_pylist()], object)


def kind(column: pa.Array) -> str:
    """Returns int, float or bytes (the types of tf.Example), lists, or missing for a column without values."""
    if pa.types.is_null(column.type) or column.null_count == len(column):
        return "missing"
    if pa.types.is_list(column.type):
        return "lists"
    if pa.types.is_integer(column.type):
        return "int"
    return "float" if pa.types.is_floating(column.type) else "bytes"
