"""A random sample of the data, read once with ExampleGen's readers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from components.base.errors import InputError
from components.base.names import column_name
from components.data.decimals import decimal_numbers
from components.ingest import input_files, readers
from components.ingest.blocks import Block, RowLog
from components.ingest.column_types import ColumnConverter, InvalidValue, Kind
from components.ingest.config import DataConfig
from components.ingest.csv_header import read_header
from components.ingest.number_texts import find_form, number_pattern, plain_numbers, with_point
from components.ingest.text_config import CsvConfig, NumberForm
from pipeline.authoring.scaffold.text_format import TextFormat, decimal_sign, detect

_SAMPLE_ROWS = 200_000
"""Maximum number of rows in the sample. A sample of a larger table contains between half of it and all of it."""
_ALLOWED_UNDECODABLE = 0.001
"""Maximum share of rows that cannot be decoded in the derived encoding. With more, the user has to name it."""
_RENAMED_SHOWN = 5
"""Maximum number of renamed columns in the note on them."""
_NULL_TEXTS = ("?", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null")
"""Texts that mean a missing value in any column."""
_NULL_IN_NUMBERS = ("-", "--", ".", "None", "none", "unknown", "Unknown", "missing")
"""Texts that mean a missing value in a column whose other texts are numbers."""


@dataclass(frozen=True)
class Table:
    """A sample of the data.

    Attributes:
      columns: Column name → array of int64, float32, binary or null, or of lists of these. Missing values are null.
      rows: Number of rows of the data. `columns` contains a sample of them.
      bad: Number of invalid rows of the data. Rows that the sample lacks are estimated.
      csv: Options of the CSV format. None if the files are not text.
      files: Number of files.
      format: csv, parquet, tfrecord or images.
      format_notes: Properties that were derived for a text format, and the reason for each property.
      hints: Column name → note on the option that would change how the column is read.
    """

    columns: dict[str, pa.Array]
    rows: int
    bad: int
    csv: CsvConfig | None
    files: int
    format: str
    format_notes: tuple[str, ...] = ()
    hints: Mapping[str, str] = field(default_factory=dict)

    @property
    def sampled(self) -> int:
        """Number of rows in the sample."""
        return len(next(iter(self.columns.values())))


def read(paths: Sequence[str], text_format: TextFormat | None = None) -> Table:
    """Read a sample of a table.

    Args:
      paths: Files, folders or patterns, as in `data.path`.
      text_format: Properties of text files that the user specified. The others are derived from the data.

    Raises:
      InputError: If there is no data, if the files are not CSV or Parquet, or if they cannot be read.
    """
    # The label does not matter here, but the section requires it.
    config = DataConfig(path=tuple(paths), label="label")
    format_ = input_files.find(config).format
    if format_ in ("images", "tfrecord"):
        raise InputError(
            f"--data: expected a table in CSV or Parquet files, received {format_} files",
            "write the config by hand; configs/digits.yaml shows one for images",
        )
    files = [file for of_pattern in input_files.files(config).values() for file in of_pattern]
    if format_ == "csv":
        return _read_text(config, files, text_format or TextFormat())
    batch, rows, bad = _sample(config.model_copy(update={"format": format_}), files)
    columns, invalid = _convert_types(batch, None)
    notes = tuple(_describe_renamed(pq.read_schema(files[0]).names))
    return Table(columns, rows, bad + _extrapolate(len(invalid), batch, rows), None, len(files), format_, notes)


def _read_text(config: DataConfig, files: Sequence[str], given: TextFormat) -> Table:
    """Read a sample of text files, and derive their format: missing values, decimal sign and forms of numbers."""
    style, notes = detect(files[0], given)
    batch, rows, bad = _sample(config.model_copy(update={"format": "csv", "csv": style}), files)
    null_texts = tuple(_null_texts(batch))
    batch = _with_nulls(batch, null_texts)
    if null_texts:
        style = style.model_copy(update={"null_values": ("", *null_texts)})
        notes.append(f"missing: {', '.join(map(repr, null_texts))}")
    decimal = decimal_sign(batch, given.decimal)
    notes += [decimal.why] if decimal.why else []
    formats, hints = _number_forms(batch, decimal.sign), dict(decimal.hints)
    for name, (form, example) in formats.items():
        # The form makes the column numeric, so the hint that its numbers are text does not apply.
        hints.pop(name, None)
        notes.append(f"numbers of {name}: {form}, as {example!r}")
    forms = {name: form for name, (form, _) in formats.items()}
    style = style.model_copy(update={"decimal": decimal.sign, "formats": forms})
    arrays = [
        plain_numbers(column, forms[name], decimal.sign) if name in forms else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(arrays, batch.schema.names)
    notes += _describe_renamed(read_header(files[0], style).texts)
    columns, invalid = _convert_types(batch, style)
    if given.encoding is None and len(invalid) > _ALLOWED_UNDECODABLE * batch.num_rows:
        raise InputError(
            f"--data: {len(invalid):,} of {batch.num_rows:,} rows cannot be read: column {invalid[0].column}: "
            f"{invalid[0].reason}",
            "give the encoding of the files with --encoding (cp1252 and latin-1 are common), or --encoding utf-8 to "
            "leave these rows out",
        )
    bad += _extrapolate(len(invalid), batch, rows)
    return Table(columns, rows, bad, style, len(files), "csv", tuple(notes), hints)


def _describe_renamed(headers: Iterable[str]) -> list[str]:
    """Return a note on the columns whose names in the config differ from the headers of the file, if there are any."""
    renamed = [f"{header!r} is {name}" for header in headers if (name := column_name(header)) != header]
    more = f", and {len(renamed) - _RENAMED_SHOWN:,} more" if len(renamed) > _RENAMED_SHOWN else ""
    return [f"renamed: {', '.join(renamed[:_RENAMED_SHOWN])}{more}"] if renamed else []


def _are_plain(texts: pa.Array) -> bool:
    try:
        texts.cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _number_forms(batch: pa.RecordBatch, decimal: str) -> dict[str, tuple[NumberForm, str]]:
    """Return the form of the numbers, and an example, for every column with numbers such as `1,234` or `5 %`."""
    forms: dict[str, tuple[NumberForm, str]] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        values = column.drop_null().value_counts()
        texts, counts = values.field("values"), values.field("counts")
        numeric = with_point(texts) if decimal == "," else texts
        if not len(texts) or _are_plain(numeric):
            continue
        if form := find_form(texts, counts, decimal):
            matching = texts.filter(pc.match_substring_regex(texts, number_pattern(form, decimal)))
            forms[name] = form, max(matching.to_pylist(), key=len).decode()
    return forms


def _sample(config: DataConfig, files: Sequence[str]) -> tuple[pa.RecordBatch, int, int]:
    """Return a sample of the rows, the number of all rows, and the number of bad rows."""
    reader = readers.reader(config, files)
    row_log, sample = RowLog(None), _Sample()
    for file in files:
        for file_range in reader.ranges(file, None):
            for block in reader.read(file_range, row_log):
                sample.add(block)
    counts = row_log.close()
    return sample.rows(), counts.rows, counts.bad


def _extrapolate(sampled: int, batch: pa.RecordBatch, rows: int) -> int:
    """Extrapolate a number of rows of the sample to all rows of the data."""
    return round(sampled * rows / max(1, int(batch.num_rows)))


class _Sample:
    """A uniform random sample of bounded size. When it is full, every row is dropped with probability 1/2."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self._share, self._count = 1.0, 0
        self._batches: list[pa.RecordBatch] = []

    def add(self, block: Block) -> None:
        """Add a block, sampled at the current rate."""
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
        """Return the sampled rows as one batch."""
        if not self._count:
            raise InputError("--data: there is no row that can be read", "give a file with rows below its header")
        (batch,) = pa.Table.from_batches(self._batches).combine_chunks().to_batches()
        return batch


