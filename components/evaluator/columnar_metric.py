"""Metrics of our own that both executors compute: ours from arrays, TFX's row by row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.proto import metrics_for_slice_pb2 as protos

from components.compat import tfma as compat
from components.compat.tfma.columnar import Binned, Floats, Numbers, Sums, in_one_bin, mean
from components.evaluator import intervals
from components.evaluator.binned_sums import Table, added
from components.evaluator.intervals import Interval
from components.evaluator.keyed_metric import KeyedMetric
from components.evaluator.ordered_bins import MOST

Bins = Callable[[Numbers, Numbers], Binned]
"""(labels, predictions) → bins and summands of the rows, see compat.tfma.columnar."""
Accumulator = dict[int, Floats]
"""Bin → number of rows, and sums of the summands; all weighted."""


class WeightedSums(NamedTuple):
    """The sums that a weighted metric and its variance are computed from.

    The variance of a weighted mean of independent rows is the sum of weight² * (value - mean)² / (sum of weights)². It
    holds for weights that depend on label and prediction too, such as inverse sampling rates, where an effective sample
    size does not.

    Source: W. G. Cochran, Sampling techniques, 3rd edition, 1977, section 6.3 (the variance of a ratio, linearized).

    Attributes:
      sums: with the weights of the rows.
      squared: with their squares, in the same bins; without weights the same sums.
    """

    sums: Sums
    squared: Sums

    def select(self, wanted: npt.NDArray[np.bool_]) -> WeightedSums:
        """Return some of the bins; wanted: bool [bins]."""
        sums, squared = (Sums(each.bins[wanted], each.rows[wanted], each.sums[wanted]) for each in self)
        return WeightedSums(sums, sums if self.squared is self.sums else squared)


def weighted_sums(
    name: str,
    eval_config: tfma.EvalConfig | None,
    key_fields: Mapping[str, Any],
    bins: Bins,
    output: str = "",
    ordered: bool = False,
) -> tuple[list[tfma.metrics.MetricComputation], Callable[[Mapping[Any, Any]], WeightedSums]]:
    """Return the computations of WeightedSums, and a function that takes them from the results of a slice.

    Args:
      name: A name for the sums; no metric has it. Sums of one name and model are computed once.
      eval_config: TFMA's config.
      key_fields: See KeyedMetric.
      bins: Assigns bins and summands to rows.
      output: See ColumnarCombiner.
      ordered: See ColumnarCombiner.
    """
    keys = [tfma.metrics.MetricKey(name=compat.private(name), **key_fields)]
    if key_fields["example_weighted"]:
        keys.append(tfma.metrics.MetricKey(name=compat.private(f"{name} by squared weights"), **key_fields))
    computations = [
        combined(key, eval_config, bins, identity, output, power, ordered) for power, key in enumerate(keys, 1)
    ]
    return computations, lambda results: WeightedSums(results[keys[0]], results[keys[-1]])


def identity(sums: Sums) -> Sums:
    """Return the sums themselves as the value of a combiner."""
    return sums


def raised(weights: Floats, power: int) -> Floats:
    """Return a power of weights, [rows]; of the power 0 a weight of 0 is 0, so that such rows count nowhere."""
    return np.where(weights > 0, weights**power, 0.0)


class ColumnarCombiner(beam.CombineFn):  # type: ignore[misc]
    """A combiner for TFMA, which is also the columnar form of itself.

    Args:
      key: the key of its result.
      eval_config: TFMA's config.
      bins: assigns bins and summands to rows.
      value: sums → the result.
      output: the output of the model that it reads instead of the prediction; or several ones, separated by commas,
        side by side. If a model does not have it, the bins are those of NaN.
      power: the power of the rows' weights that the sums are weighted by; see `raised`.
      ordered: whether the bins are those of `ordered_bins`.
    """

    def __init__(
        self,
        key: Any,
        eval_config: tfma.EvalConfig | None,
        bins: Bins,
        value: Callable[[Sums], Any],
        output: str = "",
        power: int = 1,
        ordered: bool = False,
    ) -> None:
        self._key, self._eval_config, self.bins, self._value, self.output = key, eval_config, bins, value, output
        self.power, self.ordered = power, ordered
        self._of_output = compat.with_output(eval_config, output) if output else eval_config

    def result(self, sums: Sums) -> dict[Any, Any]:
        """Return the result of these sums, by key."""
        return {self._key: self._value(sums)}

    def create_accumulator(self) -> Accumulator:
        """Return the accumulator of no rows."""
        return {}

    def add_input(self, accumulator: Accumulator, element: Any) -> Accumulator:
        """Add an example."""
        fields = {name: getattr(self._key, name) for name in ("model_name", "output_name", "example_weighted")}
        has_output = not self.output or compat.has_output(element, self._key.model_name, self.output)
        config = self._of_output if has_output else self._eval_config
        for label, prediction, weight in compat.label_prediction_weight(element, config, **fields):
            labels, predictions = np.ravel(label), np.ravel(prediction)
            if not has_output:
                predictions = np.full(1, np.nan)
            if labels.size != predictions.size:
                predictions = predictions[np.newaxis]
            factor = float(raised(np.ravel(weight).astype(np.float64)[:1], self.power)[0])
            for at, summands in zip(*self.bins(labels, predictions), strict=True):
                _add(accumulator, int(at), factor * np.array([1.0, *summands]))
        return self._fitted(accumulator)

    def _fitted(self, accumulator: Accumulator) -> Accumulator:
        """Bound the memory of ordered bins."""
        if not self.ordered or len(accumulator) <= 2 * MOST:
            return accumulator
        table = self._table(accumulator)
        cells = np.column_stack([table.rows, table.sums])
        return dict(zip(table.bins.tolist(), cells, strict=True))

    def merge_accumulators(self, accumulators: Iterable[Accumulator]) -> Accumulator:
        """Add up accumulators."""
        merged: Accumulator = {}
        for accumulator in accumulators:
            for at, sums in accumulator.items():
                _add(merged, at, sums)
        return self._fitted(merged)

    def extract_output(self, accumulator: Accumulator) -> dict[Any, Any]:
        """Return the result, by key."""
        return self.result(self._table(accumulator).of_slice(0))

    def _table(self, accumulator: Accumulator) -> Table:
        """Return the sums as those of one slice; of ordered bins with a limited number."""
        bins = sorted(accumulator)
        sums = np.array([accumulator[at] for at in bins]).reshape(len(bins), -1) if bins else np.empty((0, 1))
        zeros = np.zeros(len(bins), np.int64)
        table = Table(zeros, np.array(bins, np.int64), sums[:, 0], sums[:, 1:], self.ordered)
        return added([table]) if self.ordered and bins else table


class ColumnarMetric(KeyedMetric):
    """A metric that is a function of sums.

    Args:
      name: the metric's name.
      bins: assigns bins and summands to rows.
      value: sums → the metric's value.
      output: see ColumnarCombiner.
    """

    def __init__(self, name: str, bins: Bins, value: Callable[[Sums], float], output: str = "") -> None:
        def computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            return [combined(tfma.metrics.MetricKey(name=name, **key_fields), eval_config, bins, value, output)]

        super().__init__(name, computations)


class MeanMetric(KeyedMetric):
    """A mean over the rows, with its confidence interval.

    Args:
      name: the metric's name.
      values: (labels, predictions) → the value of each row, [rows]; a row of NaN does not count.
      interval: (mean, mean of the squares, number of rows) → the interval; see `mean_and_squares`.
      output: see ColumnarCombiner.
    """

    def __init__(
        self,
        name: str,
        values: Callable[[Numbers, Numbers], Numbers],
        interval: Callable[[float, float, float], Interval | None] = intervals.of_mean,
        output: str = "",
    ) -> None:
        def bins(labels: Numbers, predictions: Numbers) -> Binned:
            found = values(labels, predictions)
            with np.errstate(over="ignore"):
                return in_one_bin(found, np.square(found))

        def computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            key = tfma.metrics.MetricKey(name=name, **key_fields)
            counted, totals = weighted_sums(f"total_{name}", eval_config, key_fields, bins, output)

            def derived(results: Mapping[Any, Any]) -> dict[Any, Any]:
                return {key: mean(totals(results).sums)}

            def bounds(results: Mapping[Any, Any]) -> dict[Any, Any]:
                value, squares, rows = mean_and_squares(*(each.total() for each in totals(results)))
                return {key: bounded(value, interval(value, squares, rows))}

            return [
                *counted,
                tfma.metrics.DerivedMetricComputation([key], derived),
                compat.interval_computation(key, bounds),
            ]

        super().__init__(name, computations)


def mean_and_squares(
    total: tuple[float, Sequence[float] | Floats], squared: tuple[float, Sequence[float] | Floats]
) -> tuple[float, float, float]:
    """Return the mean of some values with the arguments that functions of `intervals` need for its variance.

    Args:
      total: Number of rows, sum of the values and sum of their squares, by the weights of the rows.
      squared: The same by the squared weights.

    Returns:
      The mean; the mean square by the squared weights, moved to this mean; and the effective number of rows, (sum of
      weights)² / sum of squared weights. NaN without rows.
    """
    rows, (value, *_) = total
    own_rows, (own_value, own_square, *_) = squared
    if not rows or not own_rows:
        return math.nan, math.nan, 0.0
    average = float(value / rows)
    deviations = own_square - 2 * average * own_value + average**2 * own_rows
    return average, float(average**2 + deviations / own_rows), float(rows**2 / own_rows)


def bounded(value: float, interval: Interval | None) -> Any:
    """Return a value with its interval as TFMA's message, or the value if there is no interval."""
    if interval is None or not all(map(math.isfinite, interval)):
        return value
    low, high = interval
    return protos.BoundedValue(value={"value": value}, lower_bound={"value": low}, upper_bound={"value": high})


def combined(
    key: Any,
    eval_config: tfma.EvalConfig | None,
    bins: Bins,
    value: Callable[[Sums], Any],
    output: str = "",
    power: int = 1,
    ordered: bool = False,
) -> tfma.metrics.MetricComputation:
    """Return the computation of a ColumnarCombiner."""
    return tfma.metrics.MetricComputation(
        [key], None, ColumnarCombiner(key, eval_config, bins, value, output, power, ordered)
    )


def _add(accumulator: Accumulator, at: int, sums: Floats) -> None:
    accumulator[at] = accumulator[at] + sums if at in accumulator else sums
