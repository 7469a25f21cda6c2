"""The comparison of a model with the best constant prediction on the same rows, from sums of one pass.

The constant knows the labels of the evaluated rows: their share of label 1, their shares of classes, their mean or
their median. No other constant has a smaller loss on them. It is fitted to them, but to first order this does not
change the variance of the difference: at its optimum the mean loss does not depend on the constant.

A row's difference is the constant's loss minus the model's. Its mean and its mean square are functions of sums, so the
interval of the mean is that of paired rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow_model_analysis as tfma
from scipy import special

from components.compat import tfma as compat
from components.compat.tfma.columnar import DROPPED, Binned, Floats, Numbers, Sums
from components.config_section import Task
from components.evaluator import intervals
from components.evaluator.columnar_metric import combined
from components.evaluator.crossentropy import of_label
from components.evaluator.intervals import Interval
from components.evaluator.keyed_metric import KeyedMetric
from components.evaluator.plot_metrics import bounded, number_bins, of_number_bins, score_bins

VALUE, GAIN = "constant ", "gain over the constant "
"""How the names of the results begin in TFMA's files; the name of the metric follows."""
_LEAST = 1e-7
"""Smallest probability in a crossentropy, as in tf_keras."""
_TOLERANCE = 1e-3
"""How far the probabilities of the classes may be from 1 together, as bfloat16 rounds them."""
_COARSE = 0.01
"""Greatest share of the median's own bin in the mean absolute error of the median."""


class Compared(NamedTuple):
    """A metric of the constant.

    Attributes:
      value: the constant's value; NaN if the predictions or labels are not such that they can be compared.
      gain: by how much the model is better; NaN if it is not a number.
      interval: of the gain; None without one.
    """

    value: float
    gain: float = math.nan
    interval: Interval | None = None


class ConstantComparison(KeyedMetric):
    """The metrics of the best constant prediction, and by how much the model is better.

    Args:
      name: a name for the computation; no metric has it.
      task: the task.
    """

    def __init__(self, name: str, task: Task) -> None:
        def computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            made = _TASKS[task]
            counted = [combined(_key(compat.private(name), key_fields), eval_config, made.bins, lambda sums: sums)]
            totals = [counted[0].keys[-1]]
            if task == "binary":
                # The area under the curve is computed from the histogram that TFMA's AUC has.
                counted += compat.histogram_computations(eval_config, **key_fields)
                totals.append(counted[-1].keys[-1])
            values = {metric: _key(f"{VALUE}{metric}", key_fields) for metric in made.metrics}
            gains = {metric: _key(f"{GAIN}{metric}", key_fields) for metric in made.judged}

            def compared(results: Mapping[Any, Any]) -> dict[str, Compared]:
                unknown = dict.fromkeys(made.metrics, Compared(math.nan))
                with np.errstate(all="ignore"):
                    return unknown | made.compare(*(results[key] for key in totals))

            def derived(results: Mapping[Any, Any]) -> dict[Any, Any]:
                found = compared(results)
                return {
                    **{key: found[metric].value for metric, key in values.items()},
                    **{key: found[metric].gain for metric, key in gains.items()},
                }

            def bounds(results: Mapping[Any, Any]) -> dict[Any, Any]:
                found = compared(results)
                return {key: bounded(found[metric].gain, found[metric].interval) for metric, key in gains.items()}

            return [
                *counted,
                tfma.metrics.DerivedMetricComputation([*values.values(), *gains.values()], derived),
                compat.interval_computation(_key(name, key_fields), bounds),
            ]

        super().__init__(name, computations)


def _key(name: str, key_fields: Mapping[str, Any]) -> Any:
    return tfma.metrics.MetricKey(name=name, **key_fields)


class _Task(NamedTuple):
    """How a task is compared.

    Attributes:
      metrics: the metrics of the constant.
      judged: those with a gain.
      bins: (labels, predictions) → bins and summands.
      compare: sums → the metrics; one that is left out is not known.
    """

    metrics: tuple[str, ...]
    judged: tuple[str, ...]
    bins: Callable[[Numbers, Numbers], Binned]
    compare: Callable[..., dict[str, Compared]]


_COMPARABLE, _OTHERS = 0, 1
"""Bins of a binary task: rows whose label and prediction are probabilities, or NaN; and rows with other numbers."""


def _binary_bins(labels: Numbers, predictions: Numbers) -> Binned:
    y, p = labels.astype(np.float64), predictions.astype(np.float64)
    others = (y < 0) | (y > 1) | (p < 0) | (p > 1)
    with np.errstate(invalid="ignore"):
        clipped = np.clip(p, _LEAST, 1 - _LEAST)
        loss = -y * np.log(clipped) - (1 - y) * np.log1p(-clipped)
        summands = np.stack([loss, loss**2, y * loss, *_moments(y, np.square(y - p))], axis=1)
    return np.where(others, _OTHERS, _COMPARABLE).astype(np.int64), summands


