"""The prediction heads of the tasks: the number of logits, the loss, the metrics, and the outputs of a served model."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from components.base.errors import InputError
from components.base.limits import MOST_CLASSES
from components.base.names import did_you_mean
from components.features import feature_names
from components.features.expression import Label
from components.features.plan import FeaturePlan
from components.models import two_tower
from components.models.config import ModelConfig
from components.models.inputs import inputs
from components.trainer import losses, retrieval
from components.trainer.config import ClassWeights

_OWN_LOSS = ModelConfig()


@dataclass(frozen=True)
class PredictionHead:
    """The functions from a network's logits to a loss, metrics and outputs.

    Attributes:
      outputs: Number of logits.
      loss: (label [n] or labels [n, labels], logits [n, outputs]) → a float32 loss per example, shape [n].
      join: Logits [batch, members, outputs] of an ensemble → the logits of its mean prediction, [batch, outputs].
      metrics: Metrics of (label, logits), for the evaluation of checkpoints.
      outputs_by_name: Logits [batch, outputs] → the outputs of `serving_default`, by name.
      weights: Label [n] → the weight of the label's class in the loss, float32 [n]; if None, all weights are 1.
      mean_weight: Mean of the rows' weights, by which they are divided; 1 if the rows do not have weights.
      scale: (shift, unit) of a regression: the loss compares the logits with (label - shift) / unit; None for classes.
      parts: The heads of several labels, in the order of their logits; empty for one label.
    """

    outputs: int
    loss: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    join: Callable[[tf.Tensor], tf.Tensor]
    metrics: Sequence[tf_keras.metrics.Metric]
    outputs_by_name: Callable[[tf.Tensor], dict[str, tf.Tensor]]
    weights: Callable[[tf.Tensor], tf.Tensor] | None = None
    scale: tuple[float, float] | None = None
    mean_weight: float = 1.0
    parts: tuple[PredictionHead, ...] = ()

    def losses(self, label: tf.Tensor, logits: tf.Tensor, weight: tf.Tensor | None = None) -> tf.Tensor:
        """Compute the weighted loss per example; for an ensemble, the mean over the losses of its members.

        Args:
          label: Labels of shape [batch, 1] or [batch], [batch, labels], or [batch, 2] for rows that blend two examples.
          logits: float32, shape [batch, outputs], or [batch, ..., outputs] for the members of an ensemble.
          weight: Weights of the rows, float32 [batch], or [batch, 2] for blended rows; if None, all are equal.

        Returns:
          float32, shape [batch]; for a blended row the sum over both labels.
        """
        if not self.parts and label.shape[1:] == (2,):
            pairs = zip(tf.unstack(label, axis=1), tf.unstack(weight, axis=1), strict=True)
            return tf.add_n([self.losses(single, logits, share) for single, share in pairs])
        label = label if self.parts else tf.reshape(label, [-1])
        if logits.shape.rank == 2:
            losses = self.loss(label, logits)
        else:
            members = math.prod(logits.shape[1:-1])
            member_losses = self.loss(tf.repeat(label, members, axis=0), tf.reshape(logits, [-1, self.outputs]))
            losses = tf.reduce_mean(tf.reshape(member_losses, [-1, members]), axis=1)
        losses = losses if self.weights is None else losses * self.weights(label)
        return losses if weight is None else losses * (weight / self.mean_weight)

    def weight_of(self, label: tf.Tensor, weight: tf.Tensor | None = None) -> float:
        """Return the sum of the rows' weights in `losses`; without weights, the number of rows."""
        return len(label) if weight is None else float(tf.reduce_sum(weight)) / self.mean_weight

    def mean(self, losses: npt.ArrayLike, weight: float) -> float:
        """Compute the mean of `losses`, given the rows' total weight from `weight_of`.

        Raises:
          InputError: If the weight is 0.
        """
        if not weight:
            raise InputError(
                "data.weight: expected rows with a weight above 0 among those held out of the training, received none",
                "give more rows a weight, or hold more rows out with training.validation",
            )
        return float(np.sum(losses, dtype=np.float64)) / weight

    def join_members(self, logits: tf.Tensor) -> tf.Tensor:
        """Return logits of shape [batch, outputs]; the logits of an ensemble's members are joined."""
        if logits.shape.rank == 2:
            return logits
        return self.join(tf.reshape(logits, [-1, math.prod(logits.shape[1:-1]), self.outputs]))

    @property
    def columns(self) -> list[slice]:
        """The columns of the labels' logits, if there are several labels."""
        ends = itertools.accumulate((part.outputs for part in self.parts), initial=0)
        return [slice(start, end) for start, end in itertools.pairwise(ends)]


