"""Read the rows of files with the columns of side tables; see `data.join`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from components.ingest.blocks import Block, FileRange, Matches, Reader, RowLog
from components.ingest.config import RowsConfig, ValueType
from components.ingest.side_files import SideFiles, find
from components.ingest.side_keys import TIME, KeyColumns, Mask
from components.ingest.side_table import VALUE_TYPES, SideConverter, SideTable, describe_key, load


class Joined(NamedTuple):
    """The columns of a side table for some rows of the data.

    Attributes:
      columns: Name of an added column → value per row, null without a match; [rows].
      matches: Counts of the rows.
    """

    columns: dict[str, pa.Array]
    matches: Matches


class Join(Protocol):
    """Finds the columns of one side table."""

    @property
    def types(self) -> Mapping[str, ValueType]:
        """Name of an added column → its type. Columns without values are left out."""

    def join(self, rows: pa.RecordBatch, file_range: FileRange, first: int) -> Joined:
        """Return the added columns of rows.

        Args:
          rows: Rows of the data, with the columns of earlier joins.
          file_range: Range that the rows come from.
          first: Index of the first row among the rows that are read from the range.
        """


class TableJoin:
    """Looks up rows in a side table in memory, which every process reads once.

    Args:
      config: Config of the rows.
      files: Files of the side table.

    Raises:
      InputError: If a row of the side table cannot be read, or a key occurs twice.
    """

    def __init__(self, config: RowsConfig, files: SideFiles) -> None:
        self._files = files
        self._types = {name: type_ for name, type_ in config.types.items() if name in files.added}
        converter, table = load(files, self._types)
        self._table: SideTable | None = table
        self._keys = converter.keys_of_data(config)
        self.types: Mapping[str, ValueType] = find_types(converter)

    def __getstate__(self) -> dict[str, Any]:
        # Every process reads the table, instead of receiving it with each bundle of rows.
        return {**self.__dict__, "_table": None}

    def join(self, rows: pa.RecordBatch, file_range: FileRange, first: int) -> Joined:
        """Return the added columns of rows; see `Join`."""
        # Look up the table of the process once, because that requests the state of all files.
        self._table = table = self._table or load(self._files, self._types)[1]
        keys, valid = self._keys.encode(rows)
        matches = table.find(keys, valid)
        indices = pa.array(matches, mask=matches < 0)
        columns = {name: column.take(indices) for name, column in table.columns.items()}
        return Joined(columns, count_matches(self._keys, keys, valid, matches >= 0, table.describe()))


def find_types(converter: SideConverter) -> dict[str, ValueType]:
    """Return the types of the added columns that have values."""
    kinds = {name: converter.kinds[at] for name, at in converter.files.added.items() if at in converter.kinds}
    return {name: VALUE_TYPES[kind] for name, kind in kinds.items() if kind in VALUE_TYPES}


def count_matches(names: KeyColumns, keys: Mapping[str, pa.Array], valid: Mask, is_matched: Mask, side: str) -> Matches:
    """Count the rows with a match, and describe a row without one.

    Args:
      names: Columns of the key in the data.
      keys: Encoded keys of the data.
      valid: Whether a row has a key, bool of shape [rows].
      is_matched: Whether a row has a match, bool of shape [rows].
      side: Description of a key of the side table.
    """
    unmatched = np.flatnonzero(valid & ~is_matched)
    example = ""
    if len(unmatched):
        row = int(unmatched[0])
        texts = [describe_key(keys, row, names.names)] if names.names else []
        if TIME in keys:
            texts.append(f"time {np.datetime64(keys[TIME][row].as_py(), 'us').astype('datetime64[s]')}")
        example = f"the data has {', '.join(texts)}; the side table has {side}"
    return Matches(len(valid), int(np.count_nonzero(is_matched)), example)


class JoinedReader:
    """Reads rows, and adds the columns of side tables.

    Args:
      rows: Reader of the data, whose columns include the columns of the keys.
      joins: The joins, in their order.
      selected: Names of the columns to return; () for all.
    """

    def __init__(self, rows: Reader, joins: Sequence[Join], selected: Sequence[str] = ()) -> None:
        self._rows, self._joins, self._selected = rows, joins, selected
        types = {name: type_ for join in joins for name, type_ in join.types.items()}
        joined = {name: type_ for name, type_ in types.items() if not selected or name in selected}
        self.properties = dataclasses.replace(rows.properties, joined=joined)

    def first_range(self, path: str, split: str | None) -> FileRange:
        """Return the first range of the data."""
        return self._rows.first_range(path, split)

    def ranges(self, path: str, split: str | None) -> list[FileRange]:
        """Return the ranges of the data."""
        return self._rows.ranges(path, split)

    def read(self, file_range: FileRange, row_log: RowLog) -> Iterator[Block]:
        """Yield the rows of a range with the added columns; report the number of matches to the log.

        Raises:
          InputError: If the reader of the data raises it.
        """
        first = 0
        for block in self._rows.read(file_range, row_log):
            rows = block.columns
            for number, join in enumerate(self._joins):
                joined = join.join(rows, file_range, first)
                row_log.add_matches(number, joined.matches)
                rows = pa.RecordBatch.from_arrays(
                    [*rows.columns, *joined.columns.values()], [*rows.schema.names, *joined.columns]
                )
            first += rows.num_rows
            names = [name for name in rows.schema.names if not self._selected or name in self._selected]
            arrays = [rows.column(rows.schema.get_field_index(name)) for name in names]
            yield dataclasses.replace(block, columns=pa.RecordBatch.from_arrays(arrays, names), records=None)


def create(
    config: RowsConfig,
    selected: Sequence[str],
    read_files: Callable[[Sequence[str]], Reader],
    joins: Sequence[Join] | None = None,
) -> JoinedReader:
    """Create the reader for a config with joins.

    Args:
      config: Config of the rows.
      selected: Names of the columns to read; () for all.
      read_files: Creates the reader of some columns of the files; () for all.
      joins: The first joins of the config, or all. If None, all tables are read into memory.

    Raises:
      InputError: If a side table cannot be read, or its keys are not distinct.
    """
    tables = find(config)
    joins = [TableJoin(config, files) for files in tables] if joins is None else joins
    added = {name for files in tables for name in files.added}
    needed = [name for join in config.join[: len(joins)] for name in join.data_keys]
    columns = [name for name in dict.fromkeys((*selected, *needed)) if name not in added] if selected else ()
    return JoinedReader(read_files(columns), joins, selected)
