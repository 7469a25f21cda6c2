"""The loss of a student: labels, and the predictions of a teacher."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from components.config_section import Task
from components.edge.config import VariantConfig
from components.trainer.prediction_head import PredictionHead

_LEAST = 1e-7
"""Probability from which a teacher's logit is computed."""


def taught(
    rows: tf.data.Dataset, head: PredictionHead, teacher: str, task: Task, variant: VariantConfig
) -> tuple[tf.data.Dataset, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]]:
    """Adds a teacher's predictions to the labels, and makes the loss that reads both.

    The loss is that of Hinton et al. (2015, Distilling the Knowledge in a Neural Network): `alpha` times the student's
    own, and 1 - `alpha` times the divergence of its probabilities from the teacher's, both at the temperature T; times
    T², so that its gradients do not depend on T. In a regression, the teacher's prediction is a second label.

    Args:
      rows: (features, label [batch, 1]), with weights if there are any.
      head: the student's.
      teacher: a SavedModel with the signature `transformed`.
      task: the task.
      variant: alpha and temperature.

    Returns:
      The rows with the teacher's prediction, [batch, n], behind the label; (these, the student's logits) → the loss of
      each row.
    """
    # The rows keep the model: its signatures do not keep its variables.
    model = tf.saved_model.load(teacher)
    names = model.signatures["transformed"].structured_input_signature[1]
    dtype = rows.element_spec[1].dtype
    alpha, temperature = variant.alpha, variant.temperature

    def with_prediction(features: dict[str, tf.Tensor], label: tf.Tensor, *weight: tf.Tensor) -> tuple[tf.Tensor, ...]:
        signature = model.signatures["transformed"]
        (prediction,) = signature(**{name: features[name] for name in names}).values()
        prediction = tf.reshape(prediction, [tf.shape(label)[0], -1])
        return features, tf.concat([tf.cast(label, tf.float32), prediction], axis=1), *weight

    def loss(both: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        label, prediction = tf.cast(both[:, :1], dtype), both[:, 1:]
        if task == "regression":
            soft = head.losses(prediction[:, :1], logits)
        else:
            soft = temperature**2 * divergence(prediction, head.joined(logits), temperature)
        return alpha * head.losses(label, logits) + (1 - alpha) * soft

    return rows.map(with_prediction, tf.data.AUTOTUNE, deterministic=True), loss


def divergence(probabilities: tf.Tensor, logits: tf.Tensor, temperature: float) -> tf.Tensor:
    """Returns the Kullback-Leibler divergence of a student from its teacher, float32 [batch].

    Args:
      probabilities: the teacher's, at temperature 1; [batch, classes], or [batch, 1] of the positive class.
      logits: the student's, of the same shape.
      temperature: what both logits are divided by.
    """
    if probabilities.shape[-1] == 1:
        probabilities = tf.concat([1 - probabilities, probabilities], axis=1)
        logits = tf.concat([tf.zeros_like(logits), logits], axis=1)
    teacher = tf.nn.log_softmax(tf.math.log(tf.maximum(probabilities, _LEAST)) / temperature)
    student = tf.nn.log_softmax(logits / temperature)
    return tf.reduce_sum(tf.exp(teacher) * (teacher - student), axis=1)
