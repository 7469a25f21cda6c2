"""Tests of the input pipeline: an epoch has every row of a shard once, and a restart continues the order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from pyarrow import parquet

from components.base.errors import InputError, MachineError, find
from components.features import feature_names
from components.trainer import input_pipeline, parquet_source
from components.trainer.cluster.tf_config import Role
from components.trainer.config import TrainingConfig
from components.trainer.input_columns import InputShard
from components.trainer.input_pipeline import InputPipeline, PixelCache
from components.trainer.parquet_source import ParquetSource
from components.trainer.validation_part import By, Selection, ValidationPart, key_names
from tests.support.data.numbered_rows import SPEC, Format, assert_columns, row_end, values, write, write_parquet
from tests.support.runs.peak_memory import measure_growth

pytestmark = pytest.mark.both_lines

FORMATS = pytest.mark.parametrize("stored", ["parquet", pytest.param("tfrecord", marks=pytest.mark.extended)])
CACHES = pytest.mark.parametrize("cache", ["memory", "none"])


ELASTIC = {"memory_mb": 5, "strategy": {"kind": "parameter_server", "workers": 1, "max_workers": 2}}


def config(cache: Any, seed: int = 3) -> TrainingConfig:
    return TrainingConfig(cache=cache, shuffle_buffer=7, seed=seed)


def ids(
    files: list[str], cache: str, batches: int, batch_rows: int = 4, shard: InputShard | None = None, seed: int = 3
) -> list[list[int]]:
    dataset = InputPipeline(files, SPEC, config(cache, seed), batch_rows).dataset(shard or InputShard())
    return [features["id"].numpy().tolist() for features, _ in dataset.take(batches)]


def graph_of_ids(files: list[str], cache: str, batches: int, workers: int) -> Callable[[int, int], list[list[int]]]:
    """Return a function that maps a worker's index and start to the result of `ids`, with one graph for all shards."""

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([], tf.int64)] * 2)
    def in_a_graph(index: Any, start: Any) -> Any:
        iterator = iter(InputPipeline(files, SPEC, config(cache), 4).dataset(InputShard(index, workers, start)))
        return tf.stack([next(iterator)[0]["id"] for _ in range(batches)])

    return lambda index, start: in_a_graph(index, start).numpy().tolist()


@FORMATS
@CACHES
def test_epoch_has_every_row_once_in_a_new_order(tmp_path: Path, stored: Format, cache: str) -> None:
    files = write(tmp_path, 20, 3, stored)
    batches = ids(files, cache, 15)
    epochs = [list(chain(*batches[first : first + 5])) for first in (0, 5, 10)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(20))] * 3
    assert len({tuple(epoch) for epoch in [*epochs, list(range(20))]}) == 4
    assert ids(files, cache, 15) == batches
    assert ids(files, cache, 15, seed=4) != batches


@FORMATS
@CACHES
def test_values_of_a_row_stay_together(tmp_path: Path, stored: Format, cache: str) -> None:
    files = write(tmp_path, 23, 2, stored)
    dataset = InputPipeline(files, SPEC, config(cache), 5).dataset(InputShard())
    for features, label in dataset.take(6):
        assert_columns(features, label, features["id"].numpy().tolist())


@FORMATS
@CACHES
def test_batches_are_decoded_and_augmented_with_different_seeds(tmp_path: Path, stored: Format, cache: str) -> None:
    files = write(tmp_path, 24, 2, stored)

    def decode(features: dict[str, Any]) -> dict[str, Any]:
        return {"text": tf.strings.to_number(features["text"]), "id": features["id"]}

    def augment(batch: Any, seed: tf.Tensor) -> Any:
        features, label = batch
        return {**features, "seed": tf.stack([seed] * 4)}, label

    def batches(index: int, start: int, count: int) -> list[tuple[int, ...]]:
        pipeline = InputPipeline(files, SPEC, config(cache), 4, decode=decode, augment=augment)
        augmentation_seeds = []
        for features, _ in pipeline.dataset(InputShard(index, 2, start)).take(count):
            np.testing.assert_array_equal(features["text"], features["id"])
            augmentation_seeds.append(tuple(features["seed"].numpy()[0]))
        return augmentation_seeds

    first, second = batches(0, 0, 5), batches(1, 0, 5)
    assert len({*first, *second}) == 10, "no two batches of two workers have the same changes"
    assert {seed for seed, _ in first} == {3}
    assert batches(1, 2, 3) == second[2:]


