"""What follows from the task: the loss, the network's outputs, and what a served model answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from components.errors import InputError
from components.features import names
from components.features.plan import FeaturePlan
from components.names import did_you_mean
from components.trainer.config import ClassWeights


@dataclass(frozen=True)
class Target:
    """The label, as the network learns it.

    Attributes:
      outputs: number of logits.
      loss: (label [n], logits [n, outputs]) → a loss per example, shape [n].
      weights: label [n] → what each example's loss counts, shape [n]; None: all the same.
      join: logits [batch, members, outputs] of an ensemble → the logits [batch, outputs] of its mean answer.
      metrics: tf_keras metrics over logits, for the evaluation of checkpoints.
      answers: logits [batch, outputs] → what `serving_default` returns, by name.
    """

    outputs: int
    loss: Callable[[Any, Any], Any]
    join: Callable[[Any], Any]
    metrics: Sequence[Any]
    answers: Callable[[Any], dict[str, Any]]
    weights: Callable[[Any], Any] | None = None

    def losses(self, label: Any, logits: Any) -> Any:
        """What training makes small, for each example; every member of an ensemble has its own loss.

        Args:
          label: shape [batch, 1] or [batch].
          logits: shape [batch, outputs], or [batch, members, outputs] of an ensemble.

        Returns:
          float32, shape [batch].
        """
        label = tf.reshape(label, [-1])
        if logits.shape.rank == 2:
            losses = self.loss(label, logits)
        else:
            members = logits.shape[1]
            each = self.loss(tf.repeat(label, members), tf.reshape(logits, [-1, self.outputs]))
            losses = tf.reduce_mean(tf.reshape(each, [-1, members]), axis=1)
        return losses if self.weights is None else losses * self.weights(label)

    def joined(self, logits: Any) -> Any:
        """The logits as [batch, outputs], whatever network they are from."""
        return logits if logits.shape.rank == 2 else self.join(logits)


def target(plan: FeaturePlan, transform: tft.TFTransformOutput, class_weights: ClassWeights | None = None) -> Target:
    """The target of a plan.

    Args:
      plan: the label and the task.
      transform: what is known of the label in the training split.
      class_weights: what the rows of each class count in the loss.

    Raises:
      InputError: the label of the training split has one value only, is missing in some rows, or does not fit the
        task; or a weight is for no class.
    """
    if plan.task == "regression":
        mean, deviation = _scale(plan, transform)
        return Target(
            outputs=1,
            loss=lambda label, logits: tf.square((label - mean) / deviation - logits[:, 0]),
            join=lambda logits: tf.reduce_mean(logits, axis=1),
            metrics=(
                tf_keras.metrics.MeanMetricWrapper(
                    lambda label, logits: tf.abs(tf.reshape(label - (logits * deviation + mean), [-1])),
                    name="mean_absolute_error",
                ),
            ),
            answers=lambda logits: {"prediction": logits * deviation + mean},
        )
    counts = _counts(transform)
    _check(plan, counts)
    if plan.task == "binary":
        return Target(
            outputs=1,
            # tf_keras' own loss would average what should stay apart, where label and logits differ by an axis.
            loss=lambda label, logits: tf.nn.sigmoid_cross_entropy_with_logits(
                tf.cast(label, logits.dtype), logits[:, 0]
            ),
            join=_logit_of_mean,
            weights=_weights(class_weights, counts, sorted(counts)),
            metrics=(tf_keras.metrics.AUC(from_logits=True, name="auc"),),
            answers=lambda logits: {"probability": tf.sigmoid(logits)},
        )
    classes = [line.decode() for line in transform.vocabulary_by_name(names.LABEL_CLASSES)]
    return Target(
        outputs=len(classes),
        loss=_of_classes,
        join=_log_of_mean,
        weights=_weights(class_weights, counts, classes),
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


def _scale(plan: FeaturePlan, transform: tft.TFTransformOutput) -> tuple[float, float]:
    """Mean and standard deviation of a regression label, which is learned in these units."""
    rows, missing, mean, deviation = (float(line) for line in transform.vocabulary_by_name(names.LABEL_SCALE))
    _check_missing(plan, int(missing), int(rows))
    return mean, deviation


def _weights(
    chosen: ClassWeights | None, counts: dict[str, int], classes: Sequence[str]
) -> Callable[[Any], Any] | None:
    if chosen is None:
        return None
    if chosen == "balanced":
        rows = sum(counts.values())
        table = [rows / (len(classes) * counts[value]) for value in classes]
    else:
        for value in chosen:
            if value not in classes:
                raise InputError(
                    f"training.class_weights: the label has no value {value!r}{did_you_mean(value, classes)}",
                    "give weights under values of the label; those of a binary one are '0' and '1'",
                )
        table = [chosen.get(value, 1.0) for value in classes]
    return lambda label: tf.gather(tf.constant(table, tf.float32), tf.maximum(label, 0))


def _of_classes(label: Any, logits: Any) -> Any:
    """The crossentropy of each example; of a class that the training split does not have it is that of 1e-7."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(label, 0), logits)
    return tf.where(label < 0, -math.log(1e-7), losses)


def _logit_of_mean(logits: Any) -> Any:
    """The logit of the mean probability: [batch, members, 1] → [batch, 1]."""
    return tf.reduce_logsumexp(tf.math.log_sigmoid(logits), axis=1) - tf.reduce_logsumexp(
        tf.math.log_sigmoid(-logits), axis=1
    )


def _log_of_mean(logits: Any) -> Any:
    """The logarithms of the mean probabilities: [batch, members, classes] → [batch, classes]."""
    members = tf.cast(tf.shape(logits)[1], logits.dtype)
    return tf.reduce_logsumexp(tf.nn.log_softmax(logits), axis=1) - tf.math.log(members)


def _check(plan: FeaturePlan, counts: dict[str, int]) -> None:
    rows = sum(counts.values())
    missing = sum(count for value, count in counts.items() if value in ("nan", ""))
    _check_missing(plan, missing, rows)
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


def _check_missing(plan: FeaturePlan, missing: int, rows: int) -> None:
    if missing:
        raise InputError(
            f"data.label: {plan.label!r} is missing in {missing:,} of {rows:,} training rows",
            "leave these rows out of the data, or fill the label in",
        )
