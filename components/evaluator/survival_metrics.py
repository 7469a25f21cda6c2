"""Metrics of a survival task, whose rows have a time, and whether the event happened at this time.

Labels have the shape [rows, 2]: the time, and 1 for an event or 0 if the row was only observed until then (a censored
row). Predictions have the shape [rows, 1 + 2 * times]: the expected time, the cumulative hazards at some times, and the
times. Between these times, and beyond the last, the hazard of a row is constant.

Two results are read from the rows in bins. Bins of a time and an expected time determine the order of all pairs of
rows; bins of a time alone determine the Kaplan-Meier estimates and the Brier score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow_model_analysis as tfma
from scipy import integrate

from components.compat import tfma as compat
from components.evaluator import intervals, ordered_bins
from components.evaluator.binning import Binned, Floats, Ints, Numbers, Sums, finite
from components.evaluator.columnar_metric import (
    ColumnarMetric,
    MeanMetric,
    WeightedSums,
    make_weighted_sums,
    to_bounded_value,
)
from components.evaluator.intervals import Interval
from components.evaluator.keyed_metric import KeyedMetric
from components.evaluator.multilabel_metrics import deal
from components.results.model_outputs import CUMULATIVE_HAZARD, TIMES

OUTPUTS = f",{CUMULATIVE_HAZARD},{TIMES}"
"""Outputs of the model whose columns are the predictions."""
_LEAST_HAZARD = 1e-30
"""Smallest hazard at an event; the model predicts no smaller one."""
_CODE_BITS = 28
"""Bits of a number in bins of two numbers, which order it by 21 significant bits."""
_TIME_BITS = 13
"""Significant bits of a time in bins of times."""

Computations = list[tfma.metrics.MetricComputation]


class NegativeLogLikelihood(MeanMetric):
    """The mean of the negative logarithms of the density at the event, or of the survival until the last observation.

    It depends on the unit of time, by the logarithm of the unit at each event.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, compute_losses, intervals.compute_difference_interval, OUTPUTS)


class Concordance(KeyedMetric):
    """The share of the comparable pairs of rows whose expected times are ordered like their times.

    A pair is comparable if the earlier of its times is the time of an event. A pair with equal expected times counts
    half. With more than 131,072 distinct pairs of times and expected times in a slice, neighbours count as equal; see
    `ordered_bins`.

    Source: F. E. Harrell, K. L. Lee and D. B. Mark, Multivariable prognostic models, Statistics in Medicine 15, 1996.
    """

    def __init__(self, name: str) -> None:
        def computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            key = tfma.metrics.MetricKey(name=name, **key_fields)
            sums, select_sums = order_computations(eval_config, key_fields)

            def derive(results: Mapping[Any, Any]) -> dict[Any, Any]:
                return {key: compute_concordance(select_sums(results))[0]}

            def bounds(results: Mapping[Any, Any]) -> dict[Any, Any]:
                return {key: to_bounded_value(*compute_concordance(select_sums(results)))}

            return [
                *sums,
                tfma.metrics.DerivedMetricComputation([key], derive),
                compat.interval_computation(key, bounds),
            ]

        super().__init__(name, computations)