def images_of_text(packed: list[int]) -> dict[str, Any]:
    """Return arguments of an InputPipeline that decode `text` as an image of two pixels.

    Packing an image appends the rank of its tensor to `packed`.
    """

    def pixels(features: dict[str, Any], dtype: tf.DType) -> dict[str, Any]:
        numbers = tf.cast(tf.strings.to_number(features["text"]), dtype)
        return {**features, "text": tf.stack([numbers, numbers + 1], axis=1)}

    def pack(features: dict[str, Any]) -> dict[str, Any]:
        packed.append(features["text"].shape.rank)
        return pixels(features, tf.uint8)

    def unpack(features: dict[str, Any]) -> dict[str, Any]:
        return {**features, "text": tf.cast(features["text"], tf.float32) / 255}

    return {
        "decode": lambda features: unpack(pixels(features, tf.float32)),
        "augment": lambda batch, seed: ({**batch[0], "seed": tf.stack([seed] * 4)}, *batch[1:]),
        "pixel_cache": PixelCache(pack, unpack, 2),
    }


def assert_same(batch: Any, expected: Any) -> None:
    tf.nest.assert_same_structure(batch, expected)
    for actual_tensor, expected_tensor in zip(
        *(tf.nest.flatten(structure, expand_composites=True) for structure in (batch, expected)), strict=True
    ):
        np.testing.assert_array_equal(actual_tensor, expected_tensor)


@FORMATS
def test_global_seed_does_not_change_the_order(tmp_path: Path, stored: Format) -> None:
    files = write(tmp_path, 20, 3, stored)
    read = []
    for seed in (0, 5):
        tf.random.set_seed(seed)
        read.append(ids(files, "none", 5))
    tf.random.set_seed(1)
    assert read[0] == read[1]


@pytest.mark.parametrize("stored", ["parquet", pytest.param("tfrecord", marks=pytest.mark.extended)])
def test_images_cached_decoded_or_encoded_give_the_same_batches(tmp_path: Path, stored: Format) -> None:
    files, packed = write(tmp_path, 37, 3, stored), list[int]()
    pipelines = [
        InputPipeline(files, SPEC, config(cache), 4, **images_of_text(packed)) for cache in ("pixels", "memory")
    ]
    for shard in (InputShard(), InputShard(1, 2, 3)):
        for batch, expected in zip(*(pipeline.dataset(shard).take(12) for pipeline in pipelines), strict=True):
            assert_same(batch, expected)
    assert packed == [1, 1], "once for each shard"
    assigned = [pipeline.assign() for pipeline in pipelines]
    examples = [next(iter(batches.examples())) for batches in assigned]
    for number in (3, 12):
        pair = [
            batches.batch(held_rows, tf.constant(number, tf.int64))
            for batches, held_rows in zip(assigned, examples, strict=True)
        ]
        assert_same(*pair)


@FORMATS
@pytest.mark.parametrize(
    ("cache", "memory", "steps", "kept"),
    [
        ("auto", 1 << 40, 50, True),
        ("auto", 1 << 40, 49, False),
        ("auto", 4 * 2 * 100 * 1000 - 1, 50, False),
        ("pixels", 1, 1, True),
        ("memory", 1 << 40, 50, False),
        ("none", 1 << 40, 50, False),
    ],
)
def test_auto_keeps_decoded_images_if_they_fit_and_are_read_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: Format, cache: Any, memory: int, steps: int, kept: bool
) -> None:
    source = input_pipeline._create_source(write(tmp_path, 100, 1, stored), SPEC)
    monkeypatch.setattr(input_pipeline.os, "sysconf", {"SC_PHYS_PAGES": memory, "SC_PAGE_SIZE": 1}.__getitem__)
    pixel_cache = PixelCache(dict, dict, 1000)
    training = TrainingConfig(cache=cache, steps=steps, batch_size=4)
    pipeline = InputPipeline([], SPEC, training, 4, pixel_cache=pixel_cache)
    assert (pipeline._choose_pixel_cache(source) is pixel_cache) is kept
    traced: list[PixelCache | None] = []

    @tf.function(autograph=False)
    def in_a_graph() -> None:
        traced.append(pipeline._choose_pixel_cache(source))

    in_a_graph()
    assert traced == [pixel_cache if kept else None], "as the workers of a parameter server decide"
    assert InputPipeline([], SPEC, training, 4)._choose_pixel_cache(source) is None


