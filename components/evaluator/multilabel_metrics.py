"""Metrics of a multilabel task, whose rows have any number of classes.

Labels have the shape [rows, width] with width >= classes, and predictions the shape [rows, classes]. The columns of
labels beyond the classes of the model are 0.

The intervals of ratios and of means over classes are jackknife intervals: the rows of a batch are dealt to groups in
turn, and the variance follows from the values without each of the groups. The sums of a group are enough for this,
whereas the variance in one pass would need the sums of products of all pairs of classes.

Source: J. Shao and D. Tu, The jackknife and bootstrap, 1995, section 2.3 (the grouped jackknife).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow_model_analysis as tfma
from scipy import special

from components.compat import tfma as compat
from components.evaluator import intervals
from components.evaluator.binning import LEAST_PROBABILITY, Binned, Floats, Numbers, Sums
from components.evaluator.columnar_metric import ColumnarMetric, MeanMetric, make_weighted_sums, to_bounded_value
from components.evaluator.intervals import Interval
from components.evaluator.keyed_metric import KeyedMetric
from components.results.model_outputs import PREDICTED_FROM

GROUPS = 50
"""Number of groups of rows for intervals."""
_PER_UNIT = 1024
"""Maximum number of bins per unit of a logit, in areas under curves."""
_MOST_SCORES = 1 << 14
"""Bins per unit of a logit, times classes; bounds the memory of areas under curves."""
_LARGEST_LOGIT = 17
"""Larger than the logit of 1 - LEAST_PROBABILITY."""
_STRIDE = 2 * _LARGEST_LOGIT * _PER_UNIT
"""Maximum number of bins of logits."""


class LogLoss(MeanMetric):
    """The mean of the binary crossentropies of all classes."""

    def __init__(self, name: str) -> None:
        super().__init__(name, log_losses)


class HammingLoss(MeanMetric):
    """The share of wrong decisions among all pairs of a row and a class."""

    def __init__(self, name: str) -> None:
        super().__init__(name, lambda labels, predictions: _find_errors(labels, predictions).mean(axis=1))


class SubsetAccuracy(MeanMetric):
    """The share of rows whose predicted classes are exactly the classes of the label."""

    def __init__(self, name: str) -> None:
        super().__init__(
            name,
            lambda labels, predictions: ~_find_errors(labels, predictions).any(axis=1),
            intervals.compute_weighted_rate_interval,
        )


class _JackknifeMetric(KeyedMetric):
    """A function of sums over rows with its jackknife interval.

    Args:
      name: Name of the metric.
      value: Sums of the summands of `_bin_decisions`, [sums] → the metric.
    """

    def __init__(self, name: str, value: Callable[[Floats], float]) -> None:
        def computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            key = tfma.metrics.MetricKey(name=name, **key_fields)
            # Both F1 scores share these sums.
            sums, select_sums = make_weighted_sums("decisions by class", eval_config, key_fields, _bin_decisions)

            def derive(results: Mapping[Any, Any]) -> dict[Any, Any]:
                return {key: value(select_sums(results).sums.total()[1])}

            def bounds(results: Mapping[Any, Any]) -> dict[Any, Any]:
                total = select_sums(results).sums
                estimate = value(total.total()[1])
                return {key: to_bounded_value(estimate, compute_jackknife_interval(estimate, value, total.sums))}

            return [
                *sums,
                tfma.metrics.DerivedMetricComputation([key], derive),
                compat.interval_computation(key, bounds),
            ]

        super().__init__(name, computations)


class MicroF1(_JackknifeMetric):
    """The F1 score of the decisions about all pairs of a row and a class; NaN without such a label or decision."""

    def __init__(self, name: str) -> None:
        super().__init__(name, _compute_micro_f1)


class MacroF1(_JackknifeMetric):
    """The mean of the F1 scores of the classes. The score of a class without a label and a decision is 0."""

    def __init__(self, name: str) -> None:
        super().__init__(name, _compute_macro_f1)


class MacroArea(ColumnarMetric):
    """The mean of the areas under the ROC curves of the classes, without classes that all or no rows have.

    Predictions whose logits fall into the same bin count as equal; a bin is 1/1024 wide with up to 16 classes.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, _bin_scores, lambda sums: _average_classes(sums, _compute_area))


class MacroAveragePrecision(ColumnarMetric):
    """The mean of the average precisions of the classes, without classes that no row has. See `MacroArea` for bins."""

    def __init__(self, name: str) -> None:
        super().__init__(name, _bin_scores, lambda sums: _average_classes(sums, _compute_average_precision))


def align(labels: Numbers, predictions: Numbers) -> tuple[Floats, Floats]:
    """Return the labels and the probabilities of the model's classes, float64 [rows, classes]."""
    return labels[:, : predictions.shape[1]].astype(np.float64), predictions.astype(np.float64)


