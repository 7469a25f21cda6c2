"""Reads the data once, by the readers of the ingest, and keeps as many rows as a look needs."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.errors import InputError
from components.ingest import inputs, source
from components.ingest.columns import Columns
from components.ingest.config import CsvConfig, DataConfig
from components.ingest.packed import open_unpacked
from components.ingest.rows import Block, Ledger

_KEPT = 200_000
"""Rows that are looked at; of more, a random part."""
_HEAD = 64 << 10
"""Bytes of text in which the delimiter is looked for."""
_DELIMITERS = ",;\t|"
_NOTHING = ("?", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null")
"""Texts that mean a missing value wherever they stand."""
_NO_NUMBER = ("-", "--", ".", "None", "none", "unknown", "Unknown", "missing")
"""Texts that mean one where all others of the column are numbers."""


@dataclass(frozen=True)
class Table:
    """Rows of the data.

    Attributes:
      columns: name → int64, float32, binary or null, or lists of these; null where a value is missing.
      rows: rows of the data; `columns` has fewer if these are too many to look at.
      bad: rows of the data that cannot be taken.
      csv: how the text is written, where that is not the usual way; None if the data is no text.
      files: how many files there are.
      format: csv, parquet, tfrecord or images.
    """

    columns: dict[str, pa.Array]
    rows: int
    bad: int
    csv: CsvConfig | None
    files: int
    format: str

    @property
    def looked_at(self) -> int:
        """Rows of `columns`."""
        return len(next(iter(self.columns.values())))


def read(paths: Sequence[str]) -> Table:
    """Reads a table.

    Args:
      paths: files, folders or patterns, as in `data.path`.

    Raises:
      InputError: there is no data, it is no table, or it cannot be read.
    """
    # The label is chosen later; here it only has to be there.
    config = DataConfig(path=tuple(paths), label="label")
    format_ = source.find(config).format
    if format_ in ("images", "tfrecord"):
        raise InputError(
            f"--data: expected a table in CSV or Parquet files, received {format_} files",
            "write the config by hand; configs/digits.yaml shows one for images",
        )
    files = [file for of_pattern in source.files(config).values() for file in of_pattern]
    text = format_ == "csv"
    style = _style(files[0]) if text else CsvConfig()
    config = config.model_copy(update={"format": format_, "csv": style})
    reader = inputs.reader(config, files)
    ledger, sample = Ledger(None), _Sample()
    for file in files:
        for piece in reader.cut(file, None):
            for block in reader.read(piece, ledger):
                sample.add(block)
    account = ledger.close()
    batch = sample.rows()
    if text:
        nothing = tuple(_nothing(batch))
        batch = _without(batch, nothing)
        if nothing:
            style = style.model_copy(update={"null_values": ("", *nothing)})
    columns, misfits = _typed(batch, style.encoding if text else None)
    bad = account.bad + round(misfits * account.rows / max(1, batch.num_rows))
    return Table(columns, account.rows, bad, style if text else None, len(files), format_)


class _Sample:
    """Rows by chance, all equally likely, and never more than twice as many as are wanted."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self._share, self._held = 1.0, 0
        self._batches: list[pa.RecordBatch] = []

    def add(self, block: Block) -> None:
        """Takes its part of a block."""
        self._keep(block.columns)
        while self._held > _KEPT:
            self._share /= 2
            batches, self._batches, self._held = self._batches, [], 0
            for batch in batches:
                self._keep(batch, 0.5)

    def _keep(self, batch: pa.RecordBatch, share: float | None = None) -> None:
        share = self._share if share is None else share
        if share < 1:
            batch = batch.filter(pa.array(self._random.random(batch.num_rows) < share))
        self._batches.append(batch)
        self._held += batch.num_rows

    def rows(self) -> pa.RecordBatch:
        """All that was kept."""
        if not self._held:
            raise InputError("--data: there is no row that can be read", "give a file with rows below its header")
        (batch,) = pa.Table.from_batches(self._batches).combine_chunks().to_batches()
        return batch


