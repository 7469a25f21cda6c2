"""A random sample of a split, in bounded time and memory."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from components.data.examples import Examples
from components.data.saved_model import column_of

RANGES = 8
"""Greatest number of files, and of row groups in these, that are read by default."""
_BYTES = 64 << 20
"""Size from which a sample has fewer rows, such as of images."""


def draw(examples: Examples, rows: int, seed: int = 0, ranges: int = RANGES) -> pa.RecordBatch:
    """Draws rows: from all rows of a split that is stored in few row groups, or else from some random ones of these.

    Args:
      examples: The split. One batch is in memory at a time, besides the sample.
      rows: Greatest number of rows.
      seed: Of the draw.
      ranges: Greatest number of files, and of row groups in these, that are read.
    """
    random = np.random.default_rng(seed)
    paths = [examples.paths[at] for at in _some(random, len(examples.paths), ranges)]
    groups = [each for path in paths for each in examples.ranges(path)]
    # Of the rows read, those with the smallest keys.
    drawn: list[tuple[npt.NDArray[np.float64], pa.RecordBatch]] = []
    keys = np.empty(0)
    for at in _some(random, len(groups), ranges):
        # A row group is one batch; a file of TFRecords may have many.
        for batch in itertools.islice(examples.read(groups[at]), 1):
            rows = min(rows, max(1, _BYTES * batch.num_rows // max(batch.nbytes, 1)))
            own = random.random(batch.num_rows)
            keys = np.concatenate([keys, own])
            largest = np.partition(keys, rows - 1)[rows - 1] if len(keys) > rows else np.inf
            keys = keys[keys <= largest]
            drawn = [(each[each <= largest], _where(part, each <= largest)) for each, part in [*drawn, (own, batch)]]
    names = list(dict.fromkeys(name for _, part in drawn for name in part.schema.names))
    return pa.RecordBatch.from_arrays([joined([column_of(part, name) for _, part in drawn]) for name in names], names)


def _some(random: np.random.Generator, count: int, most: int) -> list[int]:
    return sorted(random.permutation(count)[:most].tolist())


def _where(batch: pa.RecordBatch, wanted: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    if wanted.all():
        return batch
    rows = pa.array(np.flatnonzero(wanted))
    return pa.RecordBatch.from_arrays([column.take(rows) for column in batch.columns], batch.schema.names)


def joined(parts: Sequence[pa.Array]) -> pa.Array:
    """Return the parts of a column as one array; a part without values is of type null."""
    types: Mapping[str, pa.DataType] = {str(each.type): each.type for each in parts if not pa.types.is_null(each.type)}
    (type_,) = types.values() if len(types) == 1 else [pa.null()]
    if pa.types.is_null(type_):
        return pa.nulls(sum(map(len, parts)))
    return pa.concat_arrays([each.cast(type_) if pa.types.is_null(each.type) else each for each in parts])


def first_values(column: pa.Array) -> pa.Array:
    """Return the first value of each row of a column of lists, null without one."""
    if pa.types.is_null(column.type):
        return column
    starts = np.asarray(column.offsets)[:-1]
    return column.values.take(pa.array(starts, mask=np.diff(np.asarray(column.offsets)) == 0))
