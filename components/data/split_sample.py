"""Draw a random sample of a split, in bounded time and memory."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from components.data.examples import Examples
from components.data.saved_model import column_of

RANGES = 8
"""Default for the maximum number of files, and of row groups in these files, to read."""
_BYTES = 64 << 20
"""Maximum bytes of a sample, which limits the number of rows with images."""


def draw(examples: Examples, rows: int, seed: int = 0, ranges: int = RANGES) -> pa.RecordBatch:
    """Draw rows from a split, or from some random row groups if the split has many row groups.

    Args:
      examples: The split. One batch is in memory at a time, in addition to the sample.
      rows: Maximum number of rows.
      seed: Seed of the draw.
      ranges: Maximum number of files, and of row groups in these files, to read.
    """
    random = np.random.default_rng(seed)
    paths = [examples.paths[at] for at in _choose(random, len(examples.paths), ranges)]
    groups = [group for path in paths for group in examples.ranges(path)]
    # Every row gets a random key. Keep the rows with the smallest keys.
    drawn: list[tuple[npt.NDArray[np.float64], pa.RecordBatch]] = []
    keys = np.empty(0)
    for at in _choose(random, len(groups), ranges):
        # A row group is a single batch. A TFRecord file may have many batches, of which the first is read.
        for batch in itertools.islice(examples.read(groups[at]), 1):
            rows = min(rows, max(1, _BYTES * batch.num_rows // max(batch.nbytes, 1)))
            batch_keys = random.random(batch.num_rows)
            keys = np.concatenate([keys, batch_keys])
            largest = np.partition(keys, rows - 1)[rows - 1] if len(keys) > rows else np.inf
            keys = keys[keys <= largest]
            drawn = [
                (part_keys[part_keys <= largest], _filter(part, part_keys <= largest))
                for part_keys, part in [*drawn, (batch_keys, batch)]
            ]
    names = list(dict.fromkeys(name for _, part in drawn for name in part.schema.names))
    arrays = [concatenate([column_of(part, name) for _, part in drawn]) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names)


def _choose(random: np.random.Generator, count: int, most: int) -> list[int]:
    return sorted(random.permutation(count)[:most].tolist())


def _filter(batch: pa.RecordBatch, keep: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    if keep.all():
        return batch
    rows = pa.array(np.flatnonzero(keep))
    return pa.RecordBatch.from_arrays([column.take(rows) for column in batch.columns], batch.schema.names)


def concatenate(parts: Sequence[pa.Array]) -> pa.Array:
    """Concatenate the parts of a column. A part whose values are all missing may have the type null."""
    types: Mapping[str, pa.DataType] = {str(part.type): part.type for part in parts if not pa.types.is_null(part.type)}
    (type_,) = types.values() if len(types) == 1 else [pa.null()]
    if pa.types.is_null(type_):
        return pa.nulls(sum(map(len, parts)))
    return pa.concat_arrays([part.cast(type_) if pa.types.is_null(part.type) else part for part in parts])


def first_values(column: pa.Array) -> pa.Array:
    """Return the first values of the lists in a column; null if a list is empty or missing."""
    if pa.types.is_null(column.type):
        return column
    starts = np.asarray(column.offsets)[:-1]
    return column.values.take(pa.array(starts, mask=np.diff(np.asarray(column.offsets)) == 0))
