"""Labels that arrive after the answers: rows of files, of which those are kept whose key was asked."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.data import file_io
from components.data.split_sample import joined
from components.errors import InputError
from components.ingest import input_files, readers, spans
from components.ingest.blocks import Block, Reader, RowLog, drop_rows
from components.ingest.column_types import Kind, as_kinds
from components.ingest.config import DataConfig, SplitConfig
from components.names import did_you_mean


@dataclass(frozen=True)
class Labels:
    """Rows of the files.

    Attributes:
      keys: large_binary, [rows]; of several rows with a key, the last one counts, which is first here.
      columns: name → values of the rows, or lists of them, null where missing.
    """

    keys: pa.Array
    columns: Mapping[str, pa.Array]


def texts(keys: pa.Array) -> pa.Array:
    """Returns keys as they are compared: integers as their digits, as large_binary."""
    is_text = any(check(keys.type) for check in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_null))
    return (keys if is_text else keys.cast(pa.large_string())).cast(pa.large_binary())


def files(data: DataConfig) -> list[str]:
    """Lists the files, in the order in which they count; none as long as there are none.

    Raises:
      InputError: the files are not of one format.
    """
    if not any(_exists(path) for path in data.path):
        return []
    with input_files.errors_about("monitor.labels"):
        return [path for of_pattern in input_files.files(data).values() for path in of_pattern]


def read(data: DataConfig, key: str, wanted: pa.Array, kinds: Mapping[str, Kind]) -> Labels:
    """Reads the rows whose key is wanted, in bounded memory.

    Args:
      data: the files, and how they are read.
      key: the column of the key.
      wanted: keys, as `texts` returns them.
      kinds: further columns, and the kinds that their values are converted to; those that the files do not have are
        left out. A row with a value that does not fit is left out; the log has the number of such rows.

    Raises:
      InputError: the files cannot be read, or have no column `key`.
    """
    paths = files(data)
    if not paths:
        logging.warning("monitor.labels: there is no file at %s yet", ", ".join(data.path))
        return Labels(pa.array([], pa.large_binary()), {})
    everything = data.model_copy(update={"columns": (), "types": {}, "split": SplitConfig(train=1, eval=1)})
    with input_files.errors_about("monitor.labels"):
        names = readers.columns(everything) or []
        if key not in names:
            raise InputError(
                f"monitor.key: expected a column of {paths[0]}, received {key!r}{did_you_mean(key, names)}",
                f"name one of {', '.join(names)}",
            )
        kinds = {key: Kind.BYTES, **{name: kind for name, kind in kinds.items() if name in names}}
        format_ = input_files.find(data).format
        ingest = everything.ingest(format_)
        # Records are decoded as a whole.
        wanted_columns = () if format_ in ("tfrecord", "images") else tuple(kinds)
        reader = readers.reader(ingest.model_copy(update={"columns": wanted_columns}), paths)
        parts = list(_read(reader, paths, key, wanted, kinds)) or [_no_rows(kinds)]
    columns = {name: joined([part.columns[at] for part in parts])[::-1] for at, name in enumerate(kinds)}
    return Labels(texts(columns.pop(key)), columns)


def _no_rows(kinds: Mapping[str, Kind]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0) for _ in kinds], list(kinds))


def _read(
    reader: Reader, paths: Sequence[str], key: str, wanted: pa.Array, kinds: Mapping[str, Kind]
) -> Iterator[pa.RecordBatch]:
    log, bad, at = RowLog(None), 0, list(kinds).index(key)
    for path in paths:
        for file_range in reader.ranges(path, None):
            for block in reader.read(file_range, log):
                converted, rows_left_out = _converted(block, kinds, reader)
                bad += rows_left_out
                asked = pc.is_in(texts(converted.columns[at]), value_set=wanted)
                rows = pa.array(np.flatnonzero(asked))
                yield pa.RecordBatch.from_arrays(
                    [each.take(rows) for each in converted.columns], converted.schema.names
                )
    bad += log.close().bad
    if bad:
        logging.warning(
            "monitor.labels: %d rows cannot be read, or have a value of another type; they do not count", bad
        )


def _converted(block: Block, kinds: Mapping[str, Kind], reader: Reader) -> tuple[pa.RecordBatch, int]:
    """Returns the columns with these kinds, and the number of rows that were left out."""
    present = block.columns.schema.names
    selected = pa.RecordBatch.from_arrays(
        [block.columns.column(name) if name in present else pa.nulls(block.columns.num_rows) for name in kinds],
        list(kinds),
    )
    converted, bad = as_kinds(selected, kinds, reader.properties)
    if converted is not None:
        return converted, 0
    rest, count = _converted(drop_rows(block, bad), kinds, reader)
    return rest, count + len(bad)


def _exists(path: str) -> bool:
    io_ = file_io.file_system(path)
    if spans.has_specs(path):
        return bool(io_.glob(spans.wildcards(path)))
    return bool(io_.listdir(path)) if io_.isdir(path) else io_.exists(path) or bool(io_.glob(path))
