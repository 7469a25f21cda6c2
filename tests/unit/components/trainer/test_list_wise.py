"""The list-wise loss against its closed form, and batches of whole lists."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.base.errors import InputError
from components.features import feature_names
from components.models.config import ModelConfig
from components.trainer import input_pipeline, list_statistics
from components.trainer.config import TrainingConfig
from components.trainer.input_columns import InputShard
from components.trainer.input_pipeline import InputPipeline
from tests.support.data.tolerances import Tolerance
from tests.unit.components.trainer.test_losses import BINARY, head

SPEC = {
    "id": tf.io.FixedLenFeature([], tf.int64),
    feature_names.LABEL: tf.io.FixedLenFeature([], tf.int64),
    feature_names.LIST_KEY: tf.io.FixedLenFeature([], tf.int64),
}
NEAR = Tolerance(1e-6, 1e-5)
SIZES = {11: 1, 12: 3, 13: 4, 14: 10, 0: 2}
"""Key of a list → number of its rows. The last rows are not in a list."""
KEYS = np.random.default_rng(2).permutation(np.repeat([*SIZES], [*SIZES.values()]))
LABELS = (np.arange(len(KEYS)) % 3 == 0).astype(np.int64)
SIZE = 4


def write_rows(folder: Path) -> list[str]:
    import pyarrow as pa
    from pyarrow import parquet

    columns = {"id": np.arange(len(KEYS)), feature_names.LABEL: LABELS, feature_names.LIST_KEY: KEYS}
    table = pa.table(
        {name: pa.array([[value] for value in values], pa.large_list(pa.int64())) for name, values in columns.items()}
    )
    parquet.write_table(table, folder / "rows.parquet", row_group_size=7)
    return [str(folder / "rows.parquet")]


def create_list_head(**model: Any) -> Any:
    return head("binary", lines=BINARY, loss="listwise", list_column="query", list_size=SIZE, **model)


def test_loss_and_gradient_are_those_of_the_softmax_of_a_list() -> None:
    random = np.random.default_rng(3)
    lengths = [4, 3, 2, 1, 4, 4]
    labels = random.integers(0, 2, (6, SIZE))
    labels[0], labels[1, :2], labels[4], labels[5] = [1, 0, 1, 0], [0, 1], 0, 1
    labels[np.arange(SIZE) >= np.array(lengths)[:, np.newaxis]] = -1
    scores, weights = random.normal(size=(6, SIZE)), random.uniform(0.5, 2, (6, SIZE))
    expected, gradients = np.zeros(6), np.zeros((6, SIZE))
    for number, length in enumerate(lengths):
        exponentials = np.exp(scores[number, :length])
        shares = exponentials / exponentials.sum()
        if positives := (labels[number] == 1).sum():
            targets = weights[number, :length] * (labels[number, :length] == 1) / positives
            expected[number] = -(targets * np.log(shares)).sum()
            gradients[number, :length] = targets.sum() * shares - targets
    logits = tf.Variable(scores.reshape(-1, 1), dtype=tf.float32)
    with tf.GradientTape() as tape:
        losses = create_list_head().losses(
            tf.constant(labels.reshape(-1, 1)), logits, tf.constant(weights.ravel(), tf.float32)
        )
        mean = tf.reduce_mean(losses)
    NEAR.assert_close(losses.numpy().reshape(6, SIZE).mean(axis=1), expected)
    NEAR.assert_close(mean.numpy(), expected.mean())
    NEAR.assert_close(tape.gradient(mean, logits).numpy().reshape(6, SIZE), gradients / 6)
    assert (expected[3], expected[4]) == (0, 0), "a list of one row, and a list without a label 1"


def test_members_of_an_ensemble_have_separate_losses() -> None:
    random, list_head = np.random.default_rng(3), create_list_head()
    labels = tf.constant(random.integers(-1, 2, (8, 1)))
    logits = tf.constant(random.normal(size=(8, 3, 1)), tf.float32)
    alone = np.mean([list_head.losses(labels, logits[:, member]).numpy() for member in range(3)], axis=0)
    NEAR.assert_close(list_head.losses(labels, logits).numpy(), alone)
    assert list_head.mean(alone, list_head.weight_of(labels)) == pytest.approx(alone.mean(), abs=1e-6)


def read_batches(files: list[str], batches: int, shard: InputShard | None = None) -> list[Any]:
    config = TrainingConfig(seed=3, batch_size=2 * SIZE)
    dataset = InputPipeline(files, SPEC, config, 2 * SIZE, list_size=SIZE).dataset(shard or InputShard())
    return [
        tuple(part["id"].numpy() if isinstance(part, dict) else part.numpy() for part in batch)
        for batch in dataset.take(batches)
    ]


def collect_rows(batches: list[Any]) -> Counter[int]:
    """Count the rows that are not padding; check that a block belongs to one list."""
    rows: Counter[int] = Counter()
    for ids, label, weight in batches:
        np.testing.assert_array_equal(label[:, 0], np.where(weight > 0, LABELS[ids], -1))
        for block in range(0, len(ids), SIZE):
            [_] = set(KEYS[ids[block : block + SIZE]])
            rows.update(ids[block : block + SIZE][weight[block : block + SIZE] > 0].tolist())
    return rows


def test_epoch_has_every_row_of_every_list_once(tmp_path: Path) -> None:
    files = write_rows(tmp_path)
    # One block of the lists of up to 4 rows, and three of the list with 10 rows.
    batches = read_batches(files, 9)
    listed = dict.fromkeys(np.flatnonzero(KEYS).tolist(), 1)
    epochs = [collect_rows(batches[start : start + 3]) for start in (0, 3, 6)]
    assert epochs == [listed] * 3
    long = [sorted(map(sorted, find_blocks(batches[start : start + 3], 14))) for start in (0, 3)]
    assert sorted(map(len, long[0])) == [3, 3, 4]
    assert long[0] != long[1], "a long list is divided differently in every epoch"
    for parts, expected in zip(read_batches(files, 7, InputShard(start=2)), batches[2:], strict=True):
        np.testing.assert_array_equal(parts[0], expected[0])


def find_blocks(batches: list[Any], key: int) -> list[list[int]]:
    """Return the rows of the blocks of a list, without padding."""
    blocks = [
        (ids[start : start + SIZE], weight[start : start + SIZE]) for ids, _, weight in batches for start in (0, SIZE)
    ]
    return [ids[weight > 0].tolist() for ids, weight in blocks if KEYS[ids[0]] == key]


def test_workers_read_the_batches_in_turn(tmp_path: Path) -> None:
    files = write_rows(tmp_path)
    together = read_batches(files, 6)
    for index in (0, 1):
        for parts, expected in zip(read_batches(files, 3, InputShard(index, 2)), together[index::2], strict=True):
            np.testing.assert_array_equal(parts[0], expected[0])


def test_evaluation_has_every_row_of_every_list_once_in_order(tmp_path: Path) -> None:
    files = write_rows(tmp_path)
    batches = [
        (features["id"].numpy(), label.numpy(), weight.numpy())
        for features, label, weight in input_pipeline.list_batches(files, SPEC, 2 * SIZE, SIZE)
    ]
    assert collect_rows(batches) == dict.fromkeys(np.flatnonzero(KEYS).tolist(), 1)
    ids = np.concatenate(find_blocks(batches, 14))
    np.testing.assert_array_equal(ids, np.flatnonzero(KEYS == 14))


def test_lists_that_do_not_fit_into_memory_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_pipeline.ParquetSource, "memory", lambda self: 2 << 30)
    with pytest.raises(InputError, match="listwise keeps the rows of all lists in memory: expected at most 1,024 MB"):
        read_batches(write_rows(tmp_path), 1)


def test_lists_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        list_statistics.check(KEYS, LABELS, SIZE)
    labels = [{label for label, of in zip(LABELS.tolist(), KEYS.tolist(), strict=True) if of == key} for key in SIZES]
    constant = sum(len(values) == 1 for key, values in zip(SIZES, labels, strict=True) if key)
    assert "lists: 4 with 18 rows to train on; 1 are longer than model.list_size" in caplog.text
    assert f"{constant} have rows of one label only" in caplog.text
    assert "2 rows are not in a list" in caplog.text
    with pytest.raises(InputError, match="expected lists with rows of both labels, received none among 20 lists of 20"):
        list_statistics.check(np.arange(1, 21), LABELS, SIZE)


def test_lists_divide_the_batch_of_a_replica() -> None:
    list_statistics.check_batch(64, 16, 2)
    with pytest.raises(
        InputError, match=r"expected a multiple of model.list_size .* 32, received 48 rows for each replica"
    ):
        list_statistics.check_batch(48, 16, 2)


def test_list_wise_options_survive_a_recorded_plan() -> None:
    config = ModelConfig(loss="listwise", list_column="query", list_size=8)
    assert ModelConfig.model_validate_json(config.model_dump_json()) == config
