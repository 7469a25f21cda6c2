"""Transformed examples as a tf.data pipeline: each worker its own share, from any step on, parsed a batch at a time.

What a worker sees as its batch number k follows from the seed, its share and k alone, so training goes on after a
restart where its checkpoint was, whether the examples are kept in memory or read from the files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from components.features import names
from components.trainer.config import TrainingConfig

_UNPACKED = 12
"""Bytes of a parsed example for one byte of its compressed file, at most; of ours it is 4 to 9."""
_READERS = 4
"""Files read side by side."""
_ALL = 1 << 40
_BLOCK = 256
_FILES_PER_WORKER = 8
"""With fewer files, records are dealt out instead: whole files would be too uneven a share."""


@dataclass(frozen=True)
class Share:
    """What one worker reads, and from where on.

    Attributes:
      index: the worker's number; a tensor where one graph serves all workers.
      count: workers.
      start: the first batch, counted from the beginning of training; a tensor likewise.
    """

    index: Any = 0
    count: int = 1
    start: Any = 0


def find(patterns: Sequence[str]) -> list[str]:
    """The files of a split, sorted, by paths that hold in any working directory."""
    found = sorted(name for pattern in patterns for name in tf.io.gfile.glob(pattern))
    # Path would make one slash of the two in gs://.
    return [name if "://" in name else str(Path(name).absolute()) for name in found]


def examples(files: Sequence[str], spec: dict[str, Any], batch_size: int) -> Any:
    """Every example once, in file order: for evaluation.

    Args:
      files: gzip TFRecord files of tf.Example.
      spec: parsing spec of the transformed features, the label among them.
      batch_size: examples per batch; the last may be smaller.

    Returns:
      A dataset of (features: dict of [batch, …] tensors, label: [batch, 1]).
    """
    return _records(files).batch(batch_size).map(_parse(spec), tf.data.AUTOTUNE).map(_apart).prefetch(2)


def training(files: Sequence[str], spec: dict[str, Any], batch_size: int, config: TrainingConfig, share: Share) -> Any:
    """An endless stream of shuffled batches, each full, of a worker's share of the examples.

    Args:
      files: gzip TFRecord files of tf.Example.
      spec: parsing spec of the transformed features, the label among them.
      batch_size: examples per batch, of one replica.
      config: seed, cache and buffer.
      share: what to read, and from which batch on.

    Returns:
      A dataset like that of `examples`, without end.
    """
    read = _from_memory if _in_memory(files, config.cache) else _from_files
    return read(files, spec, batch_size, config, share).map(_apart).prefetch(tf.data.AUTOTUNE)


def _in_memory(files: Sequence[str], cache: str) -> bool:
    if cache != "auto":
        return cache == "memory"
    # Of all workers: on one machine they share its memory, and elsewhere each has more of it.
    size = sum(tf.io.gfile.stat(file).length for file in files) * _UNPACKED
    return bool(size <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 4)


def _from_memory(
    files: Sequence[str], spec: dict[str, Any], batch_size: int, config: TrainingConfig, share: Share
) -> Any:
    """Parses the share once, and draws batches from it by their row numbers.

    The order of an epoch is a pseudo-random permutation that is computed row by row (`RandomIndexShuffle`, see
    tf.random.experimental.index_shuffle), so a batch does not depend on the one before it.
    """
    whole = _deal(_records(files), share).batch(_ALL).map(_parse(spec)).map(_stack)
    columns = whole.get_single_element()
    rows = tf.shape(next(iter(columns.values())), out_type=tf.int64)[0]
    numbers = tf.range(batch_size, dtype=tf.int64)

    def batch(number: Any) -> dict[str, Any]:
        position = number * batch_size + numbers
        epoch = position // rows
        seeds = tf.fill([batch_size], tf.constant(config.seed, tf.int64))
        seed = tf.cast(tf.stack([seeds, epoch, tf.zeros_like(epoch)], axis=1), tf.uint32)
        row = tf.raw_ops.RandomIndexShuffle(index=position % rows, seed=seed, max_index=rows - 1, rounds=4)
        return _unstack({key: tf.gather(column, row) for key, column in columns.items()}, spec)

    return tf.data.Dataset.counter(tf.cast(share.start, tf.int64)).map(batch, tf.data.AUTOTUNE, deterministic=True)


def _from_files(
    files: Sequence[str], spec: dict[str, Any], batch_size: int, config: TrainingConfig, share: Share
) -> Any:
    """Reads the files in a new order in every epoch; what lies before the start is read past, an epoch at most."""
    by_file = len(files) >= _FILES_PER_WORKER * share.count
    paths = tf.constant(files)[share.index :: share.count] if by_file else tf.constant(files)

    def epoch(number: Any) -> Any:
        order = tf.random.experimental.stateless_shuffle(paths, tf.stack([number, config.seed]))
        # A reader hands its records over by the block: one by one costs several times as much as reading them.
        blocks = tf.data.Dataset.from_tensor_slices(order).interleave(
            lambda path: _file(path).batch(_BLOCK), _READERS, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
        )
        records = blocks.unbatch()
        dealt = records if by_file else _deal(records, share)
        return dealt.shuffle(config.shuffle_buffer, seed=config.seed + number, reshuffle_each_iteration=False)

    def rows_of_an_epoch() -> Any:
        mine = _file(paths) if by_file else _deal(_file(paths), share)
        return mine.reduce(tf.constant(0, tf.int64), lambda count, _: count + 1)

    start = tf.cast(share.start, tf.int64) * batch_size
    # Counting reads the whole share, so only a restart does it.
    rows = tf.cond(start > 0, rows_of_an_epoch, lambda: tf.constant(1, tf.int64))
    records = tf.data.Dataset.counter(start // rows).flat_map(epoch).skip(start % rows)
    return records.batch(batch_size, drop_remainder=True).map(_parse(spec), tf.data.AUTOTUNE, deterministic=True)


def _file(paths: Any) -> Any:
    return tf.data.TFRecordDataset(paths, compression_type="GZIP", buffer_size=1 << 20)


def _records(files: Any) -> Any:
    return tf.data.TFRecordDataset(
        files, compression_type="GZIP", buffer_size=1 << 20, num_parallel_reads=min(len(files), _READERS)
    )


def _deal(records: Any, share: Share) -> Any:
    return records if share.count == 1 else records.shard(share.count, share.index)


def _parse(spec: dict[str, Any]) -> Callable[[Any], dict[str, Any]]:
    return lambda serialized: tf.io.parse_example(serialized, spec)


def _apart(columns: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    features = dict(columns)
    return features, tf.reshape(features.pop(names.LABEL), [-1, 1])


def _stack(columns: dict[str, Any]) -> dict[str, Any]:
    """All columns of one value per row as one matrix for each dtype, since a row is found faster than its values."""
    stacked = {name: values for name, values in columns.items() if values.shape.rank > 1}
    for dtype, together in _narrow({name: values for name, values in columns.items() if name not in stacked}).items():
        stacked[dtype] = tf.stack([columns[name] for name in together], axis=1)
    return stacked


def _unstack(stacked: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    columns = {name: values for name, values in stacked.items() if name in spec}
    for dtype, together in _narrow({name: each for name, each in spec.items() if name not in columns}).items():
        columns.update(zip(together, tf.unstack(stacked[dtype], len(together), axis=1), strict=True))
    return columns


def _narrow(columns: dict[str, Any]) -> dict[str, list[str]]:
    """Names by dtype; the key is no name of a feature."""
    together: dict[str, list[str]] = {}
    for name in sorted(columns):
        together.setdefault(f"/{columns[name].dtype.name}", []).append(name)
    return together