def log_losses(labels: Numbers, predictions: Numbers) -> Floats:
    """Return the mean of the binary crossentropies of the classes, [rows]; NaN if a prediction is not in [0, 1]."""
    y, p = align(labels, predictions)
    with np.errstate(invalid="ignore"):
        clipped = np.clip(p, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
        losses = -y * np.log(clipped) - (1 - y) * np.log1p(-clipped)
        mean_losses: Floats = np.where((p < 0) | (p > 1), np.nan, losses).mean(axis=1)
    return mean_losses


def bin_losses(labels: Numbers, predictions: Numbers) -> Binned:
    """Deal the rows to groups, with the loss and the labels as summands."""
    y, _ = align(labels, predictions)
    return deal(len(y)), np.concatenate([log_losses(labels, predictions)[:, np.newaxis], y], axis=1)


def compute_jackknife_interval(estimate: float, value: Callable[[Floats], float], sums: Floats) -> Interval | None:
    """Compute the interval of a function of sums by Student's t distribution.

    Args:
      estimate: The value of all rows.
      value: Sums over rows, [sums] → the value.
      sums: Sums over the rows of every group, [groups, sums].

    Returns:
      The interval. None with fewer than two groups, or if the value is not defined without one of the groups.
    """
    groups, total = len(sums), sums.sum(axis=0)
    if groups < 2:
        return None
    without = np.array([value(total - group) for group in sums])
    variance = float((groups - 1) / groups * np.square(without - without.mean()).sum())
    half = intervals.compute_t_quantile(groups - 1) * math.sqrt(variance)
    return (estimate - half, estimate + half) if math.isfinite(half) else None


def deal(rows: int) -> Numbers:
    """Deal the rows of a batch to groups in turn; [rows]."""
    return np.arange(rows) % GROUPS


def _decide(predictions: Numbers) -> Numbers:
    return np.asarray(predictions.astype(np.float32) >= np.float32(PREDICTED_FROM))


def _find_errors(labels: Numbers, predictions: Numbers) -> Numbers:
    """Return whether decisions are wrong, bool [rows, classes]."""
    return np.asarray(_decide(predictions) != (align(labels, predictions)[0] > 0))


def _bin_decisions(labels: Numbers, predictions: Numbers) -> Binned:
    """Deal the rows to groups. The summands are the correct positive decisions, then labels plus decisions."""
    y, _ = align(labels, predictions)
    decisions = _decide(predictions)
    return deal(len(y)), np.concatenate([y * decisions, y + decisions], axis=1)


def _compute_micro_f1(sums: Floats) -> float:
    hits, positives = sums.reshape(2, -1).sum(axis=1)
    return float(2 * hits / positives) if positives > 0 else math.nan


def _compute_macro_f1(sums: Floats) -> float:
    hits, positives = sums.reshape(2, -1)
    return float((2 * hits / np.where(positives > 0, positives, 1.0)).mean()) if len(hits) else math.nan


def _bin_scores(labels: Numbers, predictions: Numbers) -> Binned:
    """Assign a bin to every class of a row: the class, the bin of the logit, and the label."""
    y, p = align(labels, predictions)
    if np.isnan(p).any():
        raise ValueError("prediction: expected numbers, received NaN; train with a smaller training.learning_rate")
    classes = p.shape[1]
    width = min(_PER_UNIT, max(1, _MOST_SCORES // classes))
    logits = special.logit(np.clip(p, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY))
    scores = np.rint((logits + _LARGEST_LOGIT) * width).astype(np.int64)
    return ((np.arange(classes) * _STRIDE + scores) * 2 + (y > 0)), np.empty((len(y), 0))


def _average_classes(sums: Sums, value: Callable[[Floats, Floats], float]) -> float:
    """Return the mean of a value over the classes for which it is defined; NaN if there are none.

    Args:
      sums: Sums of the bins of `_bin_scores`.
      value: (rows with the class, rows without the class) by distinct prediction, ascending → the value of a class.
    """
    cells, is_label = np.divmod(sums.bins, 2)
    distinct, positions = np.unique(cells, return_inverse=True)
    positives, negatives = (np.bincount(positions, sums.rows * (is_label == label), len(distinct)) for label in (1, 0))
    starts = np.flatnonzero(np.diff(distinct // _STRIDE, prepend=-1))
    values = [
        value(*by_label)
        for by_label in zip(np.split(positives, starts)[1:], np.split(negatives, starts)[1:], strict=True)
    ]
    finite = [class_value for class_value in values if math.isfinite(class_value)]
    return float(np.mean(finite)) if finite else math.nan


def _compute_area(positives: Floats, negatives: Floats) -> float:
    pairs = float(positives.sum() * negatives.sum())
    below = np.cumsum(negatives) - negatives / 2
    return float((positives * below).sum()) / pairs if pairs else math.nan


def _compute_average_precision(positives: Floats, negatives: Floats) -> float:
    hits, rows = np.cumsum(positives[::-1]), np.cumsum((positives + negatives)[::-1])
    counted = rows > 0
    precision = hits / np.where(counted, rows, 1.0)
    total = float(positives.sum())
    return float((positives[::-1] * precision).sum()) / total if total else math.nan
