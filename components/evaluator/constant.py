"""The comparison of a model with the best constant prediction on the same rows, from sums of one pass.

The constant knows the labels of the evaluated rows: their share of label 1, their shares of classes, their mean or
their quantiles. No other constant has a smaller loss on them. It is fitted to them, but to first order this does not
change the variance of the difference: at its optimum the mean loss does not depend on the constant. The constant of a
retrieval is the order of items by popularity, and knows only the training split.

A row's difference is the constant's loss minus the model's. Its mean and its mean square are functions of sums, so the
interval of the mean is that of paired rows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow_model_analysis as tfma
from scipy import special

from components.compat import tfma as compat
from components.compat.tfma.columnar import DROPPED, Binned, Floats, Ints, Numbers, Sums, in_one_bin
from components.config_section import Task
from components.evaluator import intervals
from components.evaluator.columnar_metric import bounded, combined, effective, scale_of
from components.evaluator.config import metric
from components.evaluator.crossentropy import of_label
from components.evaluator.error_metrics import deviances
from components.evaluator.intervals import Interval, ScoreBins
from components.evaluator.keyed_metric import KeyedMetric
from components.evaluator.plot_metrics import number_bins, of_number_bins, score_bins
from components.evaluator.quantile_metrics import OUTPUT, losses
from components.evaluator.retrieval_metrics import discounted_gain, of_interactions, recall, reciprocal
from components.retrieval_outputs import POPULARITY_RANK, RANK

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
      of_loss: the metric of the model's loss, if that is not the task's own.
      quantiles: those that the model predicts, if the metric is that of quantiles.
    """

    def __init__(self, name: str, task: Task, of_loss: str = "", quantiles: Sequence[float] = ()) -> None:
        def computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            made = _TASKS[task]
            if of_loss:
                made = _with_loss(made, of_loss, quantiles)
            total_key = _key(compat.private(name), key_fields)
            counted = [combined(total_key, eval_config, made.bins, lambda sums: sums, made.output)]
            totals = [counted[0].keys[-1]]
            if task == "binary":
                # The area under the curve is computed from the histogram that TFMA's AUC has.
                counted += compat.histogram_computations(eval_config, **key_fields)
                totals.append(counted[-1].keys[-1])
            for number, (bins, output) in enumerate(made.further):
                key = _key(compat.private(f"{name}_{number}"), key_fields)
                counted.append(combined(key, eval_config, bins, lambda sums: sums, output))
                totals.append(key)
            values = {metric: _key(f"{VALUE}{metric}", key_fields) for metric in made.metrics}
            gains = {metric: _key(f"{GAIN}{metric}", key_fields) for metric in made.judged}

            weighed, effective_rows = effective(eval_config, key_fields)

            def compared(results: Mapping[Any, Any]) -> dict[str, Compared]:
                unknown = dict.fromkeys(made.metrics, Compared(math.nan))
                if not results[totals[0]].rows.sum() > 0:
                    # No rows, or all of weight 0.
                    return unknown
                scale = scale_of(effective_rows(results))
                with np.errstate(all="ignore"):
                    return unknown | made.compare(*(_scaled(results[key], scale) for key in totals))

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
                *weighed,
                tfma.metrics.DerivedMetricComputation([*values.values(), *gains.values()], derived),
                compat.interval_computation(_key(name, key_fields), bounds),
            ]

        super().__init__(name, computations)


def _key(name: str, key_fields: Mapping[str, Any]) -> Any:
    return tfma.metrics.MetricKey(name=name, **key_fields)


def _scaled(sums: Any, scale: float) -> Any:
    """Returns sums, or TFMA's histogram, as of weights multiplied by a factor."""
    return sums.scaled(scale) if isinstance(sums, Sums) else score_bins(sums, scale)


class _Task(NamedTuple):
    """How a task is compared.

    Attributes:
      metrics: the metrics of the constant.
      judged: those with a gain.
      bins: (labels, predictions) → bins and summands.
      compare: sums → the metrics; one that is left out is not known.
      further: more bins, each with the output of the model that is their prediction, whose sums `compare` takes too.
      output: the output that is the prediction of `bins`; empty: the model's prediction.
    """

    metrics: tuple[str, ...]
    judged: tuple[str, ...]
    bins: Callable[[Numbers, Numbers], Binned]
    compare: Callable[..., dict[str, Compared]]
    further: tuple[tuple[Callable[[Numbers, Numbers], Binned], str], ...] = ()
    output: str = ""


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


