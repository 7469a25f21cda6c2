"""Samples rows of a run's training split, with which predictions are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from components.data import file_io, split_sample
from components.data.examples import Examples, Format
from pipeline.core.metadata.store import Store

_TRAIN = "train"


def sample_training_rows(store: Store, run: str, columns: Mapping[str, bool], most: int) -> list[dict[str, Any]]:
    """Return random rows of the training split that a run has ingested.

    Args:
      store: The store that holds the run.
      run: ID of the run.
      columns: Name of a column to return → whether it is returned as a list of values, instead of its first value.
      most: Maximum number of rows.

    Returns:
      The rows, the same ones in every call: column → value. Missing values, and bytes that are not UTF-8, are None.
      Empty if the run does not have a training split, or its files were deleted.

    Raises:
      MachineError: A file is damaged.
    """
    artifact = next(iter(store.artifacts(run, "Examples")), None)
    if artifact is None or _TRAIN not in artifact.splits:
        return []
    pattern = file_io.join(artifact.uri, f"Split-{_TRAIN}/*")
    paths = tuple(sorted(file_io.file_system(pattern).glob(pattern)))
    if not paths:
        return []
    stored: Format = "parquet" if artifact.properties.get("payload_format") == "FORMAT_PARQUET" else "tfrecord"
    batch = split_sample.draw(Examples(paths, stored), most)
    cells = {
        name: [_read_cell(values or [], columns[name]) for values in column.to_pylist()]
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if name in columns and not pa.types.is_null(column.type)
    }
    return [{name: column[number] for name, column in cells.items()} for number in range(batch.num_rows)]


def _read_cell(values: list[Any], is_list: bool) -> Any:
    decoded = [_decode(value) for value in values]
    return decoded if is_list else next(iter(decoded), None)


def _decode(value: Any) -> Any:
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return None