def _compare_binary(sums: Sums, histogram: Any) -> dict[str, Compared]:
    if _OTHERS in sums.bins or not len(sums.bins):
        return {}
    rows, (loss, loss_squares, label_loss, *moments) = sums.total()
    prior = moments[0] / rows
    if not math.isfinite(prior):
        return {}
    # The constant's loss of a row is straight + slope * label.
    clipped = min(max(prior, _LEAST), 1 - _LEAST)
    straight, slope = -math.log1p(-clipped), math.log1p(-clipped) - math.log(clipped)
    own = rows * straight + slope * moments[0]
    squares = rows * straight**2 + slope**2 * moments[1] + 2 * straight * slope * moments[0]
    squares += loss_squares - 2 * (straight * loss + slope * label_loss)
    entropy = float(special.entr(prior) + special.entr(1 - prior))
    return {
        "auc": _of_auc(histogram),
        "auc_precision_recall": Compared(prior),
        "binary_accuracy": Compared(max(prior, 1 - prior)),
        "binary_crossentropy": _paired(entropy, own - loss, squares, rows),
        "brier_score": _of_squares(sums, np.zeros(len(sums.bins)), prior, first=3),
    }


def _of_auc(histogram: Any) -> Compared:
    """Compares the area under the ROC curve with that of a constant, 1/2.

    The interval has the variance that the area has without any relation of label and prediction, so that an area of 1
    has an interval too.

    Source: H. B. Mann and D. R. Whitney, On a test of whether one of two random variables is stochastically larger than
    the other, Annals of Mathematical Statistics 18, 1947.
    """
    bins = score_bins(histogram)
    positives, negatives = bins.labels, bins.rows - bins.labels
    positive, negative = float(positives.sum()), float(negatives.sum())
    if not positive or not negative:
        return Compared(0.5)
    gain = float((positives * (np.cumsum(negatives) - negatives / 2)).sum() / positive / negative) - 0.5
    half = intervals.Z * math.sqrt((positive + negative + 1) / (12 * positive * negative))
    return Compared(0.5, gain, (gain - half, gain + half))


_UNKNOWN, _NO_PROBABILITIES = -1, -2
"""Bins of a multiclass task besides the classes: labels that the model does not have, and predictions that are numbers
but no probabilities."""


def _multiclass_bins(labels: Numbers, predictions: Numbers) -> Binned:
    shares = predictions.astype(np.float64)
    classes = labels.astype(np.int64)
    loss = -np.log(np.maximum(of_label(labels, predictions), _LEAST))
    known = (classes >= 0) & (classes < predictions.shape[1])
    others = (shares < 0).any(axis=1) | (np.abs(shares.sum(axis=1) - 1) > _TOLERANCE)
    hit = shares.argmax(axis=1) == classes
    bins = np.where(others, _NO_PROBABILITIES, np.where(known, classes, _UNKNOWN))
    return bins, np.stack([loss, loss**2, hit], axis=1)


def _compare_multiclass(sums: Sums) -> dict[str, Compared]:
    if _NO_PROBABILITIES in sums.bins or not len(sums.bins):
        return {}
    known, rows = sums.bins >= 0, float(sums.rows.sum())
    of_class = sums.rows[known]
    # Also for the constant a label that the model does not have counts with the smallest probability.
    own = np.where(known, -np.log(np.maximum(sums.rows / max(of_class.sum(), 1.0), _LEAST)), -math.log(_LEAST))
    loss, loss_squares, hits = sums.sums.T
    squares = (sums.rows * own**2 - 2 * own * loss + loss_squares).sum()
    value = float((sums.rows * own).sum() / rows)
    found = {
        "accuracy": Compared(float(of_class.max(initial=0)) / rows),
        "crossentropy": _paired(value, float((sums.rows * own - loss).sum()), float(squares), rows),
    }
    alike = len(of_class) < 2
    return found | {"balanced_accuracy": Compared(1.0) if alike else _of_shares(of_class, hits[known])}


def _of_shares(rows: Floats, hits: Floats) -> Compared:
    """Compares the mean share of right predictions by class with that of a constant, 1/classes.

    Two rows are added to each class, one of them right, so that a share of 0 or 1 has a variance too.

    Source: A. Agresti and B. Caffo, Simple and effective confidence intervals for proportions, 2000.
    """
    chance = 1 / len(rows)
    gain = float((hits / rows).mean()) - chance
    shares = (hits + 1) / (rows + 2)
    half = intervals.Z * math.sqrt(float((shares * (1 - shares) / (rows + 2)).sum())) / len(rows)
    return Compared(chance, gain, (gain - half, gain + half))


