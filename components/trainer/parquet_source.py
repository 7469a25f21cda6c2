"""Transformed examples in Parquet files, read by NumPy in the process that holds the iterator.

With a ParameterServerStrategy, one process traces the graph and workers run it. So the graph names the function that
reads, and describes the files as JSON; every process registers the function before it runs a graph.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from components.base.errors import InputError
from components.compat.tensorflow import call_py_function, register_py_function
from components.data.parallel_reads import read_in_parallel
from components.data.row_groups import row_groups
from components.trainer.config import TrainingConfig
from components.trainer.input_columns import (
    Columns,
    FeatureSpec,
    InputShard,
    Stacked,
    add_fold,
    find_matrix_keys,
    unstack,
)
from components.trainer.parquet_rows import Column, Shard, ShuffledShard, Values, arrays, keys, matrices, part
from components.trainer.validation_part import Selection, ValidationPart, key_names

_LOAD, _BATCH = "parquet_source.load", "parquet_source.batch"


@dataclass(frozen=True)
class ParquetSource:
    """The examples of a split in Parquet files.

    Attributes:
      files: Paths of the files, at least one.
      spec: Parsing spec of the transformed features and the label.
      selection: The rows to read; if None, all rows.
      batch_rows: Number of rows in a batch.
    """

    files: Sequence[str]
    spec: FeatureSpec
    selection: Selection | None = None
    batch_rows: int = 1

    def memory(self) -> int:
        """Return the memory of all examples in bytes, from the footers of the files."""
        return sum(group.memory for group in self._shard.groups)

    def rows(self) -> int:
        """Return the number of all examples."""
        return int(self._shard.sizes.sum())

    def load(self, shard: InputShard) -> Stacked:
        """Return the examples of one worker: every `count`-th row, as from TFRecords.

        The row groups are copied into the result one by one, so the rows never exist twice.

        Raises:
          InputError: If there are fewer examples than workers.
        """
        self._check(shard.count)
        description = self._describe(count=shard.count)
        return self._to_stacked(_call(_LOAD, description, [shard.index], self._list_dtypes()))

    def batches(self, shard: InputShard, config: TrainingConfig) -> tf.data.Dataset:
        """Return an infinite dataset of the shuffled batches of one worker, read from the files; see `ShuffledShard`.

        Raises:
          InputError: If there are fewer examples than workers.
        """
        self._check(shard.count)
        # Not in parallel, because the function holds the rows of the next batch.
        return tf.data.Dataset.counter(tf.cast(shard.start, tf.int64)).map(
            lambda number: self._batch(shard, number, config)
        )

    def batch(self, number: tf.Tensor, config: TrainingConfig) -> Columns:
        """Return a shuffled batch of all examples, read from the files; see `ShuffledShard`.

        Raises:
          InputError: If the files do not contain examples.
        """
        self._check(1)
        return self._batch(InputShard(), number, config)

    def in_order(self) -> Iterator[Columns]:
        """Yield every example once, in batches of at most `batch_rows`.

        Raises:
          InputError: If the files do not contain examples.
        """
        self._check(1)
        sizes = self._shard.sizes
        for size, rows in zip(sizes, read_in_parallel(self._shard.read, range(len(sizes))), strict=True):
            for start in range(0, int(size), self.batch_rows):
                batch = arrays(part(rows, slice(start, start + self.batch_rows)))
                yield self._to_columns([tf.constant(values) for values in batch])

    def keys(self, *names: str) -> Iterator[Values]:
        """Yield a column, or the sums of several labels, for all rows of the files, a row group at a time.

        With several names, the columns are stacked; [rows, columns].
        """
        return read_in_parallel(lambda group: keys(group, *names), row_groups(self.files))

    @property
    def columns(self) -> FeatureSpec:
        """See input_pipeline.Source."""
        return add_fold(self.spec, self.selection)

    def _batch(self, shard: InputShard, number: tf.Tensor, config: TrainingConfig) -> Columns:
        # Derive the buffer from the config and the files alone. If it depended on the machine's memory, a restart on
        # another machine would read other batches. Two windows are in memory.
        groups = self._shard.groups
        row_bytes = max(1, self.memory() // sum(group.rows for group in groups))
        buffer = max(1, min(config.shuffle_buffer, (config.memory_mb << 20) // (2 * row_bytes)))
        description = self._describe(count=shard.count, shuffle={"seed": config.seed, "buffer": buffer})
        start = tf.cast(number, tf.int64) * self.batch_rows
        numbers = [shard.index, start, start + self.batch_rows]
        return self._to_columns(_call(_BATCH, description, numbers, self._list_dtypes()), self.batch_rows)

    @functools.cached_property
    def _shard(self) -> Shard:
        """All rows to read from the split."""
        return _shard(self._describe(count=1).encode(), 0)

    @functools.cached_property
    def _columns(self) -> list[Column]:
        keys = find_matrix_keys(self.columns)
        return [
            Column(
                name,
                column.dtype.name,
                None if isinstance(column, tf.io.VarLenFeature) else math.prod(column.shape),
                keys.get(name, ""),
            )
            for name, column in sorted(self.columns.items())
        ]

    @functools.cached_property
    def _arrays(self) -> list[list[Column]]:
        """The columns of column array of `Shard.read`."""
        return [[self._columns[number] for number in members] for members in matrices(self._columns)]

    def _check(self, workers: int) -> None:
        rows = self.rows()
        if rows < workers:
            raise InputError(
                f"{self.files[0].rpartition('/')[0]}: expected an example for each worker ({workers}), received {rows}",
                "add data, or change data.split or training.validation",
            )

    def _describe(self, **more: Any) -> str:
        fields = {"files": list(self.files), "columns": self._columns, **more}
        if self.selection:
            fields["selection"] = self.selection
        return json.dumps(fields)

    def _list_dtypes(self) -> list[tf.DType]:
        """Return the dtypes of `arrays`."""
        dtypes = []
        for column, *_ in self._arrays:
            dtypes += [tf.as_dtype(column.dtype)] if column.width is not None else [tf.as_dtype(column.dtype), tf.int64]
        return dtypes

    def _to_columns(self, received: Sequence[tf.Tensor], rows: int = -1) -> Columns:
        """Convert the tensors of `arrays` to columns; `rows` is their number if it is known."""
        return unstack(self._to_stacked(received, rows), self.columns)

    def _to_stacked(self, received: Sequence[tf.Tensor], rows: int = -1) -> Stacked:
        """Convert the tensors of `arrays` to stacked columns; `rows` is their number if it is known."""
        stacked: Stacked = {}
        tensors = iter(received)
        for column, *further in self._arrays:
            values = next(tensors)
            if column.width is None:
                values, splits = tf.reshape(values, [-1]), tf.reshape(next(tensors), [-1])
                stacked[column.name] = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
            else:
                columns = [1 + len(further)] if column.matrix else []
                shape = [rows, *columns, *self.columns[column.name].shape]
                stacked[column.matrix or column.name] = tf.reshape(values, shape)
        return stacked


def register() -> None:
    """Make the functions that the graphs of a ParquetSource call available in this process."""
    register_py_function(_LOAD, _load)
    register_py_function(_BATCH, _batch)


def _call(
    function: str, description: str, numbers: Sequence[int | tf.Tensor], dtypes: list[tf.DType]
) -> list[tf.Tensor]:
    register()
    inputs = [tf.constant(description), *(tf.cast(number, tf.int64) for number in numbers)]
    return call_py_function(function, inputs, dtypes)


def _load(description: bytes, index: np.int64) -> list[Values]:
    return arrays(_shard(description, int(index)).load())


def _batch(description: bytes, index: np.int64, start: np.int64, stop: np.int64) -> list[Values]:
    return arrays(_create_shuffled_shard(description, int(index)).read(int(start), int(stop)))


# Cache one shard: a process trains on one shard at a time, and a window of rows is large.
@functools.lru_cache(maxsize=1)
def _create_shuffled_shard(description: bytes, index: int) -> ShuffledShard:
    return ShuffledShard(_shard(description, index), **json.loads(description)["shuffle"])


def _shard(description: bytes, index: int) -> Shard:
    fields = json.loads(description)
    columns = [Column(*column) for column in fields["columns"]]
    groups = row_groups(fields["files"])
    masks = folds = None
    if "selection" in fields:
        part, inside = fields["selection"]
        part = ValidationPart(*part)
        columns_of_keys = read_in_parallel(lambda group: keys(group, *key_names(part.by)), groups)
        numbered = [(column, number) for number, column in enumerate(columns_of_keys)]
        if inside is None:
            folds = [part.numbers(*arguments) for arguments in numbered]
        else:
            masks = [part.mask(*arguments, inside=inside) for arguments in numbered]
    return Shard(groups, columns, index, fields["count"], masks, folds)
