"""Transformed examples as a tf.data pipeline: each worker reads its own shard, in batches, from any step on.

Batch number k of a worker depends on the seed, the shard and k only, so training continues after a restart with the
batch that follows the checkpoint, whether the examples are kept in memory or read from the files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from components.base.errors import MachineError
from components.base.files import is_remote
from components.data.row_groups import is_parquet
from components.features import feature_names
from components.trainer.cluster import tf_config
from components.trainer.config import TrainingConfig
from components.trainer.input_columns import Columns, FeatureSpec, InputShard, Stacked, stack, unstack
from components.trainer.parquet_source import ParquetSource
from components.trainer.tfrecord_source import TfrecordSource
from components.trainer.validation_part import By, Keys, Selection, ValidationPart, key

Batch = tuple[Columns, tf.Tensor] | tuple[Columns, tf.Tensor, tf.Tensor]
"""The features of some examples, their label [batch, 1], and their weights [batch] if the rows have weights. A row that
is blended of two examples has both labels, [batch, 2], and as their weights the shares of the examples, times the
weights of the rows, [batch, 2]."""


Decode = Callable[[Columns], Columns]
Augment = Callable[[Batch, tf.Tensor], Batch]
"""(a batch with what the network reads, a seed: int64 [2]) → the batch with random changes."""


class PixelCache(NamedTuple):
    """How decoded images are kept in memory.

    Attributes:
      pack: transformed features → the same with pixels instead of encoded images, see `images.packed`.
      unpack: these → what the network reads.
      row_bytes: the size of the pixels of a row.
    """

    pack: Decode
    unpack: Decode
    row_bytes: int


class AssignedBatches(NamedTuple):
    """The shuffled batches of all examples, for workers that take the batches whose numbers they receive.

    Attributes:
      examples: makes a dataset, in each worker, that has the same element again and again: what the worker holds.
      batch: this element, and the number of a batch since the beginning of training (int64 scalar) → the batch.
    """

    examples: Callable[[], tf.data.Dataset]
    batch: Callable[[Any, tf.Tensor], Batch]


class Source(Protocol):
    """The examples of a split, in files of one format."""

    @property
    def columns(self) -> FeatureSpec:
        """The columns that are read: those of the spec, and FOLD if the selection has it."""
        ...

    def memory(self) -> int:
        """Return how many bytes all examples take in memory, at most."""
        ...

    def rows(self) -> int:
        """Return the number of all examples."""
        ...

    def load(self, shard: InputShard) -> Stacked:
        """Return the examples of one worker."""
        ...

    def batches(self, shard: InputShard, config: TrainingConfig, batch_size: int) -> tf.data.Dataset:
        """Return the shuffled batches of one worker, read from the files, without end."""
        ...

    def batch(self, number: tf.Tensor, config: TrainingConfig, batch_size: int) -> Columns:
        """Return one of the shuffled batches of all examples, read from the files."""
        ...

    def in_order(self, batch_size: int) -> Iterator[Columns]:
        """Yield every example once, in the order of the files, in batches of at most `batch_size`."""
        ...

    def keys(self, name: str) -> Iterator[Keys]:
        """Yield a column, or the sums of several labels, for all rows of the files, in pieces; [rows] each."""
        ...


@dataclass(frozen=True)
class InputPipeline:
    """The examples that a model is trained on.

    Attributes:
      files: the files of a split, Parquet or gzip TFRecords of tf.Example; see `find`.
      spec: parsing spec of the transformed features and the label.
      config: seed, cache and shuffle buffer.
      batch_size: examples per batch of one replica, see `strategy.replica_batch_size`.
      selection: the rows that are read; None: all.
      decode: transformed features → what the network reads, see `images.decoded`; None: they are the same.
      augment: changes the batches of training at random; needs `decode`.
      pixel_cache: how decoded images can be kept in memory; None: they are decoded for each batch.
    """

    files: Sequence[str]
    spec: FeatureSpec
    config: TrainingConfig
    batch_size: int
    selection: Selection | None = None
    decode: Decode | None = None
    augment: Augment | None = None
    pixel_cache: PixelCache | None = None

    def dataset(self, shard: InputShard) -> tf.data.Dataset:
        """Return the shuffled batches of one worker, without end.

        Args:
          shard: which examples, and from which batch on.

        Returns:
          A dataset of (features: dict of [batch_size, …] tensors, label: [batch_size, labels]).

        Raises:
          InputError: there are fewer examples than workers, in Parquet files.
          MachineError: a file cannot be read.
        """
        source = _source(self.files, self.spec, self.selection)
        pixels = self._cached_pixels(source)
        if pixels or _in_memory(source, self.config):
            batches = self._from_memory(source, shard, pixels)
        else:
            batches = source.batches(shard, self.config, self.batch_size)
        batches = batches.map(_split_label)
        decode = pixels.unpack if pixels else self.decode
        if decode:
            # Every batch of every worker has a number of its own.
            own = tf.cast(shard.start, tf.int64) * shard.count + tf.cast(shard.index, tf.int64)
            numbers = tf.data.Dataset.counter(own, shard.count)
            batches = tf.data.Dataset.zip((numbers, batches)).map(
                lambda number, batch: self._decoded(decode, number, *batch), tf.data.AUTOTUNE, deterministic=True
            )
        return batches.prefetch(tf.data.AUTOTUNE)

    def assigned(self) -> AssignedBatches:
        """Return the batches of an elastic cluster; every worker can make each of them.

        Raises:
          InputError: there are no examples, or they are TFRecords and do not fit into memory.
          MachineError: a file cannot be read.
        """
        source = _source(self.files, self.spec, self.selection)
        role = tf_config.role()
        # Workers on one machine share its memory.
        copies = (self.config.strategy.max_workers or 1) if role is None or role.is_on_one_machine else 1
        pixels = self._cached_pixels(source, copies)
        decode = pixels.unpack if pixels else self.decode

        def made(columns: Columns, number: tf.Tensor) -> Batch:
            return self._decoded(decode, number, *_split_label(columns))

        if pixels or _in_memory(source, self.config, copies):
            return AssignedBatches(
                lambda: _holding_once(tf.data.Dataset.from_tensors(_loaded(source, InputShard(), pixels)).repeat()),
                lambda columns, number: made(self._gather(source, columns, number), number),
            )
        return AssignedBatches(
            lambda: tf.data.Dataset.from_tensors(0).repeat(),
            lambda _, number: made(source.batch(number, self.config, self.batch_size), number),
        )

    def _cached_pixels(self, source: Source, copies: int = 1) -> PixelCache | None:
        """How decoded images are kept in memory; None if they are not."""
        cache, config = self.pixel_cache, self.config
        if cache is None or config.cache == "pixels":
            return cache
        if config.cache != "auto" or not _in_memory(source, config, copies):
            return None
        # While they are loaded, there are two copies of them. What is read less than twice is not worth it.
        rows = source.rows()
        fit = 2 * rows * cache.row_bytes * copies <= _most_bytes(config)
        return cache if fit and config.steps * config.batch_size >= 2 * rows else None

    def _decoded(self, decode: Decode | None, number: tf.Tensor, features: Columns, *rest: tf.Tensor) -> Batch:
        if decode:
            features = decode(features)
        if self.augment is None:
            return features, *rest
        return self.augment((features, *rest), tf.stack([tf.constant(self.config.seed, tf.int64), number]))

    def _from_memory(self, source: Source, shard: InputShard, pixels: PixelCache | None) -> tf.data.Dataset:
        """Load the shard once, and gathers batches from it by row number."""
        columns = _loaded(source, shard, pixels)
        numbers = tf.data.Dataset.counter(tf.cast(shard.start, tf.int64))
        return _holding_once(
            numbers.map(lambda each: self._gather(source, columns, each), tf.data.AUTOTUNE, deterministic=True)
        )

    def _gather(self, source: Source, columns: Stacked, number: tf.Tensor) -> Columns:
        """Return the rows of a batch.

        The order of an epoch is a pseudo-random permutation that is computed row by row (`RandomIndexShuffle`, see
        tf.random.experimental.index_shuffle), so a batch does not depend on the one before it.
        """
        # The label, at least, is no RaggedTensor.
        dense = next(each for each in columns.values() if not isinstance(each, tf.RaggedTensor))
        rows = tf.shape(dense, out_type=tf.int64)[0]
        position = number * self.batch_size + tf.range(self.batch_size, dtype=tf.int64)
        epoch = position // rows
        seeds = tf.fill([self.batch_size], tf.constant(self.config.seed, tf.int64))
        seed = tf.cast(tf.stack([seeds, epoch, tf.zeros_like(epoch)], axis=1), tf.uint32)
        row = tf.raw_ops.RandomIndexShuffle(index=position % rows, seed=seed, max_index=rows - 1, rounds=4)
        return unstack({key: tf.gather(column, row) for key, column in columns.items()}, source.columns)


def find(patterns: Sequence[str]) -> list[str]:
    """Return the files that match any of the patterns, sorted; local paths are absolute.

    Raises:
      MachineError: there are none.
    """
    names = sorted(name for pattern in patterns for name in tf.io.gfile.glob(pattern))
    if not names:
        raise MachineError(
            f"{', '.join(patterns)}: expected files of transformed examples, received none",
            "run again with --no-cache",
        )
    # Path would remove one of the two slashes in gs://.
    return [name if is_remote(name) else str(Path(name).absolute()) for name in names]


def validation_part(files: Sequence[str], spec: FeatureSpec, config: TrainingConfig, by: By) -> ValidationPart:
    """Plans the part of the training split that training does not see, or the folds; reads one column of it.

    Args:
      files: the files of the split; see `find`.
      spec: parsing spec of the transformed features and the label.
      config: share, folds and seed.
      by: what keeps rows together.

    Raises:
      MachineError: a file cannot be read.
    """
    keys = _source(files, spec).keys(key(by))
    return ValidationPart.of(keys, config.validation, config.seed, by, config.folds or 1)


def evaluation_batches(
    files: Sequence[str], spec: FeatureSpec, batch_size: int, selection: Selection | None = None
) -> Iterator[Batch]:
    """Yield every example once, in file order.

    Args:
      files: the files of a split, Parquet or gzip TFRecords of tf.Example; see `find`.
      spec: parsing spec of the transformed features and the label.
      batch_size: examples per batch, at most.
      selection: the rows that are read; None: all.

    Yields:
      (features: dict of [batch, …] tensors, label: [batch, labels]), with the weights if there are any, see `Batch`.

    Raises:
      InputError: there are no examples, in Parquet files.
      MachineError: a file cannot be read.
    """
    yield from map(_split_label, _source(files, spec, selection).in_order(batch_size))


def size(files: Sequence[str], spec: FeatureSpec) -> int:
    """Return how many bytes the examples of a split take in memory, at most.

    Args:
      files: the files of the split; see `find`.
      spec: parsing spec of the transformed features and the label.
    """
    return _source(files, spec).memory()


def _loaded(source: Source, shard: InputShard, pixels: PixelCache | None) -> Stacked:
    """Return the examples of a shard; with `pixels` its images are decoded, several at a time."""
    stacked = source.load(shard)
    if pixels is None:
        return stacked
    return stack(tf.function(lambda rows: pixels.pack(unstack(rows, source.columns)), autograph=False)(stacked))


def _holding_once(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Prevents iterators from copying the tensors that the dataset holds; they do so to optimize its graph."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    return dataset.with_options(options)


def _source(files: Sequence[str], spec: FeatureSpec, selection: Selection | None = None) -> Source:
    return (ParquetSource if is_parquet(files[0]) else TfrecordSource)(files, spec, selection)


def _in_memory(source: Source, config: TrainingConfig, copies: int = 1) -> bool:
    if config.cache != "auto":
        return config.cache == "memory"
    # The examples of all workers: on one machine they share its memory, and on several each has more of it.
    return source.memory() * copies <= _most_bytes(config)


def _most_bytes(config: TrainingConfig) -> float:
    """Return the greatest size of the examples that are kept in memory without being asked for."""
    return min(config.memory_mb << 20, machine_memory() / 4)


def machine_memory() -> int:
    """Return this machine's memory, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _split_label(columns: Columns) -> Batch:
    features = dict(columns)
    label = features.pop(feature_names.LABEL)
    label = tf.reshape(label, [-1, label.shape[1] if label.shape.rank == 2 else 1])
    if feature_names.WEIGHT not in features:
        return features, label
    return features, label, tf.reshape(features.pop(feature_names.WEIGHT), [-1])