def _regression_bins(labels: Numbers, predictions: Numbers) -> Binned:
    """Returns bins of labels; a summand is about the label minus the middle of its bin, so that no digits are lost."""
    y = labels.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        bins = np.where(np.isfinite(y), number_bins(np.where(np.isfinite(y), y, 0.0)), DROPPED)
        error = np.abs(y - predictions)
        t = np.where(bins == DROPPED, 0.0, y - _middles(bins))
        summands = np.stack([*_moments(t, error**2), error, t * error], axis=1)
    return bins, summands


def _compare_regression(sums: Sums) -> dict[str, Compared]:
    counted = sums.bins != DROPPED
    sums = Sums(sums.bins[counted], sums.rows[counted], sums.sums[counted])
    if not len(sums.bins):
        return {}
    rows, middles, shifted = float(sums.rows.sum()), _middles(sums.bins), sums.sums[:, 0]
    mean = float((sums.rows * middles + shifted).sum() / rows)
    found = {"mean_squared_error": _of_squares(sums, middles, mean)}
    if found["mean_squared_error"].value >= 0:
        found["r_squared"] = Compared(0.0)
        found["root_mean_squared_error"] = Compared(math.sqrt(found["mean_squared_error"].value))
    return found | _of_median(sums, middles)


def _of_median(sums: Sums, middles: Floats) -> dict[str, Compared]:
    """Compares the mean absolute error with that of the mean of the median's bin; the bin's own rows count as 0.

    Bins have a relative width of 0.001. If the labels in the median's bin differ too much for that, as large numbers
    close to each other do, nothing is returned.
    """
    rows = float(sums.rows.sum())
    at = int(np.searchsorted(np.cumsum(sums.rows), rows / 2))
    t, squares, error_squares, errors, t_errors = (sums.sums[:, each] for each in (0, 1, 4, 8, 9))
    inside = sums.rows[at]
    median = middles[at] + t[at] / inside
    side = np.sign(np.arange(len(middles)) - at)
    distance = middles - median
    value = float((side * (t + sums.rows * distance)).sum())
    spread = math.sqrt(max(squares[at] / inside - (t[at] / inside) ** 2, 0.0)) * inside
    if not spread <= _COARSE * value and spread > 1e-9 * abs(median) * inside:
        return {}
    # The square of |label - median| - |error|.
    own_squares = np.where(side == 0, 0.0, squares + 2 * distance * t + sums.rows * distance**2)
    both = (own_squares - 2 * side * (t_errors + distance * errors) + error_squares).sum()
    return {"mean_absolute_error": _paired(value / rows, value - float(errors.sum()), float(both), rows)}


def _moments(t: Floats, squared_errors: Floats) -> tuple[Floats, ...]:
    """Returns the summands that `_of_squares` needs; t is the label minus the middle of its bin."""
    q = squared_errors
    return t, t**2, t**3, t**4, q, q**2, t * q, t**2 * q


def _of_squares(sums: Sums, middles: Floats, mean: float, first: int = 0) -> Compared:
    """Compares the mean squared error with that of the labels' mean.

    Args:
      sums: with the summands of `_moments`.
      middles: of the bins; [bins].
      mean: of the labels.
      first: the position of the first of the summands.
    """
    t, t2, t3, t4, q, q2, tq, t2q = sums.sums.T[first : first + 8]
    d, rows = middles - mean, float(sums.rows.sum())
    own = t2 + 2 * d * t + sums.rows * d**2
    fourth = t4 + 4 * d * t3 + 6 * d**2 * t2 + 4 * d**3 * t + sums.rows * d**4
    squares = (fourth - 2 * (t2q + 2 * d * tq + d**2 * q) + q2).sum()
    total = float(own.sum())
    return _paired(total / rows, total - float(q.sum()), float(squares), rows)


def _paired(value: float, difference: float, squares: float, rows: float) -> Compared:
    """Returns a comparison from the sums of the rows' differences and of their squares."""
    gain = difference / rows
    return Compared(max(value, 0.0), gain, intervals.of_difference(gain, squares / rows, rows))


def _middles(bins: Any) -> Floats:
    low, high = of_number_bins(bins)
    middles: Floats = (low + high) / 2
    return middles


_TASKS: dict[Task, _Task] = {
    "binary": _Task(
        ("auc", "auc_precision_recall", "binary_accuracy", "binary_crossentropy", "brier_score"),
        ("auc", "binary_crossentropy", "brier_score"),
        _binary_bins,
        _compare_binary,
    ),
    "multiclass": _Task(
        ("accuracy", "balanced_accuracy", "crossentropy"),
        ("balanced_accuracy", "crossentropy"),
        _multiclass_bins,
        _compare_multiclass,
    ),
    "regression": _Task(
        ("mean_absolute_error", "mean_squared_error", "r_squared", "root_mean_squared_error"),
        ("mean_absolute_error", "mean_squared_error"),
        _regression_bins,
        _compare_regression,
    ),
}
