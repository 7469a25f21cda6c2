"""Rows for models of other libraries, as a function `model.train` receives them, and the heads of their labels."""

from __future__ import annotations

import numpy as np

from components.base.config_section import Task
from components.features.feature_spec import Dense, Ids
from components.models.inputs import Inputs
from components.trainer import losses
from components.trainer.frameworks.training_data import TrainingData, describe_inputs, name_columns, to_table
from components.trainer.memory_rows import Rows
from components.trainer.prediction_head import BinaryHead, MulticlassHead, PredictionHead, RegressionHead

FEATURES = Inputs(
    {
        "age_z_score": Dense(),
        "city_vocab": Ids(cardinality=12),
        "hours_bins": Dense(width=3),
        "words_tokens": Ids(cardinality=6, values=5),
    }
)
CLASSES = ("bike", "car", "train")
HEADS: dict[Task, PredictionHead] = {
    "binary": BinaryHead(),
    "multiclass": MulticlassHead(outputs=3, classes=CLASSES, row_loss=losses.crossentropy),
    "regression": RegressionHead(scale=(200.0, 30.0)),
}
TASKS: tuple[Task, ...] = ("binary", "multiclass", "regression")


def make_rows(task: str, count: int, seed: int) -> Rows:
    """Return rows whose label depends on all features, and for a regression is positive."""
    random = np.random.default_rng(seed)
    features = {
        "age_z_score": random.normal(size=count).astype(np.float32),
        "city_vocab": random.integers(0, 12, count),
        "hours_bins": random.uniform(0, 1, (count, 3)).astype(np.float32),
        "words_tokens": random.integers(0, 6, (count, 5)),
    }
    score = features["age_z_score"] + np.isin(features["city_vocab"], (2, 3, 7)) - 2 * features["hours_bins"][:, 1]
    score += np.any(features["words_tokens"] == 4, axis=1) + 0.3 * random.normal(size=count)
    if task == "regression":
        return Rows(features, np.maximum(200 + 20 * score, 1.0).astype(np.float32))
    borders = [0.0] if task == "binary" else [-0.7, 0.6]
    return Rows(features, np.digitize(score, borders).astype(np.int64))


def make_data(task: Task, count: int = 400, weighted: bool = False) -> TrainingData:
    """Return rows to train on and rows held out."""
    inputs = describe_inputs(FEATURES)
    parts = [make_rows(task, count, seed) for seed in (0, 1)]
    if weighted:
        parts = [part._replace(weight=np.linspace(0.5, 2.0, count, dtype=np.float32)) for part in parts]
    return TrainingData(
        *map(to_table, parts),
        task=task,
        classes=CLASSES if task == "multiclass" else (),
        columns=name_columns(inputs),
        id_columns=("city_vocab",),
        seed=1,
        seconds=None,
        label="label",
        weight="weight" if weighted else None,
        inputs=inputs,
    )
