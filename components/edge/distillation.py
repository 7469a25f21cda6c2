"""Distillation: train a student with labels and with the predictions of a teacher."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from components.base.config_section import Task
from components.edge.config import VariantConfig
from components.trainer.prediction_head import PredictionHead

_MIN_PROBABILITY = 1e-7
"""Lower limit of a teacher's probability, because the logarithm of 0 is not finite."""


def add_teacher(
    rows: tf.data.Dataset, head: PredictionHead, teacher: str, task: Task, variant: VariantConfig
) -> tuple[tf.data.Dataset, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]]:
    """Append a teacher's predictions to the labels, and create a loss that uses both.

    The loss is the sum of two terms: `alpha` times the student's loss on the labels, and 1 - `alpha` times T² times the
    divergence of the student's probabilities from the teacher's, both at the temperature T. Because of the factor T²,
    the size of the gradients does not depend on T. For a regression, the second term is the student's loss with the
    teacher's prediction as the label.

    Source: G. Hinton et al., Distilling the Knowledge in a Neural Network, 2015.

    Args:
      rows: Batches of (features, label) or (features, label, weight), where the label is [batch, 1].
      head: Prediction head of the student.
      teacher: Folder of a SavedModel with the signature `transformed`.
      task: Task of the model.
      variant: The variant, with `alpha` and `temperature`.

    Returns:
      The batches, with labels followed by the teacher's predictions, float32 [batch, 1 + n]; and a function of these
      labels and the student's logits that returns the loss per row.
    """
    # `with_prediction` keeps a reference to the model, because signatures do not keep its variables alive.
    model = tf.saved_model.load(teacher)
    names = model.signatures["transformed"].structured_input_signature[1]
    dtype = rows.element_spec[1].dtype
    alpha, temperature = variant.alpha, variant.temperature

    def with_prediction(features: dict[str, tf.Tensor], label: tf.Tensor, *weight: tf.Tensor) -> tuple[tf.Tensor, ...]:
        signature = model.signatures["transformed"]
        (prediction,) = signature(**{name: features[name] for name in names}).values()
        prediction = tf.reshape(prediction, [tf.shape(label)[0], -1])
        return features, tf.concat([tf.cast(label, tf.float32), prediction], axis=1), *weight

    def loss(label_and_prediction: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        label, prediction = tf.cast(label_and_prediction[:, :1], dtype), label_and_prediction[:, 1:]
        if task == "regression":
            teacher_loss = head.losses(prediction[:, :1], logits)
        else:
            teacher_loss = temperature**2 * divergence(prediction, head.join_members(logits), temperature)
        return alpha * head.losses(label, logits) + (1 - alpha) * teacher_loss

    return rows.map(with_prediction, tf.data.AUTOTUNE, deterministic=True), loss


def divergence(probabilities: tf.Tensor, logits: tf.Tensor, temperature: float) -> tf.Tensor:
    """Return the Kullback-Leibler divergence of a student from its teacher, float32; [batch].

    Args:
      probabilities: Probabilities of the teacher at temperature 1: [batch, classes], or [batch, 1] for the positive
        class.
      logits: Logits of the student, of the same shape.
      temperature: Number that the logits of both are divided by.
    """
    if probabilities.shape[-1] == 1:
        probabilities = tf.concat([1 - probabilities, probabilities], axis=1)
        logits = tf.concat([tf.zeros_like(logits), logits], axis=1)
    teacher = tf.nn.log_softmax(tf.math.log(tf.maximum(probabilities, _MIN_PROBABILITY)) / temperature)
    student = tf.nn.log_softmax(logits / temperature)
    return tf.reduce_sum(tf.exp(teacher) * (teacher - student), axis=1)
