"""Transformed examples as a tf.data pipeline: a worker reads its shard in batches, starting at any step.

Batch number k of a worker depends only on the seed, the shard and k. So training continues after a restart with the
batch that follows the checkpoint, whether the examples are kept in memory or read from the files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from components.base.errors import InputError, MachineError
from components.base.files import is_remote
from components.data.row_groups import is_parquet
from components.features import feature_names
from components.trainer import list_blocks
from components.trainer.cluster import tf_config
from components.trainer.config import TrainingConfig
from components.trainer.input_columns import Columns, FeatureSpec, InputShard, Stacked, stack, unstack
from components.trainer.list_blocks import ListBlocks
from components.trainer.parquet_source import ParquetSource
from components.trainer.tfrecord_source import TfrecordSource
from components.trainer.validation_part import By, Keys, Selection, ValidationPart, key_names

Batch = tuple[Columns, tf.Tensor] | tuple[Columns, tf.Tensor, tf.Tensor]
"""The features of some examples, their label [batch, 1], and their weights [batch] if the rows have weights. A row that
blends two examples has two labels, [batch, 2], and two weights, [batch, 2]: the share of each example in the blend,
times its weight."""

Decode = Callable[[Columns], Columns]
Augment = Callable[[Batch, tf.Tensor], Batch]
"""(a batch as the network reads it, a seed: int64 [2]) → the batch with random changes."""


class PixelCache(NamedTuple):
    """How decoded images are kept in memory.

    Attributes:
      pack: Transformed features → the same with pixels instead of encoded images, see `images.pack`.
      unpack: Output of `pack` → the features that the network reads.
      row_bytes: Bytes of the pixels in a row.
    """

    pack: Decode
    unpack: Decode
    row_bytes: int


class AssignedBatches(NamedTuple):
    """The shuffled batches of all examples, for workers that receive the numbers of their batches.

    Attributes:
      examples: Creates, in each worker, a dataset that repeats one element: the data that the worker holds.
      batch: (this element, number of a batch since the beginning of training: int64 scalar) → the batch.
    """

    examples: Callable[[], tf.data.Dataset]
    batch: Callable[[Any, tf.Tensor], Batch]


class Source(Protocol):
    """The examples of a split, in files of one format."""

    @property
    def columns(self) -> FeatureSpec:
        """The columns that are read: the columns of the spec, and FOLD if the selection reads all rows."""

    def memory(self) -> int:
        """Return the maximum memory of all examples, in bytes."""

    def rows(self) -> int:
        """Return the number of all examples."""

    def load(self, shard: InputShard) -> Stacked:
        """Return the examples of one worker."""

    def batches(self, shard: InputShard, config: TrainingConfig) -> tf.data.Dataset:
        """Return an infinite dataset of the shuffled batches of one worker, read from the files."""

    def batch(self, number: tf.Tensor, config: TrainingConfig) -> Columns:
        """Return one of the shuffled batches of all examples, read from the files."""

    def in_order(self) -> Iterator[Columns]:
        """Yield every example once, in the order of the files; the last batch of a file may be smaller."""

    def keys(self, *names: str) -> Iterator[Keys]:
        """Yield a column, or the sums of several labels, for all rows of the files, as arrays of shape [rows]."""


@dataclass(frozen=True)
class InputPipeline:
    """The examples that a model is trained on.

    Attributes:
      files: The files of a split, Parquet or gzip TFRecords of tf.Example; see `find`.
      spec: Parsing spec of the transformed features and the label.
      config: Seed, cache and shuffle buffer.
      batch_rows: Rows in a batch of one replica, see `TrainingConfig.replica_rows`.
      selection: The rows to read; if None, all rows.
      decode: Transformed features → the features that the network reads; if None, they are the same.
      augment: Changes the batches of training at random; needs `decode`.
      pixel_cache: How decoded images can be kept in memory; if None, images are decoded for every batch.
      list_size: Number of rows in a block of `list_blocks`, of which batches consist. If None, rows are shuffled one by
        one.
    """

    files: Sequence[str]
    spec: FeatureSpec
    config: TrainingConfig
    batch_rows: int
    selection: Selection | None = None
    decode: Decode | None = None
    augment: Augment | None = None
    pixel_cache: PixelCache | None = None
    list_size: int | None = None

    def dataset(self, shard: InputShard) -> tf.data.Dataset:
        """Return an infinite dataset of the shuffled batches of one worker.

        Args:
          shard: The worker, and its first batch.

        Returns:
          A dataset of (features: dict of [batch_rows, …] tensors, label: [batch_rows, labels]).

        Raises:
          InputError: If there are fewer examples than workers, in Parquet files; or if lists do not fit into memory.
          MachineError: If a file cannot be read.
        """
        source = _create_source(self.files, self.spec, self.selection, self.batch_rows)
        pixels = self._choose_pixel_cache(source)
        if self.list_size:
            batches = self._read_lists(source, shard, pixels, self.list_size)
        elif pixels or _keeps_in_memory(source, self.config):
            batches = self._read_from_memory(source, shard, pixels)
        else:
            batches = source.batches(shard, self.config).map(_split_label)
        decode = pixels.unpack if pixels else self.decode
        if decode:
            # Number the batches of all workers without duplicates.
            first = tf.cast(shard.start, tf.int64) * shard.count + tf.cast(shard.index, tf.int64)
            numbers = tf.data.Dataset.counter(first, shard.count)
            batches = tf.data.Dataset.zip((numbers, batches)).map(
                lambda number, batch: self._decode(decode, number, *batch), tf.data.AUTOTUNE, deterministic=True
            )
        return batches.prefetch(tf.data.AUTOTUNE)

    def assign(self) -> AssignedBatches:
        """Return the batches of an elastic cluster; every worker can build any batch.

        Raises:
          InputError: If the split is empty, or its TFRecords do not fit into memory.
          MachineError: If a file cannot be read.
        """
        source = _create_source(self.files, self.spec, self.selection, self.batch_rows)
        role = tf_config.role()
        # Workers on one machine share its memory.
        copies = (self.config.strategy.max_workers or 1) if role is None or role.is_on_one_machine else 1
        pixels = self._choose_pixel_cache(source, copies)
        decode = pixels.unpack if pixels else self.decode

        def to_batch(columns: Columns, number: tf.Tensor) -> Batch:
            return self._decode(decode, number, *_split_label(columns))

        if pixels or _keeps_in_memory(source, self.config, copies):
            return AssignedBatches(
                lambda: _avoid_copies(tf.data.Dataset.from_tensors(_load(source, InputShard(), pixels)).repeat()),
                lambda columns, number: to_batch(self._gather(source, columns, number), number),
            )
        return AssignedBatches(
            lambda: tf.data.Dataset.from_tensors(0).repeat(),
            lambda _, number: to_batch(source.batch(number, self.config), number),
        )

    def _choose_pixel_cache(self, source: Source, copies: int = 1) -> PixelCache | None:
        """Return how decoded images are kept in memory; None if they are not kept."""
        cache, config = self.pixel_cache, self.config
        if cache is None or config.cache == "pixels":
            return cache
        if config.cache != "auto" or not _keeps_in_memory(source, config, copies):
            return None
        # Loading needs memory for two copies. Caching rows that are read less than twice does not save time.
        rows = source.rows()
        fit = 2 * rows * cache.row_bytes * copies <= _compute_most_bytes(config)
        return cache if fit and config.trained_rows >= 2 * rows else None

    def _decode(self, decode: Decode | None, number: tf.Tensor, features: Columns, *targets: tf.Tensor) -> Batch:
        if decode:
            features = decode(features)
        if self.augment is None:
            return features, *targets
        return self.augment((features, *targets), tf.stack([tf.constant(self.config.seed, tf.int64), number]))

    def _read_from_memory(self, source: Source, shard: InputShard, pixels: PixelCache | None) -> tf.data.Dataset:
        """Load the shard once, and gather batches from it by row number."""
        columns = _load(source, shard, pixels)

        def read_batch(number: tf.Tensor) -> Batch:
            return _split_label(self._gather(source, columns, number))

        numbers = tf.data.Dataset.counter(tf.cast(shard.start, tf.int64))
        return _avoid_copies(numbers.map(read_batch, tf.data.AUTOTUNE, deterministic=True))

    def _read_lists(self, source: Source, shard: InputShard, pixels: PixelCache | None, size: int) -> tf.data.Dataset:
        """Load all rows, because the rows of a list may be anywhere, and gather batches of whole blocks."""
        if not _keeps_in_memory(source, self.config, shard.count):
            raise InputError(
                f"model.loss: listwise keeps the rows of all lists in memory: expected at most "
                f"{_compute_most_bytes(self.config) / 2**20:,.0f} MB, received {source.memory() / 2**20:,.0f} MB for "
                f"each of {shard.count} workers",
                "raise training.memory_mb, or choose another loss",
            )
        columns = _load(source, InputShard(), pixels)
        lists = list_blocks.divide(unstack(columns, source.columns)[feature_names.LIST_KEY], size)
        count, blocks = self.batch_rows // size, tf.size(lists.lists, tf.int64)

        def read_batch(number: tf.Tensor) -> Batch:
            position = number * count + tf.range(count, dtype=tf.int64)
            epochs = position // blocks
            seeds = tf.stack([tf.fill([count], tf.constant(self.config.seed, tf.int64)), epochs], axis=1)
            order = tf.fill([count, 1], tf.constant(_BLOCKS, tf.int64))
            block = tf.raw_ops.RandomIndexShuffle(
                index=position % blocks,
                seed=tf.cast(tf.concat([seeds, order], axis=1), tf.uint32),
                max_index=blocks - 1,
                rounds=4,
            )
            return _split_label(_gather_blocks(source, columns, lists, block, seeds))

        # Every worker takes its share of the batches of all rows.
        first = tf.cast(shard.start, tf.int64) * shard.count + tf.cast(shard.index, tf.int64)
        numbers = tf.data.Dataset.counter(first, shard.count)
        return _avoid_copies(numbers.map(read_batch, tf.data.AUTOTUNE, deterministic=True))

    def _gather(self, source: Source, columns: Stacked, number: tf.Tensor) -> Columns:
        """Return the rows of a batch.

        The order of an epoch is a pseudo-random permutation that is computed row by row (`RandomIndexShuffle`, see
        tf.random.experimental.index_shuffle), so a batch does not depend on the previous batch.
        """
        # At least the label is dense.
        dense = next(column for column in columns.values() if not isinstance(column, tf.RaggedTensor))
        rows = tf.shape(dense, out_type=tf.int64)[0]
        position = number * self.batch_rows + tf.range(self.batch_rows, dtype=tf.int64)
        epoch = position // rows
        seeds = tf.fill([self.batch_rows], tf.constant(self.config.seed, tf.int64))
        seed = tf.cast(tf.stack([seeds, epoch, tf.zeros_like(epoch)], axis=1), tf.uint32)
        row = tf.raw_ops.RandomIndexShuffle(index=position % rows, seed=seed, max_index=rows - 1, rounds=4)
        return unstack({key: tf.gather(column, row) for key, column in columns.items()}, source.columns)


def find(patterns: Sequence[str]) -> list[str]:
    """Return the files that match any of the patterns, sorted; local paths are absolute.

    Raises:
      MachineError: If no file matches.
    """
    names = sorted(name for pattern in patterns for name in tf.io.gfile.glob(pattern))
    if not names:
        raise MachineError(
            f"{', '.join(patterns)}: expected files of transformed examples, received none",
            "run again with --no-cache",
        )
    # Path would remove one of the two slashes in gs://.
    return [name if is_remote(name) else str(Path(name).absolute()) for name in names]


def validation_part(
    files: Sequence[str], spec: FeatureSpec, config: TrainingConfig, by: By, *, can_roll: bool = False
) -> ValidationPart:
    """Plan the part of the training split that is held out, or the folds; read the keys of the split.

    Args:
      files: The files of the split; see `find`.
      spec: Parsing spec of the transformed features and the label.
      config: Share, folds and seed.
      by: How rows are held out, see `ValidationPart`.
      can_roll: Whether folds in time have rolling origins, see `ValidationPart.of`.

    Raises:
      MachineError: If a file cannot be read.
    """
    keys = _create_source(files, spec).keys(*key_names(by))
    return ValidationPart.of(keys, config.validation, config.seed, by, config.folds or 1, can_roll=can_roll)


def evaluation_batches(
    files: Sequence[str], spec: FeatureSpec, batch_rows: int, selection: Selection | None = None
) -> Iterator[Batch]:
    """Yield every example once, in file order.

    Args:
      files: The files of a split, Parquet or gzip TFRecords of tf.Example; see `find`.
      spec: Parsing spec of the transformed features and the label.
      batch_rows: Maximum number of rows in a batch.
      selection: The rows to read; if None, all rows.

    Yields:
      (features: dict of [batch, …] tensors, label: [batch, labels]), and the weights if the rows have any; see `Batch`.

    Raises:
      InputError: If Parquet files do not contain examples.
      MachineError: If a file cannot be read.
    """
    yield from map(_split_label, _create_source(files, spec, selection, batch_rows).in_order())


def list_batches(
    files: Sequence[str], spec: FeatureSpec, batch_rows: int, list_size: int, selection: Selection | None = None
) -> Iterator[Batch]:
    """Yield the rows of all lists once, in blocks of `list_blocks`; all rows are in memory.

    Args:
      files: The files of a split; see `find`.
      spec: Parsing spec of the transformed features, the label and the key of the list.
      batch_rows: Maximum number of rows in a batch, at least `list_size`.
      list_size: Number of rows in a block.
      selection: The rows to read; if None, all rows.

    Raises:
      InputError: If no row has a list.
      MachineError: If a file cannot be read.
    """
    source = _create_source(files, spec, selection)
    columns = source.load(InputShard())
    lists = list_blocks.divide(unstack(columns, source.columns)[feature_names.LIST_KEY], list_size)
    blocks = len(lists.lists)
    if not blocks:
        raise InputError(
            "model.list_column: expected rows with a list among those held out of the training, received none",
            "hold more rows out with training.validation, or name another column",
        )
    count = batch_rows // list_size
    for start in range(0, blocks, count):
        numbers = tf.range(start, min(start + count, blocks), dtype=tf.int64)
        yield _split_label(_gather_blocks(source, columns, lists, numbers))


_BLOCKS = (1 << 32) - 1
"""The last seed of the order of blocks, which differs from the numbers of the lists."""


def _gather_blocks(
    source: Source, columns: Stacked, lists: ListBlocks, blocks: tf.Tensor, seeds: tf.Tensor | None = None
) -> Columns:
    """Return the rows of blocks; see `ListBlocks.select`."""
    rows, is_present = lists.select(blocks, seeds)
    gathered = unstack({key: tf.gather(column, rows) for key, column in columns.items()}, source.columns)
    return list_blocks.mark_padding(gathered, is_present)


def size(files: Sequence[str], spec: FeatureSpec) -> int:
    """Return the maximum memory of the examples of a split, in bytes.

    Args:
      files: The files of the split; see `find`.
      spec: Parsing spec of the transformed features and the label.
    """
    return _create_source(files, spec).memory()


def _load(source: Source, shard: InputShard, pixels: PixelCache | None) -> Stacked:
    """Load the examples of a shard; with `pixels`, decode the images, several at a time."""
    stacked = source.load(shard)
    if pixels is None:
        return stacked
    return stack(tf.function(lambda rows: pixels.pack(unstack(rows, source.columns)), autograph=False)(stacked))


def _avoid_copies(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Prevent iterators from copying the dataset's tensors, which they do to optimize its graph."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    return dataset.with_options(options)


def _create_source(
    files: Sequence[str], spec: FeatureSpec, selection: Selection | None = None, batch_rows: int = 1
) -> Source:
    return (ParquetSource if is_parquet(files[0]) else TfrecordSource)(files, spec, selection, batch_rows)


def _keeps_in_memory(source: Source, config: TrainingConfig, copies: int = 1) -> bool:
    if config.cache != "auto":
        return config.cache == "memory"
    # Count the examples of all workers. Workers on one machine share its memory; on several machines each has more.
    return source.memory() * copies <= _compute_most_bytes(config)


def _compute_most_bytes(config: TrainingConfig) -> float:
    """Return the maximum size of the examples that `cache: auto` keeps in memory, in bytes."""
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