def prediction_head(
    plan: FeaturePlan,
    transform: tft.TFTransformOutput,
    class_weights: ClassWeights | None = None,
    model: ModelConfig = _OWN_LOSS,
    label_weights: Mapping[str, float] | None = None,
) -> PredictionHead:
    """Create the prediction head for a plan's task.

    Args:
      plan: The labels and the task.
      transform: The transform graph, with the statistics of the labels in the training split.
      class_weights: The weights of the classes in the loss.
      model: The loss, if it differs from the task's default.
      label_weights: Label → the weight of its loss, 1 by default; the loss is the weighted sum.

    Raises:
      InputError: If the label of the training split is constant, is missing in some rows, or does not fit the task or
        the loss; if the weight of a row is missing or negative; or if a class weight names an unknown class.
    """
    heads = {declared: _create_label_head(declared, plan, transform, class_weights, model) for declared in plan.labels}
    head = _join_heads(heads, label_weights or {}, model) if len(heads) > 1 else next(iter(heads.values()))
    return head if plan.weight is None else replace(head, mean_weight=_mean_weight(plan.weight, transform))


def _create_label_head(
    label: Label,
    plan: FeaturePlan,
    transform: tft.TFTransformOutput,
    class_weights: ClassWeights | None,
    model: ModelConfig,
) -> PredictionHead:
    if plan.task == "retrieval":
        return _create_retrieval_head(label, plan, transform, model)
    if plan.task == "regression":
        return _create_regression_head(losses.regression_loss(model, label, _read_scale(label, transform)))
    counts = _read_counts(label, transform)
    _check(plan, label, counts)
    if plan.task == "binary":
        return PredictionHead(
            outputs=1,
            loss=_create_classification_loss(_binary_crossentropy, model),
            join=_logit_of_mean,
            weights=_create_weights(class_weights, counts, sorted(counts)),
            metrics=(tf_keras.metrics.AUC(from_logits=True, name="auc"),),
            outputs_by_name=lambda logits: {"probability": tf.sigmoid(logits)},
        )
    classes = [line.decode() for line in transform.vocabulary_by_name(feature_names.LABEL_CLASSES)]
    return PredictionHead(
        outputs=len(classes),
        loss=_create_classification_loss(_crossentropy, model),
        join=_log_of_mean,
        weights=_create_weights(class_weights, counts, classes),
        metrics=(tf_keras.metrics.SparseCategoricalAccuracy(name="accuracy"),),
        outputs_by_name=lambda logits: {
            "probabilities": tf.nn.softmax(logits),
            "classes": tf.tile(tf.constant([classes]), [tf.shape(logits)[0], 1]),
        },
    )


def _join_heads(
    heads: Mapping[Label, PredictionHead], weights: Mapping[str, float], model: ModelConfig
) -> PredictionHead:
    labels, parts = tuple(heads), tuple(heads.values())
    weighted = [weights.get(label.name, 1.0) for label in labels]
    head = PredictionHead(
        outputs=sum(part.outputs for part in parts),
        loss=lambda label, logits: tf.add_n(
            [
                weight * part.loss(label[:, number], logits[:, columns])
                for number, (weight, part, columns) in enumerate(zip(weighted, parts, head.columns, strict=True))
            ]
        ),
        join=lambda logits: tf.concat(
            [part.join(logits[:, :, columns]) for part, columns in zip(parts, head.columns, strict=True)], axis=1
        ),
        metrics=(),
        outputs_by_name=lambda logits: (
            {
                label.add_name(key): value
                for label, part, columns in zip(labels, parts, head.columns, strict=True)
                for key, value in part.outputs_by_name(logits[:, columns]).items()
            }
            | (_compute_conditionals(labels, logits) if model.kind == "esmm" else {})
        ),
        scale=parts[0].scale,
        parts=parts,
    )
    if model.kind == "esmm" and model.chain_loss == "conditional":
        head = replace(head, loss=_create_chain_loss(weighted))
    metrics = [
        _MetricOfLabel(label.add_name(metric.name), number, columns, metric)
        for number, (label, part, columns) in enumerate(zip(labels, parts, head.columns, strict=True))
        for metric in part.metrics
    ]
    return replace(head, metrics=metrics)


