"""Columnar forms of TFMA's metrics: the same values, computed from arrays instead of one row at a time.

A config names TFMA's classes, so that TFX's own executor can evaluate it. `to_columnar` replaces them by
`StandardMetric` when the metrics are computed from arrays. All options come from the config; TFMA's combiners are not
involved. Metrics whose class or options are not supported by this module are computed by TFMA, row by row.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.proto import metrics_for_slice_pb2 as protos

from components.evaluator.binning import (
    LEAST_PROBABILITY,
    Binned,
    Floats,
    Numbers,
    Sums,
    finite,
    in_one_bin,
    mean,
    probabilities,
)
from components.evaluator.columnar_metric import Bins, make_computation
from components.evaluator.keyed_metric import KeyedMetric
from components.evaluator.plot_data import AT

Form = tuple[Bins, Callable[[Sums], Any]]
"""The bins and summands of rows, and the value as a function of the sums."""
_MAX_CLASSES = 1 << 32
"""More than a task has classes: a cell of a confusion matrix is the bin `label * _MAX_CLASSES + prediction + 1`."""


def to_columnar(config: tfma.EvalConfig) -> tfma.EvalConfig:
    """Replace TFMA's metrics by their columnar forms, under the same names."""
    changed = tfma.EvalConfig()
    changed.CopyFrom(config)
    for entry in (entry for spec in changed.metrics_specs for entry in spec.metrics):
        # TFMA's name of a metric without a name is its class in snake case.
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", entry.class_name).lower()
        options = {"name": name, **json.loads(entry.config or "{}")}
        form = _FORMS.get(entry.class_name)
        # The path of a user's class may end with the name of a class of TFMA, so check the module as well.
        if not entry.module and form and options.keys() <= {"name", *inspect.signature(form).parameters}:
            entry.config = json.dumps({"tfma_class": entry.class_name, **options})
            entry.class_name, entry.module = StandardMetric.__name__, __name__
    return changed


class StandardMetric(KeyedMetric):
    """The columnar form of one of TFMA's metrics.

    Args:
      name: Name of the metric.
      tfma_class: Class of the metric in TFMA.
      options: Options of the metric as in TFMA.
    """

    def __init__(self, name: str, tfma_class: str, **options: Any) -> None:
        bins, value = _FORMS[tfma_class](**options)
        key_class = tfma.metrics.PlotKey if tfma_class.endswith("Plot") else tfma.metrics.MetricKey

        def computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            return [make_computation(key_class(name=name, **key_fields), eval_config, bins, value)]

        super().__init__(name, computations)


def ratio(part: float, whole: float) -> float:
    """Return part / whole; NaN if the whole is 0."""
    return part / whole if whole > 0 else math.nan


FORMULAS: dict[str, Callable[[float, float, float, float], float]] = {
    "BinaryAccuracy": lambda tp, tn, fp, fn: ratio(tp + tn, tp + tn + fp + fn),
    "Precision": lambda tp, tn, fp, fn: ratio(tp, tp + fp),
    "Recall": lambda tp, tn, fp, fn: ratio(tp, tp + fn),
    "F1Score": lambda tp, tn, fp, fn: ratio(2 * tp, 2 * tp + fp + fn),
    "FallOut": lambda tp, tn, fp, fn: ratio(fp, fp + tn),
    "MissRate": lambda tp, tn, fp, fn: ratio(fn, fn + tp),
    "PredictedPositiveRate": lambda tp, tn, fp, fn: ratio(tp + fp, tp + tn + fp + fn),
}
"""TFMA's class → the metric from true positives, true negatives, false positives and false negatives."""


def _make_rate(
    formula: Callable[..., float], /, threshold: float = AT, thresholds: float | Sequence[float] | None = None
) -> Form:
    """Return a function of a confusion matrix, in which a prediction of exactly the threshold is positive.

    TFMA counts such a prediction as negative; see `eval_config.at_least`. TFMA's options are `threshold`, a number, or
    `thresholds`, a number or a list.
    """
    # The threshold has the dtype of predictions: 0.7 is greater than the float32 nearest to it.
    (limit,) = np.ravel(threshold if thresholds is None else thresholds).astype(np.float32)

    def bins(labels: Numbers, predictions: Numbers) -> Binned:
        positive = finite(predictions).astype(np.float32) >= limit
        return positive.astype(np.int64), probabilities(labels)[:, np.newaxis]

    def value(sums: Sums) -> float:
        positives, negatives = np.zeros(2), np.zeros(2)
        positives[sums.bins] = sums.sums[:, 0]
        negatives[sums.bins] = sums.rows - sums.sums[:, 0]
        (fn, tp), (tn, fp) = positives.tolist(), negatives.tolist()
        return formula(tp, tn, fp, fn)

    return bins, value


