"""The input pipeline: every row of a worker's shard once in an epoch, in an order that a restart continues."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.features import feature_names
from components.trainer import input_pipeline
from components.trainer.config import TrainingConfig
from components.trainer.input_pipeline import InputPipeline, InputShard

SPEC = {
    "id": tf.io.FixedLenFeature([], tf.int64),
    "size": tf.io.FixedLenFeature([], tf.float32),
    "pixels": tf.io.FixedLenFeature([3], tf.float32),
    feature_names.LABEL: tf.io.FixedLenFeature([], tf.float32),
}
CACHES = pytest.mark.parametrize("cache", ["memory", "none"])


def write(folder: Path, rows: int, files: int) -> list[str]:
    options = tf.io.TFRecordOptions(compression_type="GZIP")
    paths = [str(folder / f"examples-{number:05}.gz") for number in range(files)]
    writers = [tf.io.TFRecordWriter(path, options) for path in paths]
    for row in range(rows):
        feature = {
            "id": tf.train.Feature(int64_list=tf.train.Int64List(value=[row])),
            "size": tf.train.Feature(float_list=tf.train.FloatList(value=[row / 2])),
            "pixels": tf.train.Feature(float_list=tf.train.FloatList(value=[row, 0, 1])),
            feature_names.LABEL: tf.train.Feature(float_list=tf.train.FloatList(value=[row % 2])),
        }
        example = tf.train.Example(features=tf.train.Features(feature=feature))
        writers[row * files // rows].write(example.SerializeToString())
    for writer in writers:
        writer.close()
    return paths


def config(cache: Any) -> TrainingConfig:
    return TrainingConfig(cache=cache, shuffle_buffer=7, seed=3)


def ids(
    files: list[str], cache: str, batches: int, batch_size: int = 4, shard: InputShard | None = None
) -> list[list[int]]:
    dataset = InputPipeline(files, SPEC, config(cache), batch_size).dataset(shard or InputShard())
    return [features["id"].numpy().tolist() for features, _ in dataset.take(batches)]


@CACHES
def test_epoch_has_every_row_once_and_each_its_own_order(tmp_path: Path, cache: str) -> None:
    files = write(tmp_path, 20, 3)
    batches = ids(files, cache, 15)
    epochs = [list(chain(*batches[first : first + 5])) for first in (0, 5, 10)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(20))] * 3
    assert len({tuple(epoch) for epoch in [*epochs, list(range(20))]}) == 4


@CACHES
def test_row_keeps_its_columns(tmp_path: Path, cache: str) -> None:
    files = write(tmp_path, 10, 1)
    features, label = next(iter(InputPipeline(files, SPEC, config(cache), 5).dataset(InputShard())))
    assert set(features) == {"id", "size", "pixels"}
    row = features["id"].numpy()
    np.testing.assert_array_equal(features["size"], (row / 2).astype(np.float32))
    np.testing.assert_array_equal(features["pixels"], np.stack([row, 0 * row, 0 * row + 1], 1).astype(np.float32))
    np.testing.assert_array_equal(label, (row % 2).astype(np.float32)[:, None])
    assert (features["id"].dtype, label.dtype) == (tf.int64, tf.float32)


@CACHES
@pytest.mark.parametrize("files", [1, 16])
def test_each_row_is_in_the_shard_of_one_worker(tmp_path: Path, cache: str, files: int) -> None:
    paths = write(tmp_path, 32, files)
    shards = [list(chain(*ids(paths, cache, 4, shard=InputShard(index, 2)))) for index in range(2)]
    assert [len(set(shard)) for shard in shards] == [16, 16]
    assert sorted(chain(*shards)) == list(range(32))


@CACHES
@pytest.mark.parametrize("files", [1, 16])
@pytest.mark.parametrize("start", [1, 3, 5, 13])
def test_restart_continues_with_the_next_batch(tmp_path: Path, cache: str, files: int, start: int) -> None:
    paths = write(tmp_path, 37, files)
    expected = ids(paths, cache, start + 6, shard=InputShard(1, 2))
    assert ids(paths, cache, 6, shard=InputShard(1, 2, start)) == expected[start:]


@CACHES
def test_one_graph_serves_all_workers(tmp_path: Path, cache: str) -> None:
    """Under a parameter server, index and start are tensors that each worker evaluates itself."""
    files = write(tmp_path, 32, 1)

    @tf.function(autograph=False)
    def first(index: Any, start: Any) -> Any:
        dataset = InputPipeline(files, SPEC, config(cache), 4).dataset(InputShard(index, 2, start))
        return next(iter(dataset))[0]["id"]

    for index, start in ((0, 0), (1, 0), (1, 5)):
        expected = ids(files, cache, 1, shard=InputShard(index, 2, start))[0]
        assert first(tf.constant(index, tf.int64), tf.constant(start, tf.int64)).numpy().tolist() == expected


@CACHES
def test_batch_may_be_larger_than_an_epoch(tmp_path: Path, cache: str) -> None:
    [batch] = ids(write(tmp_path, 5, 1), cache, 1, batch_size=10)
    assert Counter(batch) == Counter([*range(5)] * 2)


def test_evaluation_has_every_row_once_in_order(tmp_path: Path) -> None:
    dataset = input_pipeline.evaluation_batches(write(tmp_path, 10, 3), SPEC, 4)
    batches = [features["id"].numpy().tolist() for features, _ in dataset]
    assert sorted(chain(*batches)) == list(range(10))
    assert [len(batch) for batch in batches] == [4, 4, 2]


@pytest.mark.parametrize(("memory", "cached"), [(1 << 40, True), (1 << 10, False)])
def test_auto_caches_examples_that_fit_into_a_quarter_of_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int, cached: bool
) -> None:
    files = write(tmp_path, 100, 1)
    monkeypatch.setattr(input_pipeline.os, "sysconf", {"SC_PHYS_PAGES": memory, "SC_PAGE_SIZE": 1}.__getitem__)
    assert input_pipeline._in_memory(files, "auto") is cached
    assert input_pipeline._in_memory(files, "memory")
    assert not input_pipeline._in_memory(files, "none")


def test_local_paths_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write(tmp_path, 4, 2)
    monkeypatch.chdir(tmp_path)
    assert input_pipeline.find(["examples-*"]) == files