class _MetricOfLabel(tf_keras.metrics.Metric):  # type: ignore[misc]
    """A metric of one of several labels.

    Args:
      name: Name of the metric.
      number: Position of the label.
      columns: Columns of the label's logits.
      metric: The metric of (label, logits).
    """

    def __init__(self, name: str, number: int, columns: slice, metric: tf_keras.metrics.Metric) -> None:
        super().__init__(name)
        self._number, self._columns, self._metric = number, columns, metric

    def update_state(self, label: tf.Tensor, logits: tf.Tensor, weight: tf.Tensor | None = None) -> None:
        """Add a batch; label [batch, labels], logits [batch, outputs]."""
        self._metric.update_state(label[:, self._number, tf.newaxis], logits[:, self._columns], weight)

    def result(self) -> tf.Tensor:
        """Return the value."""
        return self._metric.result()

    def reset_state(self) -> None:
        """Remove all batches."""
        self._metric.reset_state()


def _create_chain_loss(weights: Sequence[float]) -> losses.RowLoss:
    """Return the negative log-likelihood of a chain of labels, each conditional on the previous label.

    A row that has a later label counts as having all earlier labels.
    """

    def loss(label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        from_last = reversed(tf.unstack(tf.cast(label, logits.dtype), axis=1))
        present = [*itertools.accumulate(from_last, tf.maximum)][::-1]
        logarithms = tf.unstack(tf.math.log_sigmoid(logits), axis=1)
        loss_of_rows = weights[0] * _binary_crossentropy(present[0], logits)
        for number, (before, conditional) in enumerate(itertools.pairwise(logarithms), 1):
            # Probabilities decrease along a chain; the bound keeps rounding errors from making a share positive.
            share = tf.minimum(conditional - before, -_LEAST_SHARE)
            likelihood = present[number] * share + (1 - present[number]) * tf.math.log(-tf.math.expm1(share))
            loss_of_rows -= weights[number] * present[number - 1] * likelihood
        return loss_of_rows

    return loss


_LEAST_SHARE = 1e-6


def _compute_conditionals(labels: Sequence[Label], logits: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return the probability of every label of esmm given the previous label, [batch, 1]."""
    logarithms = tf.math.log_sigmoid(logits)
    # The labels are calibrated independently, so a label may become slightly more probable than the previous label.
    shares = tf.exp(tf.minimum(logarithms[:, 1:] - logarithms[:, :-1], 0.0))
    return {
        f"probability_{label.name}_given_{before.name}": shares[:, number : number + 1]
        for number, (before, label) in enumerate(itertools.pairwise(labels))
    }


def _create_retrieval_head(
    label: Label, plan: FeaturePlan, transform: tft.TFTransformOutput, model: ModelConfig
) -> PredictionHead:
    counted = _read_counts(label, transform)
    _check_interactions(label, counted)
    rows = retrieval.read_counts(transform, feature_names.ITEM_ROWS, plan.item_feature.vocabulary)
    total = sum(counted.values())
    ids = inputs(plan, transform.vocabulary_size_by_name).ids[plan.item_feature.name]
    log_probability = retrieval.log_probabilities(rows, total, ids.cardinality)
    return PredictionHead(
        outputs=two_tower.outputs(model),
        loss=retrieval.sampled_softmax(log_probability, model.temperature, counted["1"] / total),
        join=lambda output: output[:, 0],
        metrics=(),
        # The index of all items turns these vectors into predictions.
        outputs_by_name=lambda output: two_tower.vectors(output)._asdict(),
    )


def _create_regression_head(loss: losses.RegressionLoss) -> PredictionHead:
    shift, unit = loss.scale

    def errors(label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return tf.abs(tf.reshape(label - loss.outputs_by_name(logits)["prediction"], [-1]))

    return PredictionHead(
        outputs=loss.outputs,
        loss=lambda label, logits: loss.loss((label - shift) / unit, logits),
        join=loss.join,
        metrics=(tf_keras.metrics.MeanMetricWrapper(errors, name="mean_absolute_error"),),
        outputs_by_name=loss.outputs_by_name,
        scale=loss.scale,
    )


def _create_classification_loss(crossentropy: losses.RowLoss, model: ModelConfig) -> losses.RowLoss:
    return losses.focal(crossentropy, model.focal_gamma) if model.loss == "focal" else crossentropy


def _read_counts(label: Label, transform: tft.TFTransformOutput) -> dict[str, int]:
    """Read value of the label → number of rows of the training split with it."""
    counts = {}
    for line in transform.vocabulary_by_name(label.add_name(feature_names.LABEL_COUNTS)):
        count, _, value = line.decode(errors="replace").partition(" ")
        counts[value] = int(float(count))
    return counts


def _mean_weight(column: str, transform: tft.TFTransformOutput) -> float:
    lines = transform.vocabulary_by_name(feature_names.WEIGHT_SCALE)
    rows, missing, mean, _, negative = (float(line) for line in lines)
    for problem, count in (("missing or not finite", missing), ("negative", negative), ("0", 0 if mean else rows)):
        if count:
            raise InputError(
                f"data.weight: expected a non-negative number in each row of {column!r}, received {problem} in "
                f"{int(count):,} of {int(rows):,} training rows",
                "fix or remove these rows, or remove data.weight",
            )
    return mean


def _read_scale(label: Label, transform: tft.TFTransformOutput) -> losses.LabelScale:
    """Return the statistics of a regression label."""
    lines = [float(line) for line in transform.vocabulary_by_name(label.add_name(feature_names.LABEL_SCALE))]
    rows, missing, mean, deviation, negative = lines
    _check_missing(label, int(missing), int(rows))
    return losses.LabelScale(int(rows), mean, deviation, int(negative))


def _create_weights(
    config: ClassWeights | None, counts: dict[str, int], classes: Sequence[str]
) -> Callable[[tf.Tensor], tf.Tensor] | None:
    if config is None:
        return None
    if config == "balanced":
        rows = sum(counts.values())
        table = [rows / (len(classes) * counts[value]) for value in classes]
    else:
        for value in config:
            if value not in classes:
                raise InputError(
                    f"training.class_weights: the label has no value {value!r}{did_you_mean(value, classes)}",
                    "name values of the label; a binary label has the values '0' and '1'",
                )
        table = [config.get(value, 1.0) for value in classes]
    return lambda label: tf.gather(tf.constant(table, tf.float32), tf.maximum(label, 0))


def _binary_crossentropy(label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Compute the crossentropy per example, [n]."""
    # If label and logits differ by an axis, the loss of tf_keras broadcasts and averages over all examples.
    return tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(label, logits.dtype), logits[:, 0])


def _crossentropy(label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Compute the crossentropy per example, [n]; a label that is not in the training split has probability 1e-7."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(label, 0), logits)
    return tf.where(label < 0, -math.log(1e-7), losses)


def _logit_of_mean(logits: tf.Tensor) -> tf.Tensor:
    """Return the logit of the mean probability: [batch, members, 1] → [batch, 1]."""
    return tf.reduce_logsumexp(tf.math.log_sigmoid(logits), axis=1) - tf.reduce_logsumexp(
        tf.math.log_sigmoid(-logits), axis=1
    )


def _log_of_mean(logits: tf.Tensor) -> tf.Tensor:
    """Return the logarithms of the mean probabilities: [batch, members, classes] → [batch, classes]."""
    members = tf.cast(tf.shape(logits)[1], logits.dtype)
    return tf.reduce_logsumexp(tf.nn.log_softmax(logits), axis=1) - tf.math.log(members)


def _check(plan: FeaturePlan, label: Label, counts: dict[str, int]) -> None:
    rows = sum(counts.values())
    # A class may be called "nan"; in numeric labels, "nan" is a missing value.
    no_label = {feature_names.NO_LABEL} if plan.task == "multiclass" else {feature_names.NO_LABEL, "nan", ""}
    missing = sum(count for value, count in counts.items() if value in no_label)
    _check_missing(label, missing, rows)
    if broken := counts.get(feature_names.BROKEN_LABEL):
        raise InputError(
            f"{label}: expected classes without line breaks, received one in {broken:,} of {rows:,} training rows "
            f"of {label.text!r}",
            "replace the line breaks in this column",
        )
    if plan.task == "multiclass" and len(counts) > MOST_CLASSES:
        raise InputError(
            f"{label}: expected at most {MOST_CLASSES:,} classes, received more in {label.text!r}",
            "set data.task to regression, or choose a label with fewer values",
        )
    if len(counts) < 2:
        raise InputError(
            f"{label}: {label.text!r} is constant: all {rows:,} training rows hold {next(iter(counts), 'nothing')}",
            "choose a label that differs between rows, or data that holds both outcomes",
        )
    if plan.task == "binary" and set(counts) != {"0", "1"}:
        values = ", ".join(sorted(counts)[:5])
        raise InputError(
            f"{label}: {label.text!r} has {len(counts)} values ({values}), and a binary label is 0 or 1",
            "give an expression such as income == '>50K', or set data.task to multiclass or regression",
        )


def _check_interactions(label: Label, counts: dict[str, int]) -> None:
    if "1" not in counts or not set(counts) <= {"0", "1"}:
        values = ", ".join(sorted(counts)[:5])
        raise InputError(
            f"{label}: expected 1 for interactions and 0 for other rows, received {label.text!r} with the values "
            f"{values} in the training split",
            "give an expression such as rating >= 4",
        )


def _check_missing(label: Label, missing: int, rows: int) -> None:
    if missing:
        raise InputError(
            f"{label}: {label.text!r} is missing in {missing:,} of {rows:,} training rows",
            "leave these rows out of the data, or fill the label in",
        )
