"""Creates the prediction head of a plan's task, from the statistics of its labels in the training split."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

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
from components.trainer.prediction_head import (
    AnomalyHead,
    BinaryHead,
    ChainHead,
    CompositeHead,
    DevianceHead,
    ListHead,
    MulticlassHead,
    MultilabelHead,
    PredictionHead,
    QuantileHead,
    RegressionHead,
    RetrievalHead,
    SurvivalHead,
)

_OWN_LOSS = ModelConfig()


def create_head(
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
    heads = {label: _create_label_head(label, plan, transform, class_weights, model) for label in plan.labels}
    head = _join_heads(heads, label_weights or {}, model) if len(heads) > 1 else heads[plan.labels[0]]
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
        return _create_regression_head(label, transform, model)
    if plan.task == "anomaly":
        if label.text:
            expected, remedy = "1 for anomalies and 0 for other rows", "give an expression such as status == 'fraud'"
            _check_zeros_and_ones(label, _read_counts(label, transform), expected, f"{remedy}, or remove the label")
        return AnomalyHead(contamination=model.contamination)
    counts = _read_counts(label, transform)
    if plan.task == "survival":
        return _create_survival_head(label, transform, counts)
    if plan.task == "multilabel":
        return _create_multilabel_head(label, transform, counts)
    _check(plan, label, counts)
    if model.loss == "listwise":
        return ListHead(list_size=model.list_size)
    if plan.task == "binary":
        return BinaryHead(
            row_loss=_choose_loss(losses.binary_crossentropy, model),
            weights=_create_weights(class_weights, counts, sorted(counts)),
            metrics=(tf_keras.metrics.AUC(from_logits=True, name="auc"),),
        )
    classes = [line.decode() for line in transform.vocabulary_by_name(feature_names.LABEL_CLASSES)]
    return MulticlassHead(
        outputs=len(classes),
        classes=classes,
        row_loss=_choose_loss(losses.crossentropy, model),
        weights=_create_weights(class_weights, counts, classes),
        metrics=(tf_keras.metrics.SparseCategoricalAccuracy(name="accuracy"),),
    )


def _create_multilabel_head(label: Label, transform: tft.TFTransformOutput, counts: dict[str, int]) -> MultilabelHead:
    classes = [line.decode() for line in transform.vocabulary_by_name(feature_names.LABEL_CLASSES)]
    _check_line_breaks(label, counts, "values of the training split")
    if len(classes) < 2:
        raise InputError(
            f"{label}: multilabel expected at least 2 classes in the training split, received {len(classes)} in "
            f"{label.text!r}",
            "check data.classes.separator, lower data.classes.min_frequency, or compare the column in a binary label",
        )
    ignored = {name: count for name, count in counts.items() if name not in classes}
    rows_without_class = ignored.pop(feature_names.NO_LABEL, 0)
    logging.info(
        "%s: %d classes; %d training rows without a class; ignored %d rarer classes with %d values",
        label, len(classes), rows_without_class, len(ignored), sum(ignored.values()),
    )  # fmt: skip
    head = MultilabelHead(outputs=len(classes), classes=classes)

    def errors(label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        is_wrong = tf.not_equal(label[:, : head.outputs] > 0, logits >= 0)
        return tf.reduce_mean(tf.cast(is_wrong, tf.float32), axis=1)

    return replace(head, metrics=(tf_keras.metrics.MeanMetricWrapper(errors, name="hamming_loss"),))


def _join_heads(
    parts: Mapping[Label, PredictionHead], weights: Mapping[str, float], model: ModelConfig
) -> PredictionHead:
    chain = functools.partial(ChainHead, is_conditional=model.chain_loss == "conditional")
    head = (chain if model.kind == "esmm" else CompositeHead)(
        outputs=sum(part.outputs for part in parts.values()),
        scale=next(iter(parts.values())).scale,
        parts=parts,
        label_weights=[weights.get(label.name, 1.0) for label in parts],
    )
    metrics = [
        _MetricOfLabel(label.add_name(metric.name), number, head.columns[number], metric)
        for number, (label, part) in enumerate(parts.items())
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


def _create_retrieval_head(
    label: Label, plan: FeaturePlan, transform: tft.TFTransformOutput, model: ModelConfig
) -> PredictionHead:
    counted = _read_counts(label, transform)
    _check_interactions(label, counted)
    rows = retrieval.read_counts(transform, feature_names.ITEM_ROWS, plan.item_feature.vocabulary)
    total = sum(counted.values())
    ids = inputs(plan, transform.vocabulary_size_by_name).ids[plan.item_feature.name]
    log_probability = retrieval.log_probabilities(rows, total, ids.cardinality)
    return RetrievalHead(
        outputs=two_tower.outputs(model),
        row_loss=retrieval.sampled_softmax(log_probability, model.temperature, counted["1"] / total),
    )


def _create_regression_head(label: Label, transform: tft.TFTransformOutput, model: ModelConfig) -> RegressionHead:
    lines = [float(line) for line in transform.vocabulary_by_name(label.add_name(feature_names.LABEL_SCALE))]
    rows, missing, mean, deviation, negative = lines
    _check_missing(label, int(missing), int(rows))
    head: RegressionHead
    if model.loss in ("poisson", "tweedie"):
        remedy = "set model.loss to huber or quantile, or remove these rows"
        _check_not_negative(label, model.loss, int(rows), int(negative), remedy)
        if not mean:
            raise InputError(
                f"{label}: {label.text!r} is constant: all {int(rows):,} training rows hold 0",
                "choose a label that differs between rows",
            )
        power = 1.0 if model.loss == "poisson" else model.tweedie_power
        head = DevianceHead(scale=(0.0, mean), row_loss=losses.deviance(power))
    elif model.loss == "quantile":
        quantiles = model.quantiles
        head = QuantileHead(
            outputs=len(quantiles), scale=(mean, deviation), row_loss=losses.pinball(quantiles), quantiles=quantiles
        )
    else:
        delta = (model.huber_delta or deviation) / deviation
        row_loss = losses.huber(delta) if model.loss == "huber" else losses.squared_error
        head = RegressionHead(scale=(mean, deviation), row_loss=row_loss)

    def errors(values: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return tf.abs(tf.reshape(values - head.outputs_by_name(logits)["prediction"], [-1]))

    return replace(head, metrics=(tf_keras.metrics.MeanMetricWrapper(errors, name="mean_absolute_error"),))


def _create_survival_head(label: Label, transform: tft.TFTransformOutput, counts: dict[str, int]) -> SurvivalHead:
    event = label.event_label
    missing = sum(counts.get(value, 0) for value in _MISSING_NUMBERS)
    _check_missing(event, missing, sum(counts.values()))
    expected, remedy = "1 for events and 0 for other rows", "give an expression such as status == 'churned'"
    _check_zeros_and_ones(event, counts, expected, remedy, needs_one=True)
    lines = [line.decode() for line in transform.vocabulary_by_name(feature_names.LABEL_TIMES)]
    rows, missing, negative = map(int, lines[:3])
    _check_missing(label, missing, rows)
    _check_not_negative(label, "survival", rows, negative, "remove these rows, or correct how the time is computed")
    intervals = [tuple(map(float, line.split())) for line in lines[3:]]
    if not intervals:
        raise InputError(
            f"{event}: expected events after time 0 in the training split, received "
            f"{counts.get('1', 0):,} events in {rows:,} rows",
            "check the event's expression, or choose a longer period",
        )
    ends, hazards = zip(*intervals, strict=True)
    logging.info("%s: %d events in %d rows; %d intervals until %g", label, counts["1"], rows, len(ends), ends[-1])
    return SurvivalHead(outputs=len(ends), ends=ends, hazards=hazards)


def _choose_loss(crossentropy: losses.RowLoss, model: ModelConfig) -> losses.RowLoss:
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


def _check(plan: FeaturePlan, label: Label, counts: dict[str, int]) -> None:
    rows = sum(counts.values())
    # A class may be called "nan"; in numeric labels, "nan" is a missing value.
    no_label = {feature_names.NO_LABEL} if plan.task == "multiclass" else _MISSING_NUMBERS
    missing = sum(count for value, count in counts.items() if value in no_label)
    _check_missing(label, missing, rows)
    _check_line_breaks(label, counts, "training rows")
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


_MISSING_NUMBERS = {feature_names.NO_LABEL, "nan", ""}
"""Values in LABEL_COUNTS of a missing number."""


def _check_line_breaks(label: Label, counts: dict[str, int], counted: str) -> None:
    if broken := counts.get(feature_names.BROKEN_LABEL):
        raise InputError(
            f"{label}: expected classes without line breaks, received one in {broken:,} of "
            f"{sum(counts.values()):,} {counted} of {label.text!r}",
            "replace the line breaks in this column",
        )


def _check_zeros_and_ones(
    label: Label, counts: dict[str, int], expected: str, remedy: str, needs_one: bool = False
) -> None:
    if not set(counts) <= {"0", "1"} or (needs_one and "1" not in counts):
        values = ", ".join(sorted(counts)[:5])
        raise InputError(
            f"{label}: expected {expected}, received {label.text!r} with the values {values} in the training split",
            remedy,
        )


def _check_interactions(label: Label, counts: dict[str, int]) -> None:
    expected, remedy = "1 for interactions and 0 for other rows", "give an expression such as rating >= 4"
    _check_zeros_and_ones(label, counts, expected, remedy, needs_one=True)


def _check_missing(label: Label, missing: int, rows: int) -> None:
    if missing:
        raise InputError(
            f"{label}: {label.text!r} is missing in {missing:,} of {rows:,} training rows",
            "leave these rows out of the data, or fill the label in",
        )


def _check_not_negative(label: Label, loss: str, rows: int, negative: int, remedy: str) -> None:
    if negative:
        raise InputError(
            f"{label}: {loss} expected a non-negative label, received {label.text!r}, which is negative in "
            f"{negative:,} of {rows:,} training rows",
            remedy,
        )