def _compare_binary(sums: Sums, histogram: ScoreBins) -> dict[str, Compared]:
    if _OTHERS in sums.bins or not len(sums.bins):
        return {}
    rows, (loss, loss_squares, label_loss, *moments) = sums.total()
    prior = moments[0] / rows
    if not math.isfinite(prior):
        return {}
    # The constant's loss of a row is straight + slope * label.
    clipped = min(max(prior, _LEAST), 1 - _LEAST)
    straight, slope = -math.log1p(-clipped), math.log1p(-clipped) - math.log(clipped)
    difference, squares = _of_line(straight, slope, rows, moments[0], moments[1], loss, loss_squares, label_loss)
    entropy = float(special.entr(prior) + special.entr(1 - prior))
    return {
        "auc": _of_auc(histogram),
        "auc_precision_recall": Compared(prior),
        "binary_accuracy": Compared(max(prior, 1 - prior)),
        "binary_crossentropy": _paired(entropy, difference, squares, rows),
        "brier_score": _of_squares(sums, np.zeros(len(sums.bins)), prior, first=3),
    }


def _of_line(
    straight: Any, slope: Any, rows: Any, y: Any, y2: Any, loss: Any, loss2: Any, y_loss: Any
) -> tuple[Any, Any]:
    """Returns the sums of the differences `straight + slope * label - loss` and of their squares; by bin, if these are
    arrays.

    Args:
      straight: the constant's loss of the label 0.
      slope: by how much it grows with the label.
      rows: number of rows.
      y: sum of the labels.
      y2: sum of their squares.
      loss: sum of the model's losses.
      loss2: sum of their squares.
      y_loss: sum of label * loss.
    """
    squares = rows * straight**2 + slope**2 * y2 + 2 * straight * slope * y
    return rows * straight + slope * y - loss, squares + loss2 - 2 * (straight * loss + slope * y_loss)


def _of_auc(bins: ScoreBins) -> Compared:
    """Compares the area under the ROC curve with that of a constant, 1/2.

    The interval has the variance that the area has without any relation of label and prediction, so that an area of 1
    has an interval too.

    Source: H. B. Mann and D. R. Whitney, On a test of whether one of two random variables is stochastically larger than
    the other, Annals of Mathematical Statistics 18, 1947.
    """
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
    own = np.where(known, -np.log(np.maximum(sums.rows / (of_class.sum() or 1.0), _LEAST)), -math.log(_LEAST))
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
    y, bins, t = _label_bins(labels)
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(y - predictions)
        summands = np.stack([*_moments(t, error**2), error, t * error], axis=1)
    return bins, summands


def _label_bins(labels: Numbers) -> tuple[Floats, Ints, Floats]:
    """Returns the labels, their bins, and by how much they are above the middle of the bin."""
    y = labels.astype(np.float64)
    bins = np.where(np.isfinite(y), number_bins(np.where(np.isfinite(y), y, 0.0)), DROPPED)
    with np.errstate(over="ignore", invalid="ignore"):
        return y, bins, np.where(bins == DROPPED, 0.0, y - _middles(bins))


def _counted(sums: Sums) -> Sums:
    counted = sums.bins != DROPPED
    return Sums(sums.bins[counted], sums.rows[counted], sums.sums[counted])


def _compare_regression(sums: Sums, *_: Sums) -> dict[str, Compared]:
    sums = _counted(sums)
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
    """Compares the mean absolute error, which is twice the loss of the median."""
    t, squares, error_squares, errors, t_errors = (sums.sums[:, each] for each in (0, 1, 4, 8, 9))
    halves = np.stack([t, squares, errors / 2, error_squares / 4, t_errors / 2], axis=1)
    found, _ = _of_quantiles(Sums(sums.bins, sums.rows, halves), middles, (0.5,))
    if found is None:
        return {}
    ends = None if found.interval is None else (2 * found.interval[0], 2 * found.interval[1])
    return {"mean_absolute_error": Compared(2 * found.value, 2 * found.gain, ends)}


def _of_quantiles(sums: Sums, middles: Floats, quantiles: Sequence[float]) -> tuple[Compared | None, list[float]]:
    """Compares the mean loss of quantiles with that of the labels' quantiles, the means of their bins.

    In a quantile's bin the loss counts as 0. Bins have a relative width of 0.001. If the labels in such a bin differ
    too much for that, as large numbers close to each other do, the first result is None.

    Args:
      sums: of the summands of `_quantile_bins`.
      middles: of the bins; [bins].
      quantiles: the quantiles.

    Returns:
      The comparison, and the labels' quantiles.
    """
    rows = float(sums.rows.sum())
    t, squares, loss, loss_squares, t_loss = sums.sums.T
    slope, straight = np.zeros(len(middles)), np.zeros(len(middles))
    values, spread, size = [], 0.0, 0.0
    for quantile in quantiles:
        at = int(np.searchsorted(np.cumsum(sums.rows), quantile * rows))
        inside = sums.rows[at]
        value = middles[at] + t[at] / inside
        side = np.sign(np.arange(len(middles)) - at)
        slopes = np.where(side > 0, quantile, np.where(side < 0, quantile - 1, 0.0)) / len(quantiles)
        slope, straight = slope + slopes, straight + slopes * (middles - value)
        deviation = math.sqrt(max(squares[at] / inside - (t[at] / inside) ** 2, 0.0))
        spread, size = spread + deviation * inside, size + abs(value) * inside
        values.append(float(value))
    # The constant's loss in a bin is straight + slope * t.
    total = float((straight * sums.rows + slope * t).sum())
    if not spread / 2 <= _COARSE * total * len(quantiles) and spread > 1e-9 * size:
        return None, values
    each = _of_line(straight, slope, sums.rows, t, squares, loss, loss_squares, t_loss)
    difference, both = (float(part.sum()) for part in each)
    return _paired(total / rows, difference, both, rows), values