@FORMATS
@CACHES
def test_weight_of_a_row_follows_its_label(tmp_path: Path, stored: Format, cache: str) -> None:
    # Any column can be the weight; in SPEC it is a feature.
    files = write(tmp_path, 23, 2, stored)
    spec = {name: SPEC[name] for name in ("id", "size", feature_names.LABEL)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feature_names, "WEIGHT", "size")
        batches = [
            *InputPipeline(files, spec, config(cache), 5).dataset(InputShard()).take(6),
            *input_pipeline.evaluation_batches(files, spec, 5),
        ]
    for features, label, weight in batches:
        assert set(features) == {"id"}
        np.testing.assert_array_equal(weight, features["id"] / 2)
        np.testing.assert_array_equal(label[:, 0], features["id"] % 2)


def test_both_formats_give_the_same_batches_from_memory(tmp_path: Path) -> None:
    batches = []
    for stored in ("parquet", "tfrecord"):
        (tmp_path / stored).mkdir()
        # Write one file: several TFRecord files would be read in turns, which changes the order of the rows.
        batches.append(ids(write(tmp_path / stored, 37, 1, stored), "memory", 12, shard=InputShard(1, 2)))
    assert batches[0] == batches[1]


@FORMATS
@CACHES
@pytest.mark.parametrize("files", [1, pytest.param(16, marks=pytest.mark.extended)])
@pytest.mark.parametrize("workers", [pytest.param(2, marks=pytest.mark.extended), 8])
def test_each_row_is_in_the_shard_of_one_worker(
    tmp_path: Path, stored: Format, cache: str, files: int, workers: int
) -> None:
    """Also cover one file with fewer row groups than there are workers."""
    paths, rows = write(tmp_path, 32, files, stored), 32 // workers
    read_shard = graph_of_ids(paths, cache, rows // 4, workers)
    shards = [list(chain(*read_shard(index, 0))) for index in range(workers)]
    assert [len(set(shard)) for shard in shards] == [rows] * workers
    assert sorted(chain(*shards)) == list(range(32))


@FORMATS
@CACHES
@pytest.mark.parametrize("files", [1, pytest.param(16, marks=pytest.mark.extended)])
def test_restart_continues_with_the_next_batch(tmp_path: Path, stored: Format, cache: str, files: int) -> None:
    paths = write(tmp_path, 37, files, stored)
    expected = ids(paths, cache, 17, shard=InputShard(1, 2))
    assert ids(paths, cache, 4, shard=InputShard(1, 2, 5)) == expected[5:9]
    from_start = graph_of_ids(paths, cache, 4, 2)
    for start in (1, 13):
        assert from_start(1, start) == expected[start : start + 4]


@FORMATS
@CACHES
def test_one_graph_serves_all_workers(tmp_path: Path, stored: Format, cache: str) -> None:
    """With a parameter server, index and start are tensors that each worker evaluates itself."""
    files = write(tmp_path, 32, 1, stored)

    @tf.function(autograph=False)
    def first(index: Any, start: Any) -> Any:
        dataset = InputPipeline(files, SPEC, config(cache), 4).dataset(InputShard(index, 2, start))
        return next(iter(dataset))[0]["id"]

    for index, start in ((0, 0), (1, 0), (1, 5)):
        expected = ids(files, cache, 1, shard=InputShard(index, 2, start))[0]
        assert first(tf.constant(index, tf.int64), tf.constant(start, tf.int64)).numpy().tolist() == expected


@CACHES
def test_any_worker_computes_the_batch_that_it_is_assigned(tmp_path: Path, cache: str) -> None:
    files = write(tmp_path, 37, 3, "parquet")
    batches = InputPipeline(files, SPEC, config(cache), 4).assign()
    (examples,) = batches.examples().take(1)
    expected = ids(files, cache, 20)
    # The order in which two workers request batches if one of them is slower.
    for number in (0, 2, 3, 1, 19, 10):
        features, label = batches.batch(examples, tf.constant(number, tf.int64))
        assert features["id"].numpy().tolist() == expected[number]
        assert_columns(features, label, expected[number])


def test_batches_of_tfrecords_can_only_be_assigned_from_memory(tmp_path: Path) -> None:
    batches = InputPipeline(write(tmp_path, 8, 1), SPEC, config("none"), 4).assign()
    with pytest.raises(InputError, match="expected examples in Parquet files or in memory") as raised:
        batches.batch(0, tf.constant(0, tf.int64))
    assert "training.cache: memory" in raised.value.remedy


@FORMATS
@CACHES
def test_batch_may_be_larger_than_an_epoch(tmp_path: Path, stored: Format, cache: str) -> None:
    [batch] = ids(write(tmp_path, 5, 1, stored), cache, 1, batch_rows=10)
    assert Counter(batch) == Counter([*range(5)] * 2)


@FORMATS
def test_evaluation_reads_every_row_once_in_order(tmp_path: Path, stored: Format) -> None:
    rows: list[int] = []
    for features, label in input_pipeline.evaluation_batches(write(tmp_path, 21, 3, stored), SPEC, 4):
        batch = features["id"].numpy().tolist()
        assert_columns(features, label, batch)
        assert len(batch) <= 4
        rows += batch
    assert sorted(rows) == list(range(21))
    if stored == "parquet":
        assert rows == list(range(21))


@FORMATS
@pytest.mark.parametrize(("memory", "cached"), [(1 << 40, True), (1 << 10, False)])
def test_auto_caches_examples_that_fit_into_a_quarter_of_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: Format, memory: int, cached: bool
) -> None:
    source = input_pipeline._create_source(write(tmp_path, 100, 1, stored), SPEC)
    monkeypatch.setattr(input_pipeline.os, "sysconf", {"SC_PHYS_PAGES": memory, "SC_PAGE_SIZE": 1}.__getitem__)
    assert input_pipeline._keeps_in_memory(source, config("auto")) is cached
    assert input_pipeline._keeps_in_memory(source, config("memory"))
    assert not input_pipeline._keeps_in_memory(source, config("none"))