def binary_log_losses(labels: Numbers, predictions: Numbers) -> Floats:
    """Return the crossentropies of rows, [rows]; NaN if the prediction is not in [0, 1].

    A probability of 0 or 1 counts as LEAST_PROBABILITY away from it; TFMA's loss would be NaN or infinite.
    """
    y, p = labels.astype(np.float64), predictions.astype(np.float64)
    with np.errstate(invalid="ignore"):
        clipped = np.clip(p, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
        losses = -y * np.log(clipped) - (1 - y) * np.log1p(-clipped)
        return np.where((p < 0) | (p > 1), np.nan, losses)


def _make_binary_log_loss() -> Form:
    def bins(labels: Numbers, predictions: Numbers) -> Binned:
        # Unlike `in_one_bin`, keep rows with NaN, so that the mean is NaN as well.
        return np.zeros(len(labels), np.int64), binary_log_losses(labels, predictions)[:, np.newaxis]

    return bins, mean


def _percentage_errors(labels: Numbers, predictions: Numbers) -> Numbers:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(labels == 0, np.nan, 100 * np.abs((labels - predictions) / labels))


_ROW_VALUES: dict[str, Callable[[Numbers, Numbers], Numbers]] = {
    "MeanAbsoluteError": lambda labels, predictions: np.abs(labels - predictions),
    # As in TFMA, the difference has the dtype of label and prediction, and its square is a float64.
    "MeanSquaredError": lambda labels, predictions: np.square((labels - predictions).astype(np.float64)),
    "MeanAbsolutePercentageError": _percentage_errors,
    # The first of equally probable classes counts.
    "SparseCategoricalAccuracy": lambda labels, predictions: predictions.argmax(axis=1) == labels,
}
"""TFMA's class → the value of each row, [rows], whose mean is the metric; rows with NaN are dropped."""


def _make_mean(values: Callable[[Numbers, Numbers], Numbers], /) -> Form:
    return lambda labels, predictions: in_one_bin(values(labels, predictions)), mean


def _make_row_count() -> Form:
    return lambda labels, _: (np.zeros(len(labels), np.int64), np.empty((len(labels), 0))), lambda sums: sums.total()[0]


def _make_confusion_plot(thresholds: Sequence[float]) -> Form:
    """Return the confusion matrix of a multiclass task; without a probability above the threshold, -1 is predicted."""
    (threshold,) = thresholds

    def bins(labels: Numbers, predictions: Numbers) -> Binned:
        best = predictions.argmax(axis=1)
        predicted = np.where(predictions[np.arange(len(best)), best] > threshold, best, -1)
        return labels.astype(np.int64) * _MAX_CLASSES + predicted + 1, np.empty((len(labels), 0))

    def plot(sums: Sums) -> protos.MultiClassConfusionMatrixAtThresholds:
        message = protos.MultiClassConfusionMatrixAtThresholds()
        matrix = message.matrices.add(threshold=threshold)
        labels, predicted = np.divmod(sums.bins, _MAX_CLASSES)
        for label, prediction, rows in zip(labels.tolist(), (predicted - 1).tolist(), sums.rows.tolist(), strict=True):
            matrix.entries.add(actual_class_id=label, predicted_class_id=prediction, num_weighted_examples=rows)
        return message

    return bins, plot


_FORMS: dict[str, Callable[..., Form]] = {
    "ExampleCount": _make_row_count,
    "BinaryCrossEntropy": _make_binary_log_loss,
    "MultiClassConfusionMatrixPlot": _make_confusion_plot,
    **{tfma_class: functools.partial(_make_rate, formula) for tfma_class, formula in FORMULAS.items()},
    **{tfma_class: functools.partial(_make_mean, values) for tfma_class, values in _ROW_VALUES.items()},
}
"""TFMA's class → its columnar form, from TFMA's options."""
