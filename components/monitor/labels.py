"""Read labels that arrive after the answers: the rows of files whose key occurs in the requests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.base.errors import InputError
from components.base.names import did_you_mean
from components.data import file_io
from components.data.split_sample import concatenate
from components.ingest import input_files, readers, spans
from components.ingest.blocks import Block, Reader, RowLog, drop_rows
from components.ingest.column_types import Kind, as_kinds
from components.ingest.config import DataConfig, SplitConfig


@dataclass(frozen=True)
class Labels:
    """Rows that were read from the files, in reverse order.

    If several rows of the files have the same key, the last of them counts. Because the order is reversed, it is the
    first match of a look-up.

    Attributes:
      keys: Keys of the rows as `encode_keys` returns them: large_binary; [rows].
      columns: Name → value or list of values per row, null if missing.
    """

    keys: pa.Array
    columns: Mapping[str, pa.Array]


def encode_keys(keys: pa.Array) -> pa.Array:
    """Convert keys to large_binary, so that keys of requests and labels can be compared.

    Integers become their decimal digits, because a key may be an integer in one source and text in the other.
    """
    is_text = any(check(keys.type) for check in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_null))
    return (keys if is_text else keys.cast(pa.large_string())).cast(pa.large_binary())


def list_files(data: DataConfig) -> list[str]:
    """List the files of labels in ascending order of precedence; empty if no file has arrived yet.

    Raises:
      InputError: If the files have different formats.
    """
    if not any(_exists(path) for path in data.path):
        return []
    with input_files.errors_about("monitor.labels"):
        return [path for paths in input_files.files(data).values() for path in paths]


def read(
    data: DataConfig,
    key: str,
    requested_keys: pa.Array,
    kinds: Mapping[str, Kind],
    hash_keys: Callable[[pa.Array], pa.Array] = lambda keys: keys,
) -> Labels:
    """Read the rows whose key occurs in the requests, in bounded memory.

    A row with a value of another kind is skipped; the number of such rows is logged.

    Args:
      data: The files, and how they are read.
      key: Name of the key's column.
      requested_keys: Keys of the requests, as `encode_keys` returns them.
      kinds: Further columns to read, and the kinds that their values are converted to. Columns that the files lack are
        skipped.
      hash_keys: Function from keys as large_binary to keys as the log contains them.

    Raises:
      InputError: If the files cannot be read, or lack the column `key`.
    """
    paths = list_files(data)
    if not paths:
        logging.warning("monitor.labels: no file exists at %s yet", ", ".join(data.path))
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
        # A tf.Example is always decoded as a whole, so these formats do not support the selection of columns.
        columns_to_read = () if format_ in ("tfrecord", "images") else tuple(kinds)
        reader = readers.reader(ingest.model_copy(update={"columns": columns_to_read}), paths)
        parts = list(_read_batches(reader, paths, key, requested_keys, kinds, hash_keys)) or [
            _create_empty_batch(kinds)
        ]
    columns = {name: concatenate([part.columns[at] for part in parts])[::-1] for at, name in enumerate(kinds)}
    return Labels(hash_keys(encode_keys(columns.pop(key))), columns)


def _create_empty_batch(kinds: Mapping[str, Kind]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0) for _ in kinds], list(kinds))


def _read_batches(
    reader: Reader,
    paths: Sequence[str],
    key: str,
    requested_keys: pa.Array,
    kinds: Mapping[str, Kind],
    hash_keys: Callable[[pa.Array], pa.Array],
) -> Iterator[pa.RecordBatch]:
    log, bad, key_index = RowLog(None), 0, list(kinds).index(key)
    for path in paths:
        for file_range in reader.ranges(path, None):
            for block in reader.read(file_range, log):
                converted, skipped = _convert_columns(block, kinds, reader)
                bad += skipped
                keys = hash_keys(encode_keys(converted.columns[key_index]))
                is_requested = pc.is_in(keys, value_set=requested_keys)
                rows = pa.array(np.flatnonzero(is_requested))
                yield pa.RecordBatch.from_arrays(
                    [column.take(rows) for column in converted.columns], converted.schema.names
                )
    bad += log.close().bad
    if bad:
        logging.warning("monitor.labels: skipped %d rows that cannot be read or contain a value of another type", bad)


def _convert_columns(block: Block, kinds: Mapping[str, Kind], reader: Reader) -> tuple[pa.RecordBatch, int]:
    """Convert columns to the given kinds; skip rows with other values.

    Returns:
      The converted rows, and the number of skipped rows.
    """
    present = block.columns.schema.names
    selected = pa.RecordBatch.from_arrays(
        [block.columns.column(name) if name in present else pa.nulls(block.columns.num_rows) for name in kinds],
        list(kinds),
    )
    converted, bad = as_kinds(selected, kinds, reader.properties)
    if converted is not None:
        return converted, 0
    converted, skipped = _convert_columns(drop_rows(block, bad), kinds, reader)
    return converted, skipped + len(bad)


def _exists(path: str) -> bool:
    io_ = file_io.file_system(path)
    if spans.has_specs(path):
        return bool(io_.glob(spans.wildcards(path)))
    return bool(io_.listdir(path)) if io_.isdir(path) else io_.exists(path) or bool(io_.glob(path))