def test_auto_caches_examples_that_fit_into_memory_mb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = input_pipeline._create_source(write(tmp_path, 100, 1, "parquet"), SPEC)
    monkeypatch.setattr(type(source), "memory", lambda self: 3 << 20)
    for memory_mb, copies, cached in ((3, 1, True), (2, 1, False), (3, 2, False), (6, 2, True)):
        training = TrainingConfig(memory_mb=memory_mb)
        assert input_pipeline._keeps_in_memory(source, training, copies) is cached


@pytest.mark.parametrize(("host", "is_held"), [("127.0.0.1", False), ("worker-0.train", True)])
def test_memory_is_divided_among_elastic_workers_on_the_same_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, is_held: bool
) -> None:
    pipeline = InputPipeline(write(tmp_path, 100, 1, "parquet"), SPEC, TrainingConfig.model_validate(ELASTIC), 4)
    monkeypatch.setattr(ParquetSource, "memory", lambda self: 3 << 20)
    monkeypatch.setenv("TF_CONFIG", Role("worker", 0, {"worker": (f"{host}:2222",)}).tf_config)
    (examples,) = pipeline.assign().examples().take(1)
    assert isinstance(examples, dict) is is_held


@pytest.mark.parametrize(("row_mb", "rows"), [(0.001, 500), (0.1, 20), (8, 1)])
def test_shuffle_buffer_has_fewer_rows_if_rows_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row_mb: float, rows: int
) -> None:
    source = ParquetSource(write(tmp_path, 100, 1, "parquet"), SPEC, batch_rows=4)
    monkeypatch.setattr(ParquetSource, "memory", lambda self: int(100 * row_mb * 2**20))
    called: list[str] = []
    monkeypatch.setattr(parquet_source, "_call", lambda _, description, *rest: called.append(description) or [])
    monkeypatch.setattr(ParquetSource, "_to_columns", lambda *arguments: {})
    source.batch(tf.constant(0), TrainingConfig(memory_mb=4, shuffle_buffer=500))
    assert json.loads(called[0])["shuffle"]["buffer"] == rows


