"""What follows from the task: the loss, the network's outputs, and what a served model answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from components.errors import InputError
from components.features import names
from components.features.plan import FeaturePlan


@dataclass(frozen=True)
class Target:
    """The label, as the network learns it.

    Attributes:
      outputs: number of logits.
      loss: a tf_keras loss over logits, one value per example.
      metrics: tf_keras metrics over logits, for the evaluation of checkpoints.
      answers: logits [batch, outputs] → what `serving_default` returns, by name.
    """

    outputs: int
    loss: Any
    metrics: Sequence[Any]
    answers: Callable[[Any], dict[str, Any]]


def target(plan: FeaturePlan, transform: tft.TFTransformOutput) -> Target:
    """The target of a plan.

    Raises:
      InputError: the label of the training split has one value only, is missing in some rows, or does not fit the task.
    """
    if plan.task == "regression":
        return Target(
            outputs=1,
            loss=tf_keras.losses.MeanSquaredError(reduction="none"),
            metrics=(tf_keras.metrics.MeanAbsoluteError(),),
            answers=lambda logits: {"prediction": logits},
        )
    counts = _counts(transform)
    _check(plan, counts)
    if plan.task == "binary":
        return Target(
            outputs=1,
            loss=tf_keras.losses.BinaryCrossentropy(from_logits=True, reduction="none"),
            metrics=(tf_keras.metrics.AUC(from_logits=True, name="auc"),),
            answers=lambda logits: {"probability": tf.sigmoid(logits)},
        )
    classes = [line.decode() for line in transform.vocabulary_by_name(names.LABEL_CLASSES)]
    return Target(
        outputs=len(classes),
        loss=tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none"),
        metrics=(tf_keras.metrics.SparseCategoricalAccuracy(name="accuracy"),),
        answers=lambda logits: {
            "probabilities": tf.nn.softmax(logits),
            "classes": tf.tile(tf.constant([classes]), [tf.shape(logits)[0], 1]),
        },
    )


PREDICTION_KEY = {"binary": "probability", "multiclass": "probabilities", "regression": "prediction"}
"""The answer that is the prediction, by task."""


def _counts(transform: tft.TFTransformOutput) -> dict[str, int]:
    """Value of the label → rows of the training split that have it."""
    counts = {}
    for line in transform.vocabulary_by_name(names.LABEL_COUNTS):
        count, _, value = line.decode(errors="replace").partition(" ")
        counts[value] = int(float(count))
    return counts


def _check(plan: FeaturePlan, counts: dict[str, int]) -> None:
    rows = sum(counts.values())
    missing = sum(count for value, count in counts.items() if value in ("nan", ""))
    if missing:
        raise InputError(
            f"data.label: {plan.label!r} is missing in {missing:,} of {rows:,} training rows",
            "leave these rows out of the data, or fill the label in",
        )
    if len(counts) < 2:
        raise InputError(
            f"data.label: {plan.label!r} is constant: all {rows:,} training rows hold {next(iter(counts), 'nothing')}",
            "choose a label that differs between rows, or data that holds both outcomes",
        )
    if plan.task == "binary" and set(counts) != {"0", "1"}:
        held = ", ".join(sorted(counts)[:5])
        raise InputError(
            f"data.label: {plan.label!r} has {len(counts)} values ({held}), and a binary label is 0 or 1",
            "give an expression such as income == '>50K', or set data.task to multiclass or regression",
        )
