"""Transformed examples in gzip TFRecord files of tf.Examples, read and parsed by operations of TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import tensorflow as tf

from components.trainer.config import TrainingConfig
from components.trainer.input_columns import Columns, FeatureSpec, InputShard

_UNPACKED = 12
"""Bytes of a parsed example per byte of its compressed file, at most; in the files that Transform writes, 4 to 9."""
_READERS = 4
"""Files read in parallel."""
_ALL = 1 << 40
_BLOCK = 256
_FILES_PER_WORKER = 8
"""With fewer files per worker, records are distributed instead: shards of few whole files would differ too much."""


@dataclass(frozen=True)
class TfrecordSource:
    """The examples of a split in gzip TFRecord files.

    Attributes:
      files: at least one.
      spec: parsing spec of the transformed features and the label.
    """

    files: Sequence[str]
    spec: FeatureSpec

    def memory(self) -> int:
        """Returns how many bytes all parsed examples take in memory, at most."""
        return sum(int(tf.io.gfile.stat(file).length) for file in self.files) * _UNPACKED

    def load(self, shard: InputShard) -> Columns:
        """Returns the examples of one worker: every `count`-th row."""
        columns: Columns = _records_of(self._records(), shard).batch(_ALL).map(self._parser()).get_single_element()
        return columns

    def batches(self, shard: InputShard, config: TrainingConfig, batch_size: int) -> tf.data.Dataset:
        """Returns the shuffled batches of one worker, read from the files, without end.

        The files are read in a new order in every epoch; examples before the start, at most an epoch, are skipped.
        """
        seed, files = config.seed, tf.constant(self.files)
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
            return own.shuffle(config.shuffle_buffer, seed=seed + number, reshuffle_each_iteration=False)

        def rows_of_an_epoch() -> tf.Tensor:
            own = _file(paths) if by_file else _records_of(_file(paths), shard)
            return own.reduce(tf.constant(0, tf.int64), lambda count, _: count + 1)

        start = tf.cast(shard.start, tf.int64) * batch_size
        # Counting reads the complete shard, so only a restart does it.
        rows = tf.cond(start > 0, rows_of_an_epoch, lambda: tf.constant(1, tf.int64))
        records = tf.data.Dataset.counter(start // rows).flat_map(epoch).skip(start % rows)
        batches = records.batch(batch_size, drop_remainder=True)
        return batches.map(self._parser(), tf.data.AUTOTUNE, deterministic=True)

    def in_order(self, batch_size: int) -> Iterator[Columns]:
        """Yields every example once, in batches of `batch_size`; the last one may be smaller."""
        yield from self._records().batch(batch_size).map(self._parser(), tf.data.AUTOTUNE).prefetch(2)

    def _records(self) -> tf.data.Dataset:
        return tf.data.TFRecordDataset(
            self.files, compression_type="GZIP", buffer_size=1 << 20, num_parallel_reads=min(len(self.files), _READERS)
        )

    def _parser(self) -> Callable[[tf.Tensor], Columns]:
        return lambda serialized: tf.io.parse_example(serialized, self.spec)


def _file(paths: tf.Tensor) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(paths, compression_type="GZIP", buffer_size=1 << 20)


def _records_of(records: tf.data.Dataset, shard: InputShard) -> tf.data.Dataset:
    return records if shard.count == 1 else records.shard(shard.count, shard.index)