@pytest.mark.extended
@pytest.mark.parametrize("columns", [1, 200])
@pytest.mark.parametrize("assigned", [False, True])
def test_examples_are_held_in_memory_only_once(tmp_path: Path, assigned: bool, columns: int) -> None:
    """Cover one wide column and the same number of values in 200 columns, which the pipeline stacks."""
    rows, width = 100_000, 200 // columns
    names = [f"x{number}" for number in range(columns)]
    spec = {name: tf.io.FixedLenFeature([width] if width > 1 else [], tf.int64) for name in names}
    spec[feature_names.LABEL] = tf.io.FixedLenFeature([], tf.int64)
    numbers = pa.array(np.arange(rows * width))
    values = pa.LargeListArray.from_arrays(pa.array(np.arange(rows + 1) * width), numbers)
    label = pa.LargeListArray.from_arrays(pa.array(np.arange(rows + 1)), numbers[:rows])
    table = pa.table({**dict.fromkeys(names, values), feature_names.LABEL: label})
    parquet.write_table(table, tmp_path / "examples", row_group_size=10_000)
    del table
    pipeline = InputPipeline([str(tmp_path / "examples")], spec, config("memory"), 4)
    with measure_growth() as growth:
        iterator = iter(pipeline.assign().examples() if assigned else pipeline.dataset(InputShard()))
        next(iterator)
    # Reading also needs memory for a row group, with an offset for each value.
    assert growth.peak_bytes < rows * 200 * 8 * (1.6 if columns == 1 else 2)


def test_local_paths_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write(tmp_path, 4, 2)
    monkeypatch.chdir(tmp_path)
    assert input_pipeline.find(["examples-*"]) == files


@CACHES
def test_having_fewer_rows_than_workers_is_an_error(tmp_path: Path, cache: str) -> None:
    pipeline = InputPipeline(write(tmp_path, 3, 1, "parquet"), SPEC, config(cache), 4)
    with pytest.raises(InputError, match=r"an example for each worker \(4\), received 3"):
        pipeline.dataset(InputShard(0, 4))


def test_empty_split_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="expected files of transformed examples, received none"):
        input_pipeline.find([f"{tmp_path}/*"])
    path = str(tmp_path / "examples")
    write_parquet(path, [])
    with pytest.raises(InputError, match=r"an example for each worker \(1\), received 0"):
        InputPipeline([path], SPEC, config("memory"), 4).dataset(InputShard())
    with pytest.raises(InputError, match="received 0"):
        next(input_pipeline.evaluation_batches([path], SPEC, 4))


@CACHES
def test_error_of_the_reader_can_be_found_in_the_error_of_tensorflow(tmp_path: Path, cache: str) -> None:
    """TensorFlow only passes on the text of an exception. `find` recovers the PipelineError from it."""
    path = str(tmp_path / "examples")
    write_parquet(path, [values(1), {**values(2), "pixels": [1, 2]}])
    with pytest.raises(tf.errors.OpError) as raised:
        next(iter(InputPipeline([path], SPEC, config(cache), 4).dataset(InputShard())))
    error = find(raised.value)
    assert isinstance(error, MachineError)
    assert error.headline.startswith(f"{path}, column pixels: expected 3 values in every row")


