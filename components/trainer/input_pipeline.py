"""Transformed examples as a tf.data pipeline: each worker reads its own shard, in batches, from any step on.

Batch number k of a worker depends on the seed, the shard and k only, so training continues after a restart with the
batch that follows the checkpoint, whether the examples are kept in memory or read from the files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from components.features import feature_names
from components.files import is_remote
from components.trainer.config import TrainingConfig

_UNPACKED = 12
"""Bytes of a parsed example per byte of its compressed file, at most; in the files that Transform writes, 4 to 9."""
_READERS = 4
"""Files read in parallel."""
_ALL = 1 << 40
_BLOCK = 256
_FILES_PER_WORKER = 8
"""With fewer files per worker, records are distributed instead: shards of few whole files would differ too much."""

FeatureSpec = Mapping[str, Any]
"""Column → tf.io.FixedLenFeature or VarLenFeature, as tf.io.parse_example takes them."""
Columns = dict[str, tf.Tensor]
"""Column → its values, shape [batch, …]."""


@dataclass(frozen=True)
class InputShard:
    """The part of the examples that one worker reads, and the batch that it begins with.

    Attributes:
      index: the worker's number; an int64 scalar tensor if one graph serves all workers.
      count: number of workers.
      start: the first batch, counted from the beginning of training; an int64 scalar tensor likewise.
    """

    index: int | tf.Tensor = 0
    count: int = 1
    start: int | tf.Tensor = 0


@dataclass(frozen=True)
class InputPipeline:
    """The examples that a model is trained on.

    Attributes:
      files: gzip TFRecord files of tf.Example.
      spec: parsing spec of the transformed features and the label.
      config: seed, cache and shuffle buffer.
      batch_size: examples per batch of one replica, see `strategy.replica_batch_size`.
    """

    files: Sequence[str]
    spec: FeatureSpec
    config: TrainingConfig
    batch_size: int

    def dataset(self, shard: InputShard) -> tf.data.Dataset:
        """The shuffled batches of one worker, without end.

        Args:
          shard: which examples, and from which batch on.

        Returns:
          A dataset of (features: dict of [batch_size, …] tensors, label: [batch_size, 1]).
        """
        batches = self._from_memory if _in_memory(self.files, self.config.cache) else self._from_files
        return batches(shard).map(_split_label).prefetch(tf.data.AUTOTUNE)

    def _from_memory(self, shard: InputShard) -> tf.data.Dataset:
        """Parses the shard once, and gathers batches from it by row number.

        The order of an epoch is a pseudo-random permutation that is computed row by row (`RandomIndexShuffle`, see
        tf.random.experimental.index_shuffle), so a batch does not depend on the one before it.
        """
        all_rows = _records_of(_records(self.files), shard).batch(_ALL).map(_parser(self.spec)).map(_stack)
        columns = all_rows.get_single_element()
        rows = tf.shape(next(iter(columns.values())), out_type=tf.int64)[0]
        numbers = tf.range(self.batch_size, dtype=tf.int64)

        def batch(number: tf.Tensor) -> Columns:
            position = number * self.batch_size + numbers
            epoch = position // rows
            seeds = tf.fill([self.batch_size], tf.constant(self.config.seed, tf.int64))
            seed = tf.cast(tf.stack([seeds, epoch, tf.zeros_like(epoch)], axis=1), tf.uint32)
            row = tf.raw_ops.RandomIndexShuffle(index=position % rows, seed=seed, max_index=rows - 1, rounds=4)
            return _unstack({key: tf.gather(column, row) for key, column in columns.items()}, self.spec)

        return tf.data.Dataset.counter(tf.cast(shard.start, tf.int64)).map(batch, tf.data.AUTOTUNE, deterministic=True)

    def _from_files(self, shard: InputShard) -> tf.data.Dataset:
        """Reads the files in a new order in every epoch; examples before the start, at most an epoch, are skipped."""
        seed, files = self.config.seed, tf.constant(self.files)
        by_file = len(self.files) >= _FILES_PER_WORKER * shard.count
        paths = files[shard.index :: shard.count] if by_file else files

        def epoch(number: tf.Tensor) -> tf.data.Dataset:
            order = tf.random.experimental.stateless_shuffle(paths, tf.stack([number, seed]))
            # A reader returns its records in blocks: one by one costs several times as much as reading them.
            blocks = tf.data.Dataset.from_tensor_slices(order).interleave(
                lambda path: _file(path).batch(_BLOCK),
                _READERS,
                num_parallel_calls=tf.data.AUTOTUNE,
                deterministic=True,
            )
            records = blocks.unbatch()
            own = records if by_file else _records_of(records, shard)
            return own.shuffle(self.config.shuffle_buffer, seed=seed + number, reshuffle_each_iteration=False)

        def rows_of_an_epoch() -> tf.Tensor:
            own = _file(paths) if by_file else _records_of(_file(paths), shard)
            return own.reduce(tf.constant(0, tf.int64), lambda count, _: count + 1)

        start = tf.cast(shard.start, tf.int64) * self.batch_size
        # Counting reads the complete shard, so only a restart does it.
        rows = tf.cond(start > 0, rows_of_an_epoch, lambda: tf.constant(1, tf.int64))
        records = tf.data.Dataset.counter(start // rows).flat_map(epoch).skip(start % rows)
        batches = records.batch(self.batch_size, drop_remainder=True)
        return batches.map(_parser(self.spec), tf.data.AUTOTUNE, deterministic=True)


def find(patterns: Sequence[str]) -> list[str]:
    """The files that match any of the patterns, sorted; local paths are absolute."""
    names = sorted(name for pattern in patterns for name in tf.io.gfile.glob(pattern))
    # Path would remove one of the two slashes in gs://.
    return [name if is_remote(name) else str(Path(name).absolute()) for name in names]


def evaluation_dataset(files: Sequence[str], spec: FeatureSpec, batch_size: int) -> tf.data.Dataset:
    """Every example once, in file order.

    Args:
      files: gzip TFRecord files of tf.Example.
      spec: parsing spec of the transformed features and the label.
      batch_size: examples per batch; the last one may be smaller.

    Returns:
      A dataset of (features: dict of [batch, …] tensors, label: [batch, 1]).
    """
    return _records(files).batch(batch_size).map(_parser(spec), tf.data.AUTOTUNE).map(_split_label).prefetch(2)


def _in_memory(files: Sequence[str], cache: str) -> bool:
    if cache != "auto":
        return cache == "memory"
    # The files of all workers: on one machine they share its memory, and on several each has more of it.
    size = sum(tf.io.gfile.stat(file).length for file in files) * _UNPACKED
    return bool(size <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 4)


def _file(paths: tf.Tensor) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(paths, compression_type="GZIP", buffer_size=1 << 20)


def _records(files: Sequence[str]) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(
        files, compression_type="GZIP", buffer_size=1 << 20, num_parallel_reads=min(len(files), _READERS)
    )


def _records_of(records: tf.data.Dataset, shard: InputShard) -> tf.data.Dataset:
    return records if shard.count == 1 else records.shard(shard.count, shard.index)


def _parser(spec: FeatureSpec) -> Callable[[tf.Tensor], Columns]:
    return lambda serialized: tf.io.parse_example(serialized, spec)


def _split_label(columns: Columns) -> tuple[Columns, tf.Tensor]:
    features = dict(columns)
    return features, tf.reshape(features.pop(feature_names.LABEL), [-1, 1])


def _stack(columns: Columns) -> Columns:
    """Stacks the columns of one value per row into one matrix per dtype: one gather per batch instead of many."""
    stacked = {name: values for name, values in columns.items() if values.shape.rank > 1}
    for dtype, names in _by_dtype({name: values for name, values in columns.items() if name not in stacked}).items():
        stacked[dtype] = tf.stack([columns[name] for name in names], axis=1)
    return stacked


def _unstack(stacked: Columns, spec: FeatureSpec) -> Columns:
    columns = {name: values for name, values in stacked.items() if name in spec}
    for dtype, names in _by_dtype({name: each for name, each in spec.items() if name not in columns}).items():
        columns.update(zip(names, tf.unstack(stacked[dtype], len(names), axis=1), strict=True))
    return columns


def _by_dtype(columns: Mapping[str, Any]) -> dict[str, list[str]]:
    """Dtype → names of columns, sorted; the slash in the key keeps it apart from the features' names."""
    names: dict[str, list[str]] = {}
    for name in sorted(columns):
        names.setdefault(f"/{columns[name].dtype.name}", []).append(name)
    return names
