"""Transformed examples in Parquet files, read by NumPy in the process that holds the iterator.

A worker of a ParameterServerStrategy is another process than the one that traces the graph. So the graph names the
function that reads, and describes the files as JSON; every process registers the function before it runs a graph.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from components.compat.tensorflow import call_py_function, register_py_function
from components.data.row_groups import RowGroup, row_groups
from components.errors import InputError
from components.trainer.config import TrainingConfig
from components.trainer.input_columns import Columns, FeatureSpec, InputShard, Stacked, layout, unstack
from components.trainer.parquet_rows import Part, Shard, ShuffledShard, Values, arrays, read, take

_LOAD, _BATCH = "parquet_source.load", "parquet_source.batch"


@dataclass(frozen=True)
class ParquetSource:
    """The examples of a split in Parquet files.

    Attributes:
      files: at least one.
      spec: parsing spec of the transformed features and the label.
    """

    files: Sequence[str]
    spec: FeatureSpec

    def memory(self) -> int:
        """Returns how many bytes all examples take in memory, from the footers of the files."""
        return sum(group.memory for group in self._groups)

    def load(self, shard: InputShard) -> Stacked:
        """Returns the examples of one worker: every `count`-th row, as from TFRecords.

        Raises:
          InputError: there are fewer examples than workers.
        """
        self._check(shard.count)
        description = json.dumps({**self._description(), "count": shard.count})
        return self._stacked(_call(_LOAD, description, [shard.index], self._dtypes()))

    def batches(self, shard: InputShard, config: TrainingConfig, batch_size: int) -> tf.data.Dataset:
        """Returns the shuffled batches of one worker, read from the files, without end; see `ShuffledShard`.

        Raises:
          InputError: there are fewer examples than workers.
        """
        self._check(shard.count)
        shuffle = {"seed": config.seed, "buffer": config.shuffle_buffer, "batch_size": batch_size}
        description = json.dumps({**self._description(), "count": shard.count, "shuffle": shuffle})

        def batch(number: tf.Tensor) -> Columns:
            received = _call(_BATCH, description, [shard.index, number], self._dtypes())
            return unstack(self._stacked(received, batch_size), self.spec)

        # Not in parallel: the function holds the rows that the next batch is taken from.
        return tf.data.Dataset.counter(tf.cast(shard.start, tf.int64)).map(batch)

    def in_order(self, batch_size: int) -> tf.data.Dataset:
        """Returns every example once, in batches of at most `batch_size`.

        Raises:
          InputError: there are no examples.
        """
        self._check(1)

        def batches() -> Iterator[tuple[Values, ...]]:
            for group in self._groups:
                rows = read(group, self._parts)
                for start in range(0, group.rows, batch_size):
                    yield tuple(arrays(take(rows, np.arange(start, min(start + batch_size, group.rows)))))

        signature = tuple(tf.TensorSpec(None, dtype) for dtype in self._dtypes())
        dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
        return dataset.map(lambda *received: unstack(self._stacked(received), self.spec))

    @functools.cached_property
    def _groups(self) -> list[RowGroup]:
        return row_groups(self.files)

    @functools.cached_property
    def _parts(self) -> list[Part]:
        parts = []
        for names in layout(self.spec).values():
            feature = self.spec[names[0]]
            width = None if isinstance(feature, tf.io.VarLenFeature) else math.prod(feature.shape)
            parts.append(Part(tuple(names), feature.dtype.name, width))
        return parts

    def _check(self, workers: int) -> None:
        rows = sum(group.rows for group in self._groups)
        if rows < workers:
            raise InputError(
                f"{self.files[0].rpartition('/')[0]}: expected at least one example for each of {workers} workers, "
                f"received {rows}",
                "add data, or change data.split",
            )

    def _description(self) -> dict[str, Any]:
        return {"files": list(self.files), "parts": [asdict(part) for part in self._parts]}

    def _dtypes(self) -> list[tf.DType]:
        """The dtypes of `arrays`."""
        return [
            dtype
            for part in self._parts
            for dtype in ([tf.as_dtype(part.dtype)] if part.width is not None else [tf.as_dtype(part.dtype), tf.int64])
        ]

    def _stacked(self, received: Sequence[tf.Tensor], rows: int | None = None) -> Stacked:
        """The stacked columns of `arrays`, with their shapes."""
        stacked: Stacked = {}
        rest = iter(received)
        for (key, names), part in zip(layout(self.spec).items(), self._parts, strict=True):
            values = next(rest)
            if part.width is None:
                splits = next(rest)
                splits.set_shape([None if rows is None else rows + 1])
                values.set_shape([None])
                stacked[key] = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
            elif key in self.spec:
                stacked[key] = tf.reshape(values, [-1 if rows is None else rows, *self.spec[key].shape])
            else:
                values.set_shape([rows, len(names)])
                stacked[key] = values
        return stacked


def register() -> None:
    """Makes the functions that the graphs of a ParquetSource call available in this process."""
    register_py_function(_LOAD, _load)
    register_py_function(_BATCH, _batch)


def _call(function: str, description: str, numbers: Sequence[int | tf.Tensor], dtypes: list[tf.DType]) -> list[tf.Tensor]:
    register()
    inputs = [tf.constant(description), *(tf.cast(number, tf.int64) for number in numbers)]
    return call_py_function(function, inputs, dtypes)


def _load(description: bytes, index: np.int64) -> list[Values]:
    return arrays(_shard(description, int(index)).load())


def _batch(description: bytes, index: np.int64, number: np.int64) -> list[Values]:
    return arrays(_shuffled(description, int(index)).batch(int(number)))


# One: a process trains on one shard at a time, and a window of rows is large.
@functools.lru_cache(maxsize=1)
def _shuffled(description: bytes, index: int) -> ShuffledShard:
    return ShuffledShard(_shard(description, index), **json.loads(description)["shuffle"])


def _shard(description: bytes, index: int) -> Shard:
    fields = json.loads(description)
    parts = [Part(tuple(part["columns"]), part["dtype"], part["width"]) for part in fields["parts"]]
    return Shard(row_groups(fields["files"]), parts, index, fields["count"])