def _with_loss(made: _Task, of_loss: str, quantiles: Sequence[float]) -> _Task:
    """Returns the task with the metric of a loss."""
    if quantiles:
        bins, output, compare = _quantile_bins(quantiles), OUTPUT, functools.partial(_compare_quantiles, quantiles)
    else:
        power = float(metric(of_loss).options["power"])
        bins, output, compare = _deviance_bins(power), "", functools.partial(_compare_deviance, power, of_loss)
    of_interval = ("interval_coverage", "interval_width") if len(quantiles) > 1 else ()
    return _Task(
        (*made.metrics, of_loss, *of_interval),
        (*made.judged, of_loss),
        made.bins,
        lambda sums, further: made.compare(sums) | compare(further),
        ((bins, output),),
    )


def _quantile_bins(quantiles: Sequence[float]) -> Callable[[Numbers, Numbers], Binned]:
    def bins(labels: Numbers, predictions: Numbers) -> Binned:
        _, bins, t = _label_bins(labels)
        with np.errstate(over="ignore", invalid="ignore"):
            loss = losses(labels, predictions, quantiles)
            return bins, np.stack([t, t**2, loss, loss**2, t * loss], axis=1)

    return bins


def _compare_quantiles(quantiles: Sequence[float], sums: Sums) -> dict[str, Compared]:
    sums = _counted(sums)
    if not len(sums.bins):
        return {}
    found, values = _of_quantiles(sums, _middles(sums.bins), quantiles)
    # The labels' own quantiles enclose their share of the labels.
    of_interval = {
        "interval_coverage": Compared(quantiles[-1] - quantiles[0]),
        "interval_width": Compared(values[-1] - values[0]),
    }
    return {**({} if found is None else {"quantile_loss": found}), **of_interval}


def _deviance_bins(power: float) -> Callable[[Numbers, Numbers], Binned]:
    def bins(labels: Numbers, predictions: Numbers) -> Binned:
        y = labels.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            of_one = deviances(labels, np.ones(len(y)), power)
            loss = deviances(labels, predictions, power) - of_one
            summands = np.stack([y, y**2, loss, loss**2, y * loss, of_one], axis=1)
        return np.zeros(len(y), np.int64), summands

    return bins


def _compare_deviance(power: float, name: str, sums: Sums) -> dict[str, Compared]:
    """Compares the mean deviance with that of the labels' mean, both relative to the deviance of a prediction of 1.

    Relative to that, the constant's deviance is linear in the label.
    """
    rows, (y, y2, loss, loss2, y_loss, of_one) = sums.total()
    mean = y / rows if rows else 0.0
    if not mean > 0:
        return {name: Compared(0.0 if mean == 0 and rows else math.nan)}
    slope = -2 * (math.log(mean) if power == 1 else (mean ** (1 - power) - 1) / (1 - power))
    straight = 2 * (mean ** (2 - power) - 1) / (2 - power)
    difference, squares = _of_line(straight, slope, rows, y, y2, loss, loss2, y_loss)
    return {name: _paired((of_one + rows * straight + slope * y) / rows, difference, squares, rows)}


def _retrieval_bins(labels: Numbers, predictions: Numbers) -> Binned:
    """Returns the measures of the model's rank, and of the popularity rank, of each row."""
    ranks = predictions.reshape(len(labels), -1)
    summands = []
    for measure in _RANK_MEASURES.values():
        own, popular = (of_interactions(measure, labels, ranks[:, at]) for at in (0, -1))
        summands += [popular, own - popular, np.square(own - popular)]
    return in_one_bin(*summands)


def _compare_retrieval(sums: Sums) -> dict[str, Compared]:
    """Compares with the order of items by their interactions in the training split, the same one for all queries."""
    rows, totals = sums.total()
    if not rows:
        return {}
    found = {}
    for name, (value, difference, squares) in zip(_RANK_MEASURES, totals.reshape(-1, 3).tolist(), strict=True):
        found[name] = _paired(value / rows, difference, squares, rows)
    return found


_RANK_MEASURES = {"recall_at_10": recall(10), "ndcg_at_10": discounted_gain(10), "mrr": reciprocal()}


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
    "retrieval": _Task(
        tuple(_RANK_MEASURES),
        tuple(_RANK_MEASURES),
        _retrieval_bins,
        _compare_retrieval,
        output=f"{RANK},{POPULARITY_RANK}",
    ),
}
