"""Columnar forms of TFMA's metrics: the same values, computed from arrays instead of one row at a time.

A config names TFMA's classes, so that TFX's own executor can evaluate it. `to_columnar` replaces them by the classes
of this module when the metrics are computed from arrays. All options come from the config; TFMA's combiners are not
involved. TFMA computes a metric row by row if this module has no form for its class or for one of its options.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
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
from components.evaluator.columnar_metric import ColumnarMetric, make_computation
from components.evaluator.keyed_metric import KeyedMetric
from components.evaluator.plot_data import AT

_MAX_CLASSES = 1 << 32
"""More than a task has classes: a cell of a confusion matrix is the bin `label * _MAX_CLASSES + prediction + 1`."""


def to_columnar(config: tfma.EvalConfig) -> tfma.EvalConfig:
    """Replace TFMA's metrics by their columnar forms, under the same names."""
    changed = tfma.EvalConfig()
    changed.CopyFrom(config)
    for metric in (metric for spec in changed.metrics_specs for metric in spec.metrics):
        form, fixed_options = _FORMS.get(metric.class_name, (None, {}))
        options = json.loads(metric.config or "{}")
        # The path of a user's own class may end with the name of a class of TFMA.
        if metric.module or form is None or not options.keys() <= inspect.signature(form).parameters.keys():
            continue
        metric.class_name, metric.module = form.__name__, form.__module__
        metric.config = json.dumps({**options, **fixed_options})
    return changed


class RowCount(ColumnarMetric):
    """The number of rows, or the sum of their weights."""

    def __init__(self, name: str = "example_count") -> None:
        super().__init__(
            name,
            lambda labels, _: (np.zeros(len(labels), np.int64), np.empty((len(labels), 0))),
            lambda sums: sums.total()[0],
        )


class RateAtThreshold(ColumnarMetric):
    """A function of the confusion matrix of a binary task.

    A prediction of exactly the threshold is positive; TFMA counts it as negative, see `eval_config.at_least`.

    Args:
      name: Name of the metric.
      formula: Key of FORMULAS.
      threshold: Smallest probability that counts as positive.
      thresholds: The same; most of TFMA's metrics call the option so, and accept it as a list.
    """

    def __init__(
        self, name: str, formula: str, threshold: float = AT, thresholds: float | Sequence[float] | None = None
    ) -> None:
        # The threshold has the dtype of predictions: 0.7 is greater than the float32 nearest to it.
        (limit,) = np.ravel(threshold if thresholds is None else thresholds).astype(np.float32)

        def bins(labels: Numbers, predictions: Numbers) -> Binned:
            positive = finite(predictions).astype(np.float32) >= limit
            return positive.astype(np.int64), probabilities(labels)[:, np.newaxis]

        def value(sums: Sums) -> float:
            ones, zeros = np.zeros(2), np.zeros(2)
            ones[sums.bins] = sums.sums[:, 0]
            zeros[sums.bins] = sums.rows - sums.sums[:, 0]
            (fn, tp), (tn, fp) = ones.tolist(), zeros.tolist()
            return FORMULAS[formula](tp, tn, fp, fn)

        super().__init__(name, bins, value)


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


class BinaryLogLoss(ColumnarMetric):
    """The mean crossentropy of a binary task; NaN if a prediction is not a probability.

    A probability of 0 or 1 counts as LEAST_PROBABILITY away from it. TFMA's mean would be NaN or infinite.
    """

    def __init__(self, name: str) -> None:
        # Unlike in other means, a row of NaN is not dropped: it makes the mean NaN.
        super().__init__(
            name,
            lambda labels, predictions: (
                np.zeros(len(labels), np.int64),
                binary_log_losses(labels, predictions)[:, np.newaxis],
            ),
            mean,
        )


def binary_log_losses(labels: Numbers, predictions: Numbers) -> Floats:
    """Return the crossentropy of each row, [rows]; NaN if the prediction is not in [0, 1]."""
    y, p = labels.astype(np.float64), predictions.astype(np.float64)
    with np.errstate(invalid="ignore"):
        clipped = np.clip(p, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
        losses = -y * np.log(clipped) - (1 - y) * np.log1p(-clipped)
        return np.where((p < 0) | (p > 1), np.nan, losses)


class MeanError(ColumnarMetric):
    """The mean error of a regression over the rows whose error is a number.

    Args:
      name: Name of the metric.
      error: Key of ERRORS.
    """

    def __init__(self, name: str, error: str) -> None:
        super().__init__(name, lambda labels, predictions: in_one_bin(ERRORS[error](labels, predictions)), mean)


def _percentage_errors(labels: Numbers, predictions: Numbers) -> Numbers:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(labels == 0, np.nan, 100 * np.abs((labels - predictions) / labels))


ERRORS: dict[str, Callable[[Numbers, Numbers], Numbers]] = {
    "MeanAbsoluteError": lambda labels, predictions: np.abs(labels - predictions),
    # As in TFMA, the difference has the dtype of label and prediction, and its square is a float64.
    "MeanSquaredError": lambda labels, predictions: np.square((labels - predictions).astype(np.float64)),
    "MeanAbsolutePercentageError": _percentage_errors,
}
"""TFMA's class → the error of each row, [rows]."""


class MostProbableClassAccuracy(ColumnarMetric):
    """The share of rows whose label is the most probable class; the first one of equally probable classes counts."""

    def __init__(self, name: str) -> None:
        super().__init__(name, lambda labels, predictions: in_one_bin(predictions.argmax(axis=1) == labels), mean)


class ClassConfusion(KeyedMetric):
    """The plot of a multiclass confusion matrix.

    Args:
      name: Name of the plot.
      thresholds: One threshold. If no probability is above it, the predicted class is -1.
    """

    def __init__(self, thresholds: Sequence[float], name: str = "multi_class_confusion_matrix_plot") -> None:
        (threshold,) = thresholds

        def bins(labels: Numbers, predictions: Numbers) -> Binned:
            best = predictions.argmax(axis=1)
            predicted = np.where(predictions[np.arange(len(best)), best] > threshold, best, -1)
            return labels.astype(np.int64) * _MAX_CLASSES + predicted + 1, np.empty((len(labels), 0))

        def plot(sums: Sums) -> protos.MultiClassConfusionMatrixAtThresholds:
            message = protos.MultiClassConfusionMatrixAtThresholds()
            matrix = message.matrices.add(threshold=threshold)
            labels, predicted = np.divmod(sums.bins, _MAX_CLASSES)
            cells = zip(labels.tolist(), (predicted - 1).tolist(), sums.rows.tolist(), strict=True)
            for label, prediction, rows in cells:
                matrix.entries.add(actual_class_id=label, predicted_class_id=prediction, num_weighted_examples=rows)
            return message

        def computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            return [make_computation(tfma.metrics.PlotKey(name=name, **key_fields), eval_config, bins, plot)]

        super().__init__(name, computations)


_FORMS: dict[str, tuple[type[KeyedMetric], Mapping[str, str]]] = {
    "ExampleCount": (RowCount, {}),
    "BinaryCrossEntropy": (BinaryLogLoss, {}),
    "SparseCategoricalAccuracy": (MostProbableClassAccuracy, {}),
    "MultiClassConfusionMatrixPlot": (ClassConfusion, {}),
    **{tfma_class: (RateAtThreshold, {"formula": tfma_class}) for tfma_class in FORMULAS},
    **{tfma_class: (MeanError, {"error": tfma_class}) for tfma_class in ERRORS},
}
"""TFMA's class → its columnar form, and the options of the form besides TFMA's."""