@FORMATS
@CACHES
@pytest.mark.parametrize(
    "by", [*(pytest.param(by, marks=pytest.mark.extended) for by in ("row", "group", "time")), "origin"]
)
def test_training_and_validation_do_not_share_rows(tmp_path: Path, stored: Format, cache: str, by: By) -> None:
    files = write(tmp_path, 200, 3, stored, row_key=True)
    part = input_pipeline.validation_part(files, SPEC, TrainingConfig(validation=0.25, seed=3), by)
    batches = input_pipeline.evaluation_batches(files, SPEC, 16, Selection(part, inside=True))
    validation_rows = list(chain(*(features["id"].numpy().tolist() for features, _ in batches)))
    assert 20 < len(validation_rows) == len({*validation_rows}) < 80
    training_rows = sorted({*range(200)} - {*validation_rows})
    if by == "origin":
        training_rows = [row for row in training_rows if row_end(row) <= 1 + min(validation_rows) // 4]
        assert 120 < len(training_rows) < 200 - len(validation_rows)
    epoch = len(training_rows) // 2
    pipeline = InputPipeline(files, SPEC, config(cache), epoch, Selection(part, inside=False))
    read_rows: list[int] = []
    for index in range(2):
        [(features, _)] = pipeline.dataset(InputShard(index, 2)).take(1)
        read_rows += features["id"].numpy().tolist()
    # Each worker reads its whole shard. If the shards differ in size, one row is not read in this epoch.
    assert len(training_rows) - 1 <= len({*read_rows}) == len(read_rows)
    assert {*read_rows} <= {*training_rows}
    groups = [{row // 4 for row in rows} for rows in (validation_rows, training_rows)]
    assert bool(groups[0] & groups[1]) is (by == "row")
    if by in ("time", "origin"):
        assert min(validation_rows) > max(training_rows)


@pytest.mark.extended
@FORMATS
@CACHES
@pytest.mark.parametrize("by", ["row", pytest.param("group", marks=pytest.mark.extended)])
def test_row_has_the_same_fold_in_training_and_evaluation(tmp_path: Path, stored: Format, cache: str, by: By) -> None:
    files = write(tmp_path, 200, 3, stored, row_key=True)
    selection = Selection(input_pipeline.validation_part(files, SPEC, TrainingConfig(folds=4), by), inside=None)
    fold_by_row: dict[int, int] = {}
    for features, _ in input_pipeline.evaluation_batches(files, SPEC, 16, selection):
        fold_by_row |= dict(zip(features["id"].numpy(), features[feature_names.FOLD].numpy(), strict=True))
    assert sorted(fold_by_row) == list(range(200))
    sizes = np.bincount(list(fold_by_row.values()))
    assert len(sizes) == 4
    assert sizes.min() > 20
    pipeline = InputPipeline(files, SPEC, config(cache), 10, selection)
    for features, _ in pipeline.dataset(InputShard()).take(20):
        for row, fold in zip(features["id"].numpy(), features[feature_names.FOLD].numpy(), strict=True):
            assert fold_by_row[row] == fold
    folds_of_groups = {(row // 4, fold) for row, fold in fold_by_row.items()}
    assert (len(folds_of_groups) == 50) is (by == "group")


@FORMATS
@pytest.mark.parametrize("by", ["time", "origin"])
def test_folds_with_rolling_origins_are_read_with_their_keys(tmp_path: Path, stored: Format, by: By) -> None:
    files = write(tmp_path, 200, 3, stored, row_key=True)
    section = TrainingConfig(folds=3, validation=0.2)
    part = input_pipeline.validation_part(files, SPEC, section, by, can_roll=True)
    keys = {name: tf.io.FixedLenFeature([], tf.int64) for name in key_names(by)}
    batches = input_pipeline.evaluation_batches(files, {**SPEC, **keys}, 16, Selection(part, inside=None))
    names = ("id", feature_names.FOLD, *keys)
    columns = zip(*([features[name] for name in names] for features, _ in batches), strict=True)
    rows, folds, *read_keys = map(np.concatenate, columns)
    # Groups of four rows share a time. Half of the 50 groups is divided into three folds.
    np.testing.assert_array_equal(folds, np.searchsorted(part.borders, 1 + rows // 4, side="right") - 1)
    assert (sorted(rows), len({*folds})) == ([*range(200)], 4)
    ends = np.array([row_end(row) for row in rows])
    for fold, border in enumerate(part.borders):
        is_known = (1 + rows // 4 < border) & ((ends <= border) | (by == "time"))
        np.testing.assert_array_equal(part.mask_known(np.stack(read_keys, axis=1), fold), is_known)


@FORMATS
def test_validation_part_without_rows_is_an_error(tmp_path: Path, stored: Format) -> None:
    files = write(tmp_path, 3, 1, stored)
    nothing = Selection(ValidationPart(1e-12, 1), inside=True)
    with pytest.raises(InputError, match="expected an example"):
        list(input_pipeline.evaluation_batches(files, SPEC, 4, nothing))