def _style(path: str) -> CsvConfig:
    """How a text file is written: its delimiter, and whether spaces follow it."""
    with open_unpacked(path) as file:
        head = file.read(_HEAD).decode("utf-8", errors="replace")
    lines = head.splitlines()[:-1] or head.splitlines()
    delimiter = max(_DELIMITERS, key=lambda sign: _regularity(lines, sign))
    fields = [field for line in lines[1:] for field in line.split(delimiter)[1:]]
    spaced = sum(field.startswith(" ") for field in fields)
    # `1, ?, a` is written with spaces that belong to nothing.
    return CsvConfig(delimiter=delimiter, skip_initial_space=bool(fields) and spaced > len(fields) / 2)


def _regularity(lines: Sequence[str], delimiter: str) -> tuple[float, int]:
    """How well a delimiter cuts lines into equally many fields, and into how many."""
    widths = [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
    if not widths or widths[0] == 1:
        return 0.0, 0
    return sum(width == widths[0] for width in widths) / len(widths), widths[0]


def _nothing(batch: pa.RecordBatch) -> Iterator[str]:
    """The texts that stand for a missing value in this data."""
    found: set[bytes] = set()
    for column in batch.columns:
        distinct = column.drop_null().unique()
        if len(distinct) > 10_000:
            distinct = distinct.slice(0, 10_000)
        words = set(distinct.to_pylist())
        found |= words & {word.encode() for word in _NOTHING}
        odd = words & {word.encode() for word in _NO_NUMBER}
        rest = words - found - odd
        if odd and rest and all(_is_number(word) for word in rest):
            found |= odd
    # Python takes these for numbers that are none, and so does the ingest.
    return (word for word in (*_NOTHING, *_NO_NUMBER) if word.encode() in found and word.lower() != "nan")


def _is_number(word: bytes) -> bool:
    return re.fullmatch(rb"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*", word) is not None


def _without(batch: pa.RecordBatch, nothing: Iterable[str]) -> pa.RecordBatch:
    """The batch with null for every text that stands for nothing."""
    words = pa.array([word.encode() for word in nothing], pa.binary())
    columns = [pc.if_else(pc.is_in(column, words), pa.scalar(None, column.type), column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _typed(batch: pa.RecordBatch, encoding: str | None) -> tuple[dict[str, pa.Array], int]:
    """The columns as what they hold, and how many rows were left out since one of their values misfits."""
    looked = Columns({}, {}, encoding)
    _, misfits = looked.take(batch)
    rows = {misfit.row for misfit in misfits}
    if rows:
        keep = np.ones(batch.num_rows, bool)
        keep[list(rows)] = False
        columns, others = _typed(batch.filter(pa.array(keep)), encoding)
        return columns, others + len(rows)
    # Now that the types are known, every value can be taken.
    converted, _ = Columns({}, {**looked.target, **looked.kinds}, encoding).take(batch)
    columns = converted.columns if converted else batch.columns
    return dict(zip(batch.schema.names, columns, strict=True)), 0


def numbers(column: pa.Array) -> Any:
    """A column of numbers as float64, NaN where one is missing."""
    return np.asarray(column.cast(pa.float64()).fill_null(float("nan")), np.float64)


def texts(column: pa.Array) -> Any:
    """A column of texts as an array of str, None where one is missing."""
    return np.array([None if each is None else each.decode(errors="replace") for each in column.to_pylist()], object)


def kind(column: pa.Array) -> str:
    """int, float or bytes, as tf.Example knows them; lists, or missing where there is no value at all."""
    if pa.types.is_null(column.type) or column.null_count == len(column):
        return "missing"
    if pa.types.is_list(column.type):
        return "lists"
    if pa.types.is_integer(column.type):
        return "int"
    return "float" if pa.types.is_floating(column.type) else "bytes"
