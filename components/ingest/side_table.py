"""Side tables of joins in memory: rows sorted by the hash of their key and by time, found by binary searches."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from components.base.errors import InputError, MachineError
from components.data import file_io
from components.data.arrow_columns import all_missing, is_list
from components.data.missing import without_nan
from components.ingest.blocks import Block, BlockSource, RowLog
from components.ingest.column_types import ARROW_TYPES, KINDS, ColumnConverter, InvalidValue, Kind, quote
from components.ingest.config import RowsConfig, ValueType
from components.ingest.side_files import SideFiles
from components.ingest.side_keys import HASH, ROW, TIME, KeyColumns, Mask, compare, find_times, is_encoded, is_number
from components.ingest.split_assignment import as_text

Rows: TypeAlias = npt.NDArray[np.int64]
"""Indices of rows of a side table, or -1 without a match; [rows]."""
_MICRO = 1_000_000
VALUE_TYPES: Mapping[Kind, ValueType] = {kind: type_ for type_, kind in KINDS.items()}


@dataclass(frozen=True)
class SideConverter:
    """Converts the rows of a side table as they are read.

    Attributes:
      files: The files of the table.
      types: Name of an added column → type that the config sets.
      kinds: Column of the table, under its name there → kind; empty before `infer`.
      lists: Columns of the table whose values are lists.
    """

    files: SideFiles
    types: Mapping[str, ValueType]
    kinds: Mapping[str, Kind]
    lists: frozenset[str] = frozenset()

    def infer(self, blocks: Iterable[Block]) -> SideConverter:
        """Return the converter with kinds that can represent further rows.

        Raises:
          InputError: If a value does not have the type of its column.
        """
        converter, lists = self._create_converter(self.kinds), set(self.lists)
        for block in blocks:
            _, invalid = converter.convert(without_nan(block.columns))
            self._refuse(block, invalid)
            lists |= {field.name for field in block.columns.schema if is_list(field.type)}
        return replace(self, kinds=converter.kinds, lists=frozenset(lists))

    @property
    def schema(self) -> dict[str, pa.DataType]:
        """Name of an added column → type of its values."""
        types = {name: ARROW_TYPES[self.kinds.get(at, Kind.MISSING)] for name, at in self.files.added.items()}
        lists = {name for name, at in self.files.added.items() if at in self.lists}
        return {name: pa.list_(type_) if name in lists else type_ for name, type_ in types.items()}

    def convert(self, block: Block, first: int = 0) -> pa.RecordBatch:
        """Return the added columns of the rows that have a key, and their encoded keys.

        Args:
          block: Rows of the table.
          first: Index of the first row in the table.
        """
        columns = without_nan(block.columns)
        converted, invalid = self._create_converter(self.kinds).convert(columns)
        self._refuse(block, invalid)
        if converted is None:
            raise ValueError(f"expected columns of the kinds {self.kinds}, received {columns.schema}")
        keys, valid = self.keys.encode(columns)
        self._refuse(block, self._find_invalid_times(columns))
        arrays = {name: converted.column(converted.schema.get_field_index(at)) for name, at in self.files.added.items()}
        for name, type_ in self.schema.items():
            # A block without values may have another type.
            arrays[name] = pa.nulls(len(valid), type_) if all_missing(arrays[name]) else arrays[name].cast(type_)
        arrays |= {**keys, ROW: pa.array(np.arange(first, first + len(valid)))}
        rows = pa.array(np.flatnonzero(valid))
        return pa.RecordBatch.from_arrays([column.take(rows) for column in arrays.values()], list(arrays))

    def _find_invalid_times(self, rows: pa.RecordBatch) -> list[InvalidValue]:
        invalid = []
        for name in self.files.join.as_of.values():
            column = rows.column(rows.schema.get_field_index(name))
            _, valid = find_times(column, self.files.join.unit)
            for row in np.flatnonzero(~valid & np.asarray(column.is_valid()))[:1].tolist():
                expected = f"a time ({self.files.join.unit} since 1970, as unit says, or ISO 8601)"
                value = quote(as_text(column)[row].as_py())
                invalid.append(InvalidValue(row, name, f"expected {expected}, received {value}"))
        return invalid

    @property
    def keys(self) -> KeyColumns:
        """The columns of the key in the side table."""
        return self._create_keys(
            self.files.join.on.values(), self.files.join.as_of.values(), self.files.csv.decimal, {}
        )

    def keys_of_data(self, config: RowsConfig) -> KeyColumns:
        """Return the columns of the key in the data."""
        join = self.files.join
        return self._create_keys(join.on, join.as_of, config.csv.decimal, config.types)

    def _create_keys(
        self, names: Iterable[str], times: Iterable[str], decimal: str, types: Mapping[str, str]
    ) -> KeyColumns:
        are_numbers = tuple(is_number(self.kinds.get(name, Kind.MISSING)) for name in self.files.join.on.values())
        return KeyColumns(tuple(names), are_numbers, next(iter(times), None), self.files.join.unit, decimal, types)

    def _create_converter(self, guess: Mapping[str, Kind]) -> ColumnConverter:
        configured = dict.fromkeys(self.files.csv.formats, Kind.FLOAT) if self.files.format == "csv" else {}
        configured |= {at: KINDS[self.types[name]] for name, at in self.files.added.items() if name in self.types}
        encoding = self.files.csv.encoding if self.files.format == "csv" else None
        return ColumnConverter(configured, guess, encoding, guess, self.files.csv.decimal)

    def _refuse(self, block: Block, invalid: list[InvalidValue]) -> None:
        if invalid:
            value = min(invalid, key=lambda value: value.row)
            origin, position = block.origin(value.row)
            raise InputError(
                f"{self.files.field}: {origin.path}, row {position}: column {value.column}: {value.reason}",
                "correct the row of the side table, or set data.types",
            )

    def refuse_bad_rows(self, row_log: RowLog) -> None:
        """Check that all rows of the files could be read.

        Raises:
          InputError: If a row is bad. The message names the first bad row.
        """
        counts = row_log.close()
        if counts.bad:
            bad = counts.first_bad[0]
            raise InputError(
                f"{self.files.field}: {bad.path}, row {bad.position}: {bad.reason}",
                f"correct the row of the side table, or set {self.files.field}.csv",
            )


@dataclass(frozen=True)
class RowOrigin:
    """The origin of consecutive rows of a side table.

    Attributes:
      first: Index of the first of the rows in the table.
      before: Number of positions of the file before the range of the rows.
      source: The range, and the positions of the rows in it.
    """

    first: int
    before: int
    source: BlockSource


class SideTable:
    """The rows of a side table, in memory.

    Args:
      batches: Rows in the order of the files, as `SideConverter.convert` returns them.
      files: The files of the table.
      origins: Origins of all rows of the files, for messages. If empty, messages do not name rows.

    Raises:
      InputError: If a key occurs in two rows, and the join is by key only.
    """

    def __init__(self, batches: list[pa.RecordBatch], files: SideFiles, origins: Sequence[RowOrigin] = ()) -> None:
        self._files, self._origins = files, origins
        table = pa.Table.from_batches(batches)
        hashes = np.asarray(table[HASH])
        # Both sorts are stable, so rows with the same key and time keep the order of the files.
        has_time = TIME in table.column_names
        order = np.lexsort((np.asarray(table[TIME]), hashes)) if has_time else np.argsort(hashes, kind="stable")
        indices = pa.array(order)
        # Sort one column at a time, which needs less memory than copies of the whole table.
        columns = {name: pa.concat_arrays(table[name].chunks).take(indices) for name in table.column_names}
        self._columns = {name: column for name, column in columns.items() if not is_encoded(name)}
        self._keys = {name: column for name, column in columns.items() if is_encoded(name)}
        hashes = hashes[order]
        is_first = np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)]
        self._starts = np.flatnonzero(is_first)
        self._hashes = hashes[self._starts]
        self._check_groups(is_first, order)
        if has_time:
            self._times = np.asarray(self._keys[TIME])
            self._distinct_times = np.unique(self._times)
            ranks = np.searchsorted(self._distinct_times, self._times)
            # Numbers that order the rows by key, and by time among equal keys.
            self._places = (np.cumsum(is_first) - 1) * len(self._distinct_times) + ranks

    @property
    def columns(self) -> Mapping[str, pa.Array]:
        """The added columns, sorted as the rows of the table are."""
        return self._columns

    def find(self, keys: Mapping[str, pa.Array], valid: Mask) -> Rows:
        """Return the row of the table that matches each row of the data.

        Args:
          keys: Encoded keys of the data.
          valid: Whether a row has a key, bool of shape [rows].
        """
        if not len(self._hashes):
            return np.full(len(valid), -1)
        hashes = np.asarray(keys[HASH])
        groups = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        candidates = np.flatnonzero(valid & (self._hashes[groups] == hashes))
        groups = groups[candidates]
        if TIME in keys:
            is_known, matches = self._find_newest(groups, np.asarray(keys[TIME])[candidates])
            candidates, matches = candidates[is_known], matches[is_known]
        else:
            matches = self._starts[groups]
        is_equal = compare(keys, candidates, self._keys, matches)
        rows = np.full(len(valid), -1)
        rows[candidates[is_equal]] = matches[is_equal]
        return rows

    def _find_newest(self, groups: Rows, times: npt.NDArray[np.int64]) -> tuple[Mask, Rows]:
        """Return whether a group has a row at or before a time, and the newest such row."""
        ranks = np.searchsorted(self._distinct_times, times, side="right") - 1
        places = groups * len(self._distinct_times) + ranks
        rows = np.searchsorted(self._places, places, side="right") - 1
        is_known = (ranks >= 0) & (rows >= self._starts[groups])
        if self._files.join.within is not None:
            is_known &= times - self._times[rows] <= round(self._files.join.within * _MICRO)
        return is_known, rows

    def describe(self) -> str:
        """Return the key of one row and the range of times, for a message about keys that do not match."""
        if not len(self._hashes):
            return "no key"
        text = self._describe_key(0)
        if TIME in self._keys:
            first, last = np.datetime_as_string(self._distinct_times[[0, -1]].astype("datetime64[us]"), "s")
            text += f"{', ' if text else ''}times from {first} to {last}"
        return text

    def _describe_key(self, row: int) -> str:
        return describe_key(self._keys, row, self._files.join.on.values())

    def _check_groups(self, is_first: Mask, order: Rows) -> None:
        rows = np.flatnonzero(~is_first)
        is_equal = compare(self._keys, rows, self._keys, rows - 1)
        if not is_equal.all():
            raise MachineError(
                f"{self._files.field}: two different keys have the same hash of 64 bits",
                "add another column to the key",
            )
        if len(rows) and TIME not in self._keys:
            # Report the duplicate that comes first in the files.
            row = int(rows[np.argmin(order[rows])])
            indices = [self._keys[ROW][at].as_py() for at in (row - 1, row)]
            where = " and in ".join(map(self._describe_origin, indices))
            raise InputError(
                f"{self._files.field}.on: expected one row per key, received {self._describe_key(row)} in {where}",
                "remove one of the rows, add a column to on, or name the column of their time in as_of",
            )

    def _describe_origin(self, index: int) -> str:
        if not self._origins:
            return " or ".join(self._files.paths[:3])
        origin = next(origin for origin in reversed(self._origins) if origin.first <= index)
        return f"{origin.source.file_range.path}, row {origin.before + origin.source.position(index - origin.first)}"


_lock = threading.Lock()
_tables: dict[str, tuple[SideConverter, SideTable]] = {}
"""Tables of this process, by files and config."""
_MOST_TABLES = 8


def load(files: SideFiles, types: Mapping[str, ValueType]) -> tuple[SideConverter, SideTable]:
    """Read a side table into memory, once per process.

    Args:
      files: The files of the table.
      types: Name of a column → type that the config sets.

    Returns:
      The converter with the kinds of all columns, and the table.

    Raises:
      InputError: If a row cannot be read, or a key occurs twice.
    """
    stats = [file_io.stat(path) for path in files.paths]
    key = repr((files.field, files.join, files.csv, files.paths, stats, sorted(types.items())))
    # Threads of one process wait for each other, so that the table is in memory once.
    with _lock:
        if key not in _tables:
            while len(_tables) >= _MOST_TABLES:
                del _tables[next(iter(_tables))]
            _tables[key] = _read(files, types)
        return _tables[key]


def _read(files: SideFiles, types: Mapping[str, ValueType]) -> tuple[SideConverter, SideTable]:
    converter = SideConverter(files, types, {})
    reader, blocks, origins = files.create_reader(), list[Block](), list[RowOrigin]()
    rows = 0
    for path in files.paths:
        row_log, before = RowLog(None), 0
        # One range of text has the positions of the whole file.
        ranges = reader.ranges(path, None) if files.format == "parquet" else [reader.first_range(path, None)]
        for file_range in ranges:
            for block in reader.read(file_range, row_log):
                blocks.append(block)
                for source in block.sources:
                    origins.append(RowOrigin(rows, before, source))
                    rows += source.rows
            before = sum(origin.source.rows for origin in origins if origin.source.file_range.path == path)
        converter.refuse_bad_rows(row_log)
    if not blocks:
        raise InputError(f"{files.field}: expected rows in {files.paths[0]}, received none", "add rows to the file")
    converter = converter.infer(blocks)
    batches, first = list[pa.RecordBatch](), 0
    blocks.reverse()
    while blocks:
        # Drop a block when it is converted, because a table may be large.
        block = blocks.pop()
        batches.append(converter.convert(block, first))
        first += block.columns.num_rows
    return converter, SideTable(batches, files, origins)


def describe_key(keys: Mapping[str, pa.Array], row: int, names: Iterable[str]) -> str:
    """Return the values of an encoded key, as in `zone = 7`."""
    texts = []
    for number, name in enumerate(names):
        if f"text {number}" in keys:
            value = keys[f"text {number}"][row].as_py()
            texts.append(f"{name} = {(value or b'').decode(errors='backslashreplace')!r}")
        else:
            fraction = keys[f"fraction {number}"][row].as_py()
            whole = keys[f"whole {number}"][row].as_py()
            texts.append(f"{name} = {whole + fraction if fraction else whole}")
    return ", ".join(texts)
