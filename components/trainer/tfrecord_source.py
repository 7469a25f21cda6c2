"""Transformed examples in gzip TFRecord files of tf.Examples, read and parsed by operations of TensorFlow."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from components.base.errors import InputError
from components.data.parallel_reads import READERS
from components.features import feature_names
from components.trainer.config import TrainingConfig
from components.trainer.input_columns import Columns, FeatureSpec, InputShard, Stacked, add_fold, stack
from components.trainer.validation_part import NOT_USED, Selection, ValidationPart, key_names

_UNPACKED = 12
"""Maximum bytes of a parsed example per byte of its compressed file; files that Transform writes need 4 to 9."""
_ALL = 1 << 40
_BLOCK = 256
_HASHES = 1 << 40
_NOT_FEATURES = (
    feature_names.LABEL,
    feature_names.WEIGHT,
    feature_names.ROW_KEY,
    feature_names.ROW_END,
    feature_names.LIST_KEY,
    feature_names.FOLD,
)
_FILES_PER_WORKER = 8
"""With fewer files per worker, records are distributed instead, because the sizes of a few files differ too much."""


@dataclass(frozen=True)
class TfrecordSource:
    """The examples of a split in gzip TFRecord files.

    Attributes:
      files: Paths of the files, at least one.
      spec: Parsing spec of the transformed features and the label.
      selection: The rows to read; if None, all rows. Rows are chosen by a hash of their features, without
        stratification by the label.
      batch_rows: Number of rows in a batch.
    """

    files: Sequence[str]
    spec: FeatureSpec
    selection: Selection | None = None
    batch_rows: int = 1

    @property
    def columns(self) -> FeatureSpec:
        """See input_pipeline.Source."""
        return add_fold(self.spec, self.selection)

    def memory(self) -> int:
        """Return the maximum memory of all parsed examples, in bytes."""
        return sum(int(tf.io.gfile.stat(file).length) for file in self.files) * _UNPACKED

    def rows(self) -> int:
        """Return the number of all examples; read the files."""
        # Run at once, even while a graph is traced.
        with tf.init_scope():
            return int(self._read_records().reduce(tf.constant(0, tf.int64), lambda count, _: count + 1))

    def load(self, shard: InputShard) -> Stacked:
        """Return the examples of one worker: every `count`-th row."""
        return stack(
            _select_shard(self._read_records(), shard).batch(_ALL).map(self._create_parser()).get_single_element()
        )

    def batches(self, shard: InputShard, config: TrainingConfig) -> tf.data.Dataset:
        """Return an infinite dataset of the shuffled batches of one worker, read from the files.

        The files are read in a new order in every epoch. Examples before the start, at most an epoch, are skipped.
        """
        seed, files = config.seed, tf.constant(self.files)
        by_file = len(self.files) >= _FILES_PER_WORKER * shard.count
        paths = files[shard.index :: shard.count] if by_file else files

        def epoch(number: tf.Tensor) -> tf.data.Dataset:
            # Set the seed of this function only. With seed 0, TensorFlow would compare the seed of `shuffle`, a tensor,
            # with 0.
            tf.random.set_seed(seed or 1)
            order = tf.random.experimental.stateless_shuffle(paths, tf.stack([number, seed]))
            # Read records in blocks: passing them on singly would cost several times as much as reading them.
            blocks = tf.data.Dataset.from_tensor_slices(order).interleave(
                lambda path: self._select_blocks(_open(path).batch(_BLOCK)),
                READERS,
                # Not AUTOTUNE, which may read a single file.
                num_parallel_calls=READERS,
                deterministic=True,
            )
            records = blocks.unbatch()
            selected = records if by_file else _select_shard(records, shard)
            return selected.shuffle(config.shuffle_buffer, seed=seed + number, reshuffle_each_iteration=False)

        def rows_of_an_epoch() -> tf.Tensor:
            records = self._select_records(_open(paths))
            selected = records if by_file else _select_shard(records, shard)
            return selected.reduce(tf.constant(0, tf.int64), lambda count, _: count + 1)

        start = tf.cast(shard.start, tf.int64) * self.batch_rows
        # Counting reads the complete shard, so it is limited to restarts.
        rows = tf.cond(start > 0, rows_of_an_epoch, lambda: tf.constant(1, tf.int64))
        records = tf.data.Dataset.counter(start // rows).flat_map(epoch).skip(start % rows)
        batches = records.batch(self.batch_rows, drop_remainder=True)
        return batches.map(self._create_parser(), tf.data.AUTOTUNE, deterministic=True)

    def batch(self, number: tf.Tensor, config: TrainingConfig) -> Columns:
        """Raise an error, because a TFRecord file can only be read from its beginning.

        Raises:
          InputError: Always.
        """
        raise InputError(
            "training.strategy.max_workers: expected examples in Parquet files or in memory, received TFRecords",
            "set training.cache: memory, or remove runtime.vectorised: false",
        )

    def in_order(self) -> Iterator[Columns]:
        """Yield every example once, in batches of `batch_rows`; the last batch may be smaller.

        Raises:
          InputError: If the files do not contain examples.
        """
        records = self._read_records().batch(self.batch_rows)
        batches = iter(records.map(self._create_parser(), tf.data.AUTOTUNE).prefetch(2))
        first = next(batches, None)
        if first is None:
            raise InputError(
                f"{self.files[0].rpartition('/')[0]}: expected an example, received none",
                "add data, or change data.split or training.validation",
            )
        yield from itertools.chain([first], batches)

    def keys(self, *names: str) -> Iterator[npt.NDArray[Any]]:
        """Yield a column, or the sums of several labels, for all rows of the files, in pieces.

        With several names, the columns are stacked; [rows, columns].
        """
        spec = {name: self._find_key_spec(name) for name in names}
        for piece in self._read_all().batch(_BLOCK).map(lambda block: tf.io.parse_example(block, spec)):
            values = [piece[name].numpy() for name in names]
            values = [column.sum(axis=1) if column.ndim > 1 else column for column in values]
            yield values[0] if len(values) == 1 else np.stack(values, axis=1)

    def _read_all(self) -> tf.data.Dataset:
        return tf.data.TFRecordDataset(
            self.files, compression_type="GZIP", buffer_size=1 << 20, num_parallel_reads=min(len(self.files), READERS)
        )

    def _read_records(self) -> tf.data.Dataset:
        return self._select_records(self._read_all())

    def _select_records(self, records: tf.data.Dataset) -> tf.data.Dataset:
        if self.selection is None or self.selection.inside is None:
            return records
        return self._select_blocks(records.batch(_BLOCK)).unbatch()

    def _find_key_spec(self, name: str) -> tf.io.FixedLenFeature:
        return self.spec.get(name) or tf.io.FixedLenFeature([], tf.int64)

    def _select_blocks(self, blocks: tf.data.Dataset) -> tf.data.Dataset:
        """Select the records of blocks that the selection reads."""
        if self.selection is None or self.selection.inside is None:
            return blocks
        part, inside = self.selection
        return blocks.map(lambda block: tf.boolean_mask(block, _is_read(self._compute_numbers(part, block), inside)))

    def _compute_numbers(self, part: ValidationPart, block: tf.Tensor) -> tf.Tensor:
        """Return the fold that each record is in, see `ValidationPart.numbers`."""
        texts = self._join_features(block)
        if part.by != "row":
            names = key_names(part.by)
            columns = tf.io.parse_example(block, {name: self._find_key_spec(name) for name in names})
            keys, *ends = (columns[name] for name in names)
            if part.by in ("time", "origin"):
                borders = tf.constant(list(part.borders), tf.int64)
                numbers = tf.searchsorted(borders, keys, side="right", out_type=tf.int64) - 1
                for end in [] if part.is_rolling else ends:
                    is_unknown = (numbers < 0) & (end > part.borders[0])
                    numbers = tf.where(is_unknown, tf.constant(NOT_USED, tf.int64), numbers)
                return numbers
            texts = tf.where(tf.equal(keys, feature_names.NO_ROW_KEY), texts, tf.strings.as_string(keys))
        hashes = tf.strings.to_hash_bucket_strong(texts, _HASHES, (part.seed, part.seed + 1))
        if part.folds > 1:
            return hashes // (_HASHES // part.folds + 1)
        return tf.cast(hashes < round(part.share * _HASHES), tf.int64) - 1

    def _join_features(self, block: tf.Tensor) -> tf.Tensor:
        """Return a text for each record that depends only on its features; string [rows].

        A hash of the complete record would depend on the label. Among rows with equal features, the validation part
        would then have other labels than the rows to train on.
        """
        spec = {name: kind for name, kind in self.spec.items() if name not in _NOT_FEATURES}
        if not spec:
            return block
        columns = tf.io.parse_example(block, spec)
        return tf.strings.join([_join_values(columns[name]) for name in sorted(columns)], "\x1e")

    def _create_parser(self) -> Callable[[tf.Tensor], Columns]:
        def parse(serialized: tf.Tensor) -> Columns:
            columns: Columns = tf.io.parse_example(serialized, self.spec)
            if self.selection and self.selection.inside is None:
                columns[feature_names.FOLD] = self._compute_numbers(self.selection.part, serialized)
            return columns

        return parse


def _is_read(numbers: tf.Tensor, inside: bool | None) -> tf.Tensor:
    """Return whether a selection reads records with these numbers, bool [rows]; see `ValidationPart.mask`."""
    return numbers >= 0 if inside else tf.equal(numbers, -1)


def _join_values(column: tf.Tensor | tf.SparseTensor | tf.RaggedTensor) -> tf.Tensor:
    """Return the values of a feature in each row as one text; string [rows]."""
    if isinstance(column, tf.SparseTensor):
        column = tf.RaggedTensor.from_sparse(column)
    if isinstance(column, tf.RaggedTensor):
        texts = column if column.dtype == tf.string else tf.ragged.map_flat_values(tf.strings.as_string, column)
        return tf.strings.reduce_join(texts, axis=-1, separator="\x1f")
    texts = column if column.dtype == tf.string else tf.strings.as_string(column)
    return tf.strings.reduce_join(tf.reshape(texts, [tf.shape(texts)[0], -1]), axis=-1, separator="\x1f")


def _open(paths: tf.Tensor) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(paths, compression_type="GZIP", buffer_size=1 << 20)


def _select_shard(records: tf.data.Dataset, shard: InputShard) -> tf.data.Dataset:
    return records if shard.count == 1 else records.shard(shard.count, shard.index)
