"""Tests of the training split in memory: which rows the folds train on and hold out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from components.features import feature_names
from components.features.config import FeaturesConfig
from components.features.expression import Label
from components.features.plan import FeaturePlan, RowKey
from components.models.config import Kind, ModelConfig
from components.trainer.config import TrainingConfig
from components.trainer.memory_rows import TrainingSplit, read_training_split
from components.trainer.plan import TrainingPlan
from components.trainer.training_rows import TrainingRows
from tests.support.data.numbered_rows import SPEC, Format, row_end, write

KEYS = {name: tf.io.FixedLenFeature([], tf.int64) for name in (feature_names.ROW_KEY, feature_names.ROW_END)}


def read(folder: Path, stored: Format, by: str, kind: Kind) -> tuple[TrainingRows, TrainingSplit]:
    plan = TrainingPlan(
        features=FeaturePlan(
            features=FeaturesConfig.model_validate({"columns": {"size": "pass_through"}}),
            labels=(Label("label"),),
            task="regression",
            row_key=RowKey(by=by, columns=("time",)),
        ),
        model=ModelConfig(kind=kind),
        training=TrainingConfig(folds=3, validation=0.1),
    )
    files = write(folder, 200, 3, stored, row_key=True)
    rows = TrainingRows(plan, SimpleNamespace(train_files=files), {**SPEC, **KEYS}, holds_out=True)
    return rows, read_training_split(rows, ["id"]).without_unused()


@pytest.mark.parametrize("stored", ["parquet", "tfrecord"])
@pytest.mark.parametrize("by", ["time", "origin"])
def test_forest_learns_periods_from_earlier_rows(tmp_path: Path, stored: Format, by: str) -> None:
    rows, split = read(tmp_path, stored, by, "gbt")
    ids = split.rows.features["id"]
    times, ends = 1 + ids // 4, np.array([row_end(row) for row in ids])
    assert sorted(ids) == [*range(200)]
    for masks, start, stop in zip(split.list_masks(), (36, 41, 46), (41, 46, 51), strict=True):
        np.testing.assert_array_equal(masks.held_out, (start <= times) & (times < stop))
        np.testing.assert_array_equal(masks.training, (times < start) & ((ends <= start) | (by == "time")))
    # What is calibrated is what was held out, in the same order.
    held_out = np.concatenate([features["id"].numpy() for features, *_ in rows.validation_batches()])
    np.testing.assert_array_equal(held_out, ids[split.folds >= 0])
    assert rows.folds == 1


def test_network_and_forest_have_one_validation_part_in_time(tmp_path: Path) -> None:
    _, split = read(tmp_path, "parquet", "origin", "ensemble")
    ids = split.rows.features["id"]
    ((training, held_out),) = split.list_masks()
    np.testing.assert_array_equal(held_out, 1 + ids // 4 >= 46)
    np.testing.assert_array_equal(training, ~held_out)
    assert {*ids} == {row for row in range(200) if row_end(row) <= 46 or 1 + row // 4 >= 46}
