"""The comparison for binary and multiclass tasks: with the share of label 1, and with the shares of the classes."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from components.compat.tfma.columnar import LEAST_PROBABILITY, Binned, Numbers, Sums
from components.evaluator import intervals
from components.evaluator.columnar_metric import WeightedSums, mean_and_squares
from components.evaluator.constant.paired import Compared, Difference, moments, of_line, of_squares, paired
from components.evaluator.crossentropy import of_label
from components.evaluator.intervals import ScoreBins, effective, effective_trials

_TOLERANCE = 1e-3
"""How far the probabilities of the classes may be from 1 together, as bfloat16 rounds them."""
_COMPARABLE, _OTHERS = 0, 1
"""Bins of a binary task: rows whose label and prediction are probabilities, or NaN; and rows with other numbers."""


def binary_bins(labels: Numbers, predictions: Numbers) -> Binned:
    """Return one bin with the sums of the losses; rows whose numbers are no probabilities have a bin of their own."""
    y, p = labels.astype(np.float64), predictions.astype(np.float64)
    others = (y < 0) | (y > 1) | (p < 0) | (p > 1)
    with np.errstate(invalid="ignore"):
        clipped = np.clip(p, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
        loss = -y * np.log(clipped) - (1 - y) * np.log1p(-clipped)
        summands = np.stack([loss, loss**2, y * loss, *moments(y, np.square(y - p))], axis=1)
    return np.where(others, _OTHERS, _COMPARABLE).astype(np.int64), summands


def compare_binary(weighted: WeightedSums, scores: ScoreBins) -> dict[str, Compared]:
    """Compare with the share of label 1; of the area under the curve, with 1/2."""
    sums = weighted.sums
    if _OTHERS in sums.bins or not len(sums.bins):
        return {}
    rows, (_, _, _, y, *_) = sums.total()
    prior = y / rows
    if not math.isfinite(prior):
        return {}
    # The constant's loss of a row is straight + slope * label.
    clipped = min(max(prior, LEAST_PROBABILITY), 1 - LEAST_PROBABILITY)
    straight, slope = -math.log1p(-clipped), math.log1p(-clipped) - math.log(clipped)

    def difference(of: Sums) -> Difference:
        rows, (loss, loss_squares, label_loss, y, y_squares, *_) = of.total()
        return rows, *of_line(straight, slope, rows, y, y_squares, loss, loss_squares, label_loss)

    entropy = float(special.entr(prior) + special.entr(1 - prior))
    return {
        "auc": _of_auc(scores),
        "auc_precision_recall": Compared(prior),
        "binary_accuracy": Compared(max(prior, 1 - prior)),
        "binary_crossentropy": paired(entropy, difference, weighted),
        "brier_score": of_squares(weighted, np.zeros(len(sums.bins)), prior, first=3),
    }


def _of_auc(bins: ScoreBins) -> Compared:
    """Compare the area under the ROC curve with that of a constant, 1/2.

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
    squared = bins.squared
    ones, zeros = effective(positives, squared.labels), effective(negatives, squared.rows - squared.labels)
    half = intervals.Z * math.sqrt((ones + zeros + 1) / (12 * ones * zeros))
    return Compared(0.5, gain, (gain - half, gain + half))


_UNKNOWN, _NO_PROBABILITIES = -1, -2
"""Bins of a multiclass task besides the classes: labels that the model does not have, and predictions that are numbers
but no probabilities."""


def multiclass_bins(labels: Numbers, predictions: Numbers) -> Binned:
    """Return a bin for each class, with the sums of the losses and of the right predictions."""
    shares = predictions.astype(np.float64)
    classes = labels.astype(np.int64)
    loss = -np.log(np.maximum(of_label(labels, predictions), LEAST_PROBABILITY))
    known = (classes >= 0) & (classes < predictions.shape[1])
    others = (shares < 0).any(axis=1) | (np.abs(shares.sum(axis=1) - 1) > _TOLERANCE)
    hit = shares.argmax(axis=1) == classes
    bins = np.where(others, _NO_PROBABILITIES, np.where(known, classes, _UNKNOWN))
    return bins, np.stack([loss, loss**2, hit], axis=1)


def compare_multiclass(weighted: WeightedSums) -> dict[str, Compared]:
    """Compare with the shares of the classes; of the mean share of right predictions, with 1/classes."""
    sums = weighted.sums
    if _NO_PROBABILITIES in sums.bins or not len(sums.bins):
        return {}
    known, rows = sums.bins >= 0, float(sums.rows.sum())
    of_class = sums.rows[known]
    # Also for the constant a label that the model does not have counts with the smallest probability.
    own = np.where(
        known, -np.log(np.maximum(sums.rows / (of_class.sum() or 1.0), LEAST_PROBABILITY)), -math.log(LEAST_PROBABILITY)
    )
    value = float((sums.rows * own).sum() / rows)

    def difference(of: Sums) -> Difference:
        loss, loss_squares, _ = of.sums.T
        squares = (of.rows * own**2 - 2 * own * loss + loss_squares).sum()
        return float(of.rows.sum()), float((of.rows * own - loss).sum()), float(squares)

    found = {
        "accuracy": Compared(float(of_class.max(initial=0)) / rows),
        "crossentropy": paired(value, difference, weighted),
    }
    alike = len(of_class) < 2
    return found | {"balanced_accuracy": Compared(1.0) if alike else _of_shares(weighted.select(known))}


def _of_shares(weighted: WeightedSums) -> Compared:
    """Compare the mean share of right predictions by class with that of a constant, 1/classes.

    Two rows are added to each class, one of them right, so that a share of 0 or 1 has a variance too.

    Source: A. Agresti and B. Caffo, Simple and effective confidence intervals for proportions, 2000.
    """
    (_, rows, (*_, hits)), (_, own_rows, (*_, own_hits)) = ((*each[:2], each.sums.T) for each in weighted)
    chance, share = 1 / len(rows), hits / rows
    # A share has this number of trials by its own variance; where all rows of a class are alike, by their weights.
    trials = [
        effective_trials(*mean_and_squares((total, (hit, hit)), (own_total, (own_hit, own_hit))))
        for total, hit, own_total, own_hit in zip(rows, hits, own_rows, own_hits, strict=True)
    ]
    added = np.array(trials) + 2
    shares = (share * (added - 2) + 1) / added
    gain = float(share.mean()) - chance
    half = intervals.Z * math.sqrt(float((shares * (1 - shares) / added).sum())) / len(rows)
    return Compared(chance, gain, (gain - half, gain + half))
