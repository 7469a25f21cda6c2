"""The comparison of binary and multiclass tasks with the share of label 1 and with the shares of the classes."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from components.evaluator import intervals
from components.evaluator.binning import LEAST_PROBABILITY, Binned, Numbers, Sums
from components.evaluator.columnar_metric import WeightedSums, mean_and_squares
from components.evaluator.constant.paired import (
    Compared,
    Difference,
    compare_pairs,
    compare_squares,
    moments,
    sum_line_differences,
)
from components.evaluator.crossentropy import select_label_probabilities
from components.evaluator.intervals import ScoreBins, count_effective_rows, count_effective_trials
from components.evaluator.standard_metrics import binary_log_losses

_TOLERANCE = 1e-3
"""Maximum difference between 1 and the sum of the class probabilities, which bfloat16 rounds."""
_COMPARABLE, _INCOMPARABLE = 0, 1
"""Bins of a binary task: rows whose label and prediction are probabilities or NaN, and rows with other numbers."""


def binary_bins(labels: Numbers, predictions: Numbers) -> Binned:
    """Return the losses of comparable rows in one bin, and other rows in another bin."""
    y, p = labels.astype(np.float64), predictions.astype(np.float64)
    incomparable = (y < 0) | (y > 1) | (p < 0) | (p > 1)
    with np.errstate(invalid="ignore"):
        loss = binary_log_losses(labels, predictions)
        summands = np.stack([loss, loss**2, y * loss, *moments(y, np.square(y - p))], axis=1)
    return np.where(incomparable, _INCOMPARABLE, _COMPARABLE).astype(np.int64), summands


def compare_binary(weighted: WeightedSums, scores: ScoreBins) -> dict[str, Compared]:
    """Compare the losses with the share of label 1, and the area under the ROC curve with 1/2."""
    sums = weighted.sums
    if _INCOMPARABLE in sums.bins or not len(sums.bins):
        return {}
    rows, (_, _, _, y, *_) = sums.total()
    prior = y / rows
    if not math.isfinite(prior):
        return {}
    # The constant's loss of a row is straight + slope * label.
    clipped = min(max(prior, LEAST_PROBABILITY), 1 - LEAST_PROBABILITY)
    straight, slope = -math.log1p(-clipped), math.log1p(-clipped) - math.log(clipped)

    def difference(sums: Sums) -> Difference:
        rows, (loss, loss_squares, label_loss, y, y_squares, *_) = sums.total()
        return rows, *sum_line_differences(straight, slope, rows, y, y_squares, loss, loss_squares, label_loss)

    entropy = float(special.entr(prior) + special.entr(1 - prior))
    return {
        "auc": _compare_auc(scores),
        "auc_precision_recall": Compared(prior),
        "binary_accuracy": Compared(max(prior, 1 - prior)),
        "binary_crossentropy": compare_pairs(entropy, difference, weighted),
        "brier_score": compare_squares(weighted, np.zeros(len(sums.bins)), prior, first=3),
    }


def compare_ranks(weighted: WeightedSums, scores: ScoreBins) -> dict[str, Compared]:
    """Compare the areas of scores that are not probabilities with the areas of a constant."""
    compared = compare_binary(weighted, scores)
    return {name: compared[name] for name in ("auc", "auc_precision_recall") if name in compared}


def _compare_auc(bins: ScoreBins) -> Compared:
    """Compare the area under the ROC curve with the area of a constant, 1/2.

    The interval uses the variance under the hypothesis that label and prediction are independent, which is positive
    even if the area is 1.

    Source: H. B. Mann and D. R. Whitney, On a test of whether one of two random variables is stochastically larger than
    the other, Annals of Mathematical Statistics 18, 1947.
    """
    positives, negatives = bins.labels, bins.rows - bins.labels
    positive, negative = float(positives.sum()), float(negatives.sum())
    if not positive or not negative:
        return Compared(0.5)
    gain = float((positives * (np.cumsum(negatives) - negatives / 2)).sum() / positive / negative) - 0.5
    squared = bins.variance_bins
    positive_rows, negative_rows = (
        count_effective_rows(positives, squared.labels),
        count_effective_rows(negatives, squared.rows - squared.labels),
    )
    half = intervals.Z * math.sqrt((positive_rows + negative_rows + 1) / (12 * positive_rows * negative_rows))
    return Compared(0.5, gain, (gain - half, gain + half))


_UNKNOWN, _NO_PROBABILITIES = -1, -2
"""Bins of a multiclass task in addition to the classes: labels that the model does not know, and predictions that are
not probabilities."""


def multiclass_bins(labels: Numbers, predictions: Numbers) -> Binned:
    """Return a bin per class, with the losses and the correct predictions as summands."""
    shares = predictions.astype(np.float64)
    classes = labels.astype(np.int64)
    loss = -np.log(np.maximum(select_label_probabilities(labels, predictions), LEAST_PROBABILITY))
    known = (classes >= 0) & (classes < predictions.shape[1])
    invalid = (shares < 0).any(axis=1) | (np.abs(shares.sum(axis=1) - 1) > _TOLERANCE)
    hit = shares.argmax(axis=1) == classes
    bins = np.where(invalid, _NO_PROBABILITIES, np.where(known, classes, _UNKNOWN))
    return bins, np.stack([loss, loss**2, hit], axis=1)


def compare_multiclass(weighted: WeightedSums) -> dict[str, Compared]:
    """Compare a model with constants.

    The crossentropy is compared with predicting the shares of the classes, the accuracy with predicting the most
    frequent class, and the balanced accuracy with 1/classes.
    """
    sums = weighted.sums
    if _NO_PROBABILITIES in sums.bins or not len(sums.bins):
        return {}
    known, rows = sums.bins >= 0, float(sums.rows.sum())
    class_rows = sums.rows[known]
    # For the constant, too, a label that the model does not know counts with the smallest probability.
    shares = np.where(known, sums.rows / (class_rows.sum() or 1.0), 0.0)
    constant_losses = -np.log(np.maximum(shares, LEAST_PROBABILITY))
    value = float((sums.rows * constant_losses).sum() / rows)

    def difference(sums: Sums) -> Difference:
        loss, loss_squares, _ = sums.sums.T
        squares = (sums.rows * constant_losses**2 - 2 * constant_losses * loss + loss_squares).sum()
        return float(sums.rows.sum()), float((sums.rows * constant_losses - loss).sum()), float(squares)

    is_most_frequent = known & (sums.rows == class_rows.max(initial=0))
    # Of several classes with as many rows, the constant predicts the first.
    is_most_frequent &= np.cumsum(is_most_frequent) == 1

    def difference_of_errors(sums: Sums) -> Difference:
        hits, predicted = sums.sums[:, -1], np.where(is_most_frequent, sums.rows, 0.0)
        squares = (hits + predicted - 2 * np.where(is_most_frequent, hits, 0.0)).sum()
        return float(sums.rows.sum()), float((hits - predicted).sum()), float(squares)

    most_frequent = float(class_rows.max(initial=0)) / rows
    return {
        "accuracy": compare_pairs(most_frequent, difference_of_errors, weighted),
        "crossentropy": compare_pairs(value, difference, weighted),
        "balanced_accuracy": Compared(1.0) if len(class_rows) < 2 else _compare_class_shares(weighted.select(known)),
    }


def _compare_class_shares(weighted: WeightedSums) -> Compared:
    """Compare the mean share of correct predictions by class with the share of a constant, 1/classes.

    Two rows are added to each class, one of them correct, so that a share of 0 or 1 has a variance as well.

    Source: A. Agresti and B. Caffo, Simple and effective confidence intervals for proportions, 2000.
    """
    rows, hits = weighted.sums.rows, weighted.sums.sums[:, -1]
    squared_rows, squared_hits = weighted.squared.rows, weighted.squared.sums[:, -1]
    chance, share = 1 / len(rows), hits / rows
    trials = [
        count_effective_trials(*mean_and_squares((total, (hit, hit)), (squared_total, (squared_hit, squared_hit))))
        for total, hit, squared_total, squared_hit in zip(rows, hits, squared_rows, squared_hits, strict=True)
    ]
    added = np.array(trials) + 2
    shares = (share * (added - 2) + 1) / added
    gain = float(share.mean()) - chance
    half = intervals.Z * math.sqrt(float((shares * (1 - shares) / added).sum())) / len(rows)
    return Compared(chance, gain, (gain - half, gain + half))