def _null_texts(batch: pa.RecordBatch) -> Iterator[str]:
    """Yield the texts that mean a missing value in this data, such as `?` or `NA`."""
    nulls: set[bytes] = set()
    for column in batch.columns:
        distinct = column.drop_null().unique()
        # Limit the search for speed. A text that means a missing value is usually frequent, so it occurs early.
        if len(distinct) > 10_000:
            distinct = distinct.slice(0, 10_000)
        texts = set(distinct.to_pylist())
        nulls |= texts & {text.encode() for text in _NULL_TEXTS}
        candidates = texts & {text.encode() for text in _NULL_IN_NUMBERS}
        remaining = texts - nulls - candidates
        if candidates and remaining and all(_is_number(text) for text in remaining):
            nulls |= candidates
    # Python and ExampleGen parse "nan" as a number, so the config does not need to list it.
    return (text for text in (*_NULL_TEXTS, *_NULL_IN_NUMBERS) if text.encode() in nulls and text.lower() != "nan")


def _is_number(text: bytes) -> bool:
    """Check whether a text is a number with a decimal point or comma, or a date that consists of numbers."""
    return re.fullmatch(rb"\s*[-+]?[\d.,/]*\d[\d.,/]*([eE][-+]?\d+)?\s*", text) is not None


def _with_nulls(batch: pa.RecordBatch, null_texts: Iterable[str]) -> pa.RecordBatch:
    """Replace the texts that mean a missing value with null."""
    texts = pa.array([text.encode() for text in null_texts], pa.binary())
    columns = [pc.if_else(pc.is_in(column, texts), pa.scalar(None, column.type), column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _convert_types(batch: pa.RecordBatch, csv: CsvConfig | None) -> tuple[dict[str, pa.Array], list[InvalidValue]]:
    """Convert the columns to their types, without rows that contain an invalid value.

    Returns:
      The converted columns, and one invalid value for every removed row.
    """
    encoding, decimal = (csv.encoding, csv.decimal) if csv else (None, ".")
    configured = dict.fromkeys(csv.formats if csv else (), Kind.FLOAT)
    converter = ColumnConverter(configured, {}, encoding, decimal=decimal)
    _, invalid = converter.convert(batch)
    rows = {value.row: value for value in invalid}
    if rows:
        keep = np.ones(batch.num_rows, bool)
        keep[list(rows)] = False
        # Derive the types again without the removed rows, whose other values may have influenced them.
        columns, further_invalid = _convert_types(batch.filter(pa.array(keep)), csv)
        return columns, [*rows.values(), *further_invalid]
    # Every remaining row was valid, so the second conversion uses the types that the first conversion derived.
    known = {**converter.output_kinds, **converter.kinds}
    converted, _ = ColumnConverter(configured, known, encoding, decimal=decimal).convert(batch)
    columns = converted.columns if converted else batch.columns
    return dict(zip(batch.schema.names, columns, strict=True)), []


def numbers(column: pa.Array) -> npt.NDArray[np.float64]:
    """Return a column of numbers as float64, shape [rows]; NaN where a value is missing.

    A float32 becomes the decimal number that it prints as: 0.1, not 0.10000000149.
    """
    return np.asarray(decimal_numbers(column).cast(pa.float64(), safe=False).fill_null(float("nan")), np.float64)


def texts(column: pa.Array) -> npt.NDArray[np.object_]:
    """Return a column of texts as an array of str, shape [rows]; None where a value is missing."""
    return np.array([None if text is None else text.decode(errors="replace") for text in column.to_pylist()], object)


def kind(column: pa.Array) -> str:
    """Return the kind of a column: int, float or bytes (the types of tf.Example), lists, or missing without values."""
    if pa.types.is_null(column.type) or column.null_count == len(column):
        return "missing"
    if pa.types.is_list(column.type):
        return "lists"
    if pa.types.is_integer(column.type):
        return "int"
    return "float" if pa.types.is_floating(column.type) else "bytes"