class IntegratedBrierScore(ColumnarMetric):
    """The Brier score of the survival, as the mean over the times from the first to the last but one of the model.

    Rows that are censored before a time are replaced by other rows, which have a larger weight, see `compute_errors`.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, bin_errors, lambda sums: compute_errors(sums).model, OUTPUTS)


class Predicted(NamedTuple):
    """The predictions of some rows.

    Attributes:
      expected: Expected times; [rows].
      cumulative: Cumulative hazards at the times; [rows, times].
      times: The times, ascending; [times].
    """

    expected: Floats
    cumulative: Floats
    times: Floats

    @property
    def starts(self) -> Floats:
        """The starts of the intervals that end at the times; [times]."""
        return np.append(0.0, self.times[:-1])

    @property
    def rates(self) -> Floats:
        """The hazards in the intervals; [rows, times]."""
        steps = np.diff(self.cumulative, prepend=0.0, axis=1)
        rates: Floats = np.maximum(steps / (self.times - self.starts), _LEAST_HAZARD)
        return rates

    def find_intervals(self, times: Floats) -> Ints:
        """Return the number of the interval that contains a time; [n]. The last interval does not end."""
        return np.minimum(np.searchsorted(self.times, times), len(self.times) - 1)

    def split_times(self, times: Floats) -> Floats:
        """Return the part of each time that is in each interval; [n, times]."""
        widths = np.append(np.diff(self.starts), np.inf)
        return np.clip(times[:, np.newaxis] - self.starts, 0, widths)


def split_predictions(predictions: Numbers) -> Predicted:
    """Split predictions, [rows, 1 + 2 * times].

    Raises:
      ValueError: A prediction is NaN.
    """
    values = finite(predictions)
    times = (values.shape[1] - 1) // 2
    # All rows have the same times. Without rows, they do not matter.
    return Predicted(values[:, 0], values[:, 1 : times + 1], values[:, times + 1 :].max(axis=0, initial=0.0))


def compute_losses(labels: Numbers, predictions: Numbers) -> Floats:
    """Return the negative log-likelihoods of rows, [rows]."""
    times, happened = labels.astype(np.float64).T
    predicted = split_predictions(predictions)
    rates = predicted.rates
    at_time = rates[np.arange(len(rates)), predicted.find_intervals(times)]
    losses: Floats = (rates * predicted.split_times(times)).sum(axis=1) - happened * np.log(at_time)
    return losses


def bin_losses(labels: Numbers, predictions: Numbers) -> Binned:
    """Deal the rows to groups, with the loss, and with the time and the events by interval as summands."""
    predicted = split_predictions(predictions)
    times, happened = labels.astype(np.float64).T
    events = np.zeros_like(predicted.cumulative)
    events[np.arange(len(events)), predicted.find_intervals(times)] = happened
    losses = compute_losses(labels, predictions)[:, np.newaxis]
    return deal(len(times)), np.concatenate([losses, predicted.split_times(times), events], axis=1)


def order_computations(
    eval_config: tfma.EvalConfig | None, key_fields: Mapping[str, Any]
) -> tuple[Computations, Callable[[Mapping[Any, Any]], WeightedSums]]:
    """Return the computations of the rows by time and expected time, and a function that selects their sums.

    Args:
      eval_config: TFMA's config.
      key_fields: See KeyedMetric.
    """
    return make_weighted_sums("rows by time", eval_config, key_fields, _bin_order, ordered=True)


def error_computations(
    eval_config: tfma.EvalConfig | None, key_fields: Mapping[str, Any]
) -> tuple[Computations, Callable[[Mapping[Any, Any]], WeightedSums]]:
    """Return the computations of the Brier score, and a function that selects their sums; see `order_computations`."""
    return make_weighted_sums("errors by time", eval_config, key_fields, bin_errors, OUTPUTS)


def _bin_order(labels: Numbers, predictions: Numbers) -> Binned:
    """Assign a bin to each pair of time and expected time, with the event as the summand.

    The bits of both numbers alternate in the key, so that bins at a higher level of `ordered_bins` are rectangles.
    """
    times, happened = labels.astype(np.float64).T
    keys = _spread_bits(_encode(times)) << 1 | _spread_bits(_encode(finite(predictions)))
    return ordered_bins.bins_of_keys(keys), happened[:, np.newaxis]


def _encode(numbers: Floats) -> Ints:
    """Return integers of 28 bits that order non-negative numbers."""
    codes: Ints = np.maximum(numbers, 0).astype(np.float32).view(np.int32).astype(np.int64) >> (31 - _CODE_BITS)
    return codes


_MASKS = ((16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF), (4, 0x0F0F0F0F0F0F0F0F), (2, 0x3333333333333333),
          (1, 0x5555555555555555))  # fmt: skip
"""Steps that move the bits of a number apart: a shift, and the bits that remain."""


def _spread_bits(codes: Ints) -> Ints:
    """Return integers whose even bits are the bits of the codes."""
    for shift, mask in _MASKS:
        codes = (codes | codes << shift) & mask
    return codes


def _gather_bits(keys: Ints) -> Ints:
    """Return integers whose bits are the even bits of the keys."""
    shifts = [1, 2, 4, 8, 16]
    codes = keys & _MASKS[-1][1]
    for shift, mask in zip(shifts, [*(mask for _, mask in _MASKS[-2::-1]), 0xFFFFFFFF], strict=True):
        codes = (codes | codes >> shift) & mask
    return codes


def compute_concordance(weighted: WeightedSums) -> tuple[float, Interval | None]:
    """Compute the concordance and its interval from sums of `order_computations`; NaN without comparable pairs.

    The variance is the infinitesimal jackknife: the sum of the squared derivatives by the weights of the rows.

    Source: T. Therneau and E. Atkinson, Concordance, vignette of the R package survival, 2024, section 5.
    """
    sums = weighted.sums
    if not len(sums.bins):
        return math.nan, None
    keys = ordered_bins.keys_of(sums.bins)
    times, expected = _gather_bits(keys >> 1), _gather_bits(keys)
    # Order the events at a time before the rows that are censored at this time, which were observed for longer.
    order = np.concatenate([2 * times, 2 * times + 1])
    expected = np.concatenate([expected, expected])
    weights = _split_events(sums)
    is_event = np.arange(len(order)) < len(times)
    events = np.where(is_event, weights, 0.0)
    # With equal second coordinates, all pairs are ties, which count half.
    alike = np.zeros_like(expected)
    ordered_later, later = _sum_greater(order, expected, weights), 2 * _sum_greater(order, alike, weights)
    ordered_earlier, earlier = _sum_greater(-order, -expected, events), 2 * _sum_greater(-order, alike, events)
    pairs = float(events @ later)
    if not pairs:
        return math.nan, None
    value = float(events @ ordered_later) / pairs
    derivatives = (is_event * (ordered_later - value * later) + ordered_earlier - value * earlier) / pairs
    half = intervals.Z * math.sqrt(float(_split_events(weighted.squared) @ derivatives**2))
    return value, (max(value - half, 0.0), min(value + half, 1.0))


def _split_events(sums: Sums) -> Floats:
    """Return the weights of the events of each bin, and then of the other rows; [2 * bins]."""
    events = sums.sums[:, 0]
    return np.concatenate([events, np.maximum(sums.rows - events, 0.0)])


def _sum_greater(first: Ints, second: Ints, weights: Floats) -> Floats:
    """Sum the weights of the points that are greater in both coordinates; half of them if the second is equal.

    Two numbers differ first in one of their bits. For each bit of the second coordinate, the points with equal higher
    bits are sorted by the first coordinate, and cumulative sums are computed of the points whose bit is 1.

    Args:
      first: First coordinates; [points].
      second: Second coordinates; [points].
      weights: Weights; [points].

    Returns:
      The sum for each point; [points].
    """
    _, first = np.unique(first, return_inverse=True)
    _, second = np.unique(second, return_inverse=True)
    size = int(first.max()) + 1
    sums = _sum_after(second * size + first, size, weights) / 2
    for bit in range(int(second.max()).bit_length()):
        is_upper = (second >> bit) & 1
        above = _sum_after((second >> (bit + 1)) * size + first, size, weights * is_upper)
        sums += np.where(is_upper, 0.0, above)
    return sums


def _sum_after(positions: Ints, size: int, weights: Floats) -> Floats:
    """Sum the weights of the points at greater positions in the same block of `size` positions; [points]."""
    order = np.argsort(positions, kind="stable")
    ordered = positions[order]
    cumulative = np.append(0.0, np.cumsum(weights[order]))
    block_ends = (ordered // size + 1) * size
    sums = np.empty(len(order))
    sums[order] = (
        cumulative[np.searchsorted(ordered, block_ends)] - cumulative[np.searchsorted(ordered, ordered, side="right")]
    )
    return sums


class Errors(NamedTuple):
    """Brier scores, as means over times."""

    model: float
    kaplan_meier: float


def bin_errors(labels: Numbers, predictions: Numbers) -> Binned:
    """Assign a bin to each time, rounded down to 13 significant bits.

    The summands are the event; for each time of the model but the last, the squared error of the survival, or 0 if the
    row is censored before; and these times.
    """
    times, happened = labels.astype(np.float64).T
    predicted = split_predictions(predictions)
    horizons = predicted.times[:-1]
    survival = np.exp(-predicted.cumulative[:, :-1])
    is_over = times[:, np.newaxis] <= horizons
    squares = np.where(is_over, survival**2 * happened[:, np.newaxis], (1 - survival) ** 2)
    bins = np.maximum(times, 0).astype(np.float32).view(np.int32).astype(np.int64) >> (24 - _TIME_BITS)
    return bins, np.column_stack([happened, squares, np.broadcast_to(horizons, squares.shape)])


def compute_errors(sums: Sums) -> Errors:
    """Compute the Brier scores of the model and of the Kaplan-Meier estimate; NaN without rows.

    The error of a row with an event is divided by the probability of not being censored before the event, and the error
    of a row that is observed for longer than a time by the probability of not being censored until this time.

    Source: E. Graf, C. Schmoor, W. Sauerbrei and M. Schumacher, Assessment and comparison of prognostic classification
    schemes for survival data, Statistics in Medicine 18, 1999.
    """
    total = float(sums.rows.sum())
    if not total:
        return Errors(math.nan, math.nan)
    # The bins of integers and of other short numbers contain a single time.
    times = (sums.bins << (24 - _TIME_BITS)).astype(np.int32).view(np.float32).astype(np.float64)
    events, columns = sums.sums[:, 0], sums.sums.shape[1] // 2
    squares = sums.sums[:, 1 : columns + 1]
    # The times are float32; their mean over equal values may differ in the last bits.
    horizons = (sums.sums[:, columns + 1 :].sum(axis=0) / total).astype(np.float32).astype(np.float64)
    at_risk = np.cumsum(sums.rows[::-1])[::-1]
    survival = np.cumprod(1 - _divide(events, at_risk))
    censored = np.maximum(sums.rows - events, 0.0)
    observed = np.cumprod(1 - _divide(censored, at_risk - events))
    observed_before = np.append(1.0, observed[:-1])
    scores = []
    for horizon, errors in zip(horizons, squares.T, strict=True):
        is_over = times <= horizon
        number = int(is_over.sum())
        observed_until, expected = (float(np.append(1.0, curve)[number]) for curve in (observed, survival))
        if observed_until <= 0:
            # All rows are censored until this time.
            break
        model = float((errors / np.where(is_over, observed_before, observed_until)).sum())
        event_weight = float((events / observed_before)[is_over].sum())
        survivor_weight = float(sums.rows[~is_over].sum()) / observed_until
        constant = expected**2 * event_weight + (1 - expected) ** 2 * survivor_weight
        scores.append((model / total, constant / total))
    if not scores:
        return Errors(math.nan, math.nan)
    return Errors(*(_average(np.array(values), horizons[: len(scores)]) for values in zip(*scores, strict=True)))


def _divide(numbers: Floats, divisors: Floats) -> Floats:
    """Return the quotients, and 0 where the number is 0."""
    return np.divide(numbers, divisors, out=np.zeros_like(divisors), where=numbers > 0)


def _average(values: Floats, times: Floats) -> float:
    """Return the mean of a function over time, linear between its values."""
    if len(values) == 1:
        return float(values[0])
    return float(integrate.trapezoid(values, times) / (times[-1] - times[0]))
