"""Metrics of this project that both executors compute: ours from arrays, TFX's row by row."""

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
from components.evaluator import intervals
from components.evaluator.binned_sums import Table, add_tables
from components.evaluator.binning import Binned, Floats, Numbers, Sums, in_one_bin, mean
from components.evaluator.intervals import Interval
from components.evaluator.keyed_metric import KeyedMetric
from components.evaluator.ordered_bins import MOST

Bins = Callable[[Numbers, Numbers], Binned]
"""(labels, predictions) → bins and summands of the rows; see components/evaluator/binning."""
COLUMN = "column:"
"""Prefix of an output that is a numeric column of the examples. It is NaN where a row does not have one value."""
Accumulator = dict[int, Floats]
"""Bin → number of rows, and sums of the summands; all weighted."""


class WeightedSums(NamedTuple):
    """The sums that determine a weighted metric and its variance.

    The variance of a weighted mean of independent rows is the sum of weight² * (value - mean)² / (sum of weights)². It
    also holds for weights that depend on label and prediction, such as inverse sampling rates, where an effective
    sample size does not.

    Source: W. G. Cochran, Sampling techniques, 3rd edition, 1977, section 6.3 (the variance of a ratio, linearized).

    Attributes:
      sums: Sums by the weights of the rows.
      squared: Sums by the squared weights, in the same bins; without weights, the same object as `sums`.
    """

    sums: Sums
    squared: Sums

    def select(self, is_selected: npt.NDArray[np.bool_]) -> WeightedSums:
        """Return some of the bins.

        Args:
          is_selected: Whether to keep the bin, bool [bins].
        """
        sums, squared = (Sums(*(values[is_selected] for values in by_weight)) for by_weight in self)
        return WeightedSums(sums, sums if self.squared is self.sums else squared)


def make_weighted_sums(
    name: str,
    eval_config: tfma.EvalConfig | None,
    key_fields: Mapping[str, Any],
    bins: Bins,
    output: str = "",
    ordered: bool = False,
) -> tuple[list[tfma.metrics.MetricComputation], Callable[[Mapping[Any, Any]], WeightedSums]]:
    """Return the computations of WeightedSums, and a function that selects their results among all results of a slice.

    Args:
      name: Name for the sums, different from the names of metrics. Sums with one name and model are computed once.
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
        make_computation(key, eval_config, bins, identity, output, power, ordered) for power, key in enumerate(keys, 1)
    ]
    return computations, lambda results: WeightedSums(results[keys[0]], results[keys[-1]])


def identity(sums: Sums) -> Sums:
    """Return the sums themselves as the value of a combiner."""
    return sums


def raise_weights(weights: Floats, power: int) -> Floats:
    """Return a power of weights, [rows].

    For power 0 the result is 1 for positive weights and 0 for others, so that rows with weight 0 never count.
    """
    return np.where(weights > 0, weights**power, 0.0)


class ColumnarCombiner(beam.CombineFn):  # type: ignore[misc]
    """A combiner for TFMA that can also be computed from arrays.

    Args:
      key: Key of its result.
      eval_config: TFMA's config.
      bins: Assigns bins and summands to rows.
      value: Sums → the result.
      output: Output of the model to read instead of the prediction; or several outputs, separated by commas, whose
        columns are joined, where an empty name is the prediction, and COLUMN precedes a column of the examples. If the
        model lacks an output, `bins` receives NaN.
      power: Power of the rows' weights that the sums are weighted by; see `raise_weights`.
      ordered: Whether the bins are bins of `ordered_bins`.

    Attributes:
      model_name: Name of the model to evaluate; "" for the only model.
      columns: Columns of the examples that `output` names.
      is_weighted: Whether the sums depend on the weights of the rows.
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
        self.model_name, self.is_weighted = str(key.model_name or ""), bool(key.example_weighted)
        self.columns = [name.removeprefix(COLUMN) for name in output.split(",") if name.startswith(COLUMN)]
        self._output_config = compat.with_output(eval_config, output) if output else eval_config

    def result(self, sums: Sums) -> dict[Any, Any]:
        """Return the result of these sums, by key."""
        return {self._key: self._value(sums)}

    def create_accumulator(self) -> Accumulator:
        """Return the accumulator without rows."""
        return {}

    def add_input(self, accumulator: Accumulator, element: Any) -> Accumulator:
        """Add an example."""
        fields = {name: getattr(self._key, name) for name in ("model_name", "output_name", "example_weighted")}
        has_output = not self.output or compat.has_output(element, self._key.model_name, self.output)
        config = self._output_config if has_output else self._eval_config
        for label, prediction, weight in compat.label_prediction_weight(element, config, **fields):
            labels, predictions = np.ravel(label), np.ravel(prediction)
            if not has_output:
                predictions = np.full(1, np.nan)
            if labels.size != predictions.size:
                predictions = predictions[np.newaxis]
            factor = float(raise_weights(np.ravel(weight).astype(np.float64)[:1], self.power)[0])
            for at, summands in zip(*self.bins(labels, predictions), strict=True):
                _add(accumulator, int(at), factor * np.array([1.0, *summands]))
        return self._limit_bins(accumulator)

    def _limit_bins(self, accumulator: Accumulator) -> Accumulator:
        """Merge neighbouring ordered bins if there are too many, to bound the memory."""
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
        return self._limit_bins(merged)

    def extract_output(self, accumulator: Accumulator) -> dict[Any, Any]:
        """Return the result, by key."""
        return self.result(self._table(accumulator).select_slice(0))

    def _table(self, accumulator: Accumulator) -> Table:
        """Return the sums as a table with one slice, and with a limited number of bins if they are ordered."""
        bins = sorted(accumulator)
        sums = np.array([accumulator[at] for at in bins]).reshape(len(bins), -1) if bins else np.empty((0, 1))
        zeros = np.zeros(len(bins), np.int64)
        table = Table(zeros, np.array(bins, np.int64), sums[:, 0], sums[:, 1:], self.ordered)
        return add_tables([table]) if self.ordered and bins else table


class ColumnarMetric(KeyedMetric):
    """A metric that is a function of sums.

    Args:
      name: Name of the metric.
      bins: Assigns bins and summands to rows.
      value: Sums → the metric's value.
      output: See ColumnarCombiner.
    """

    def __init__(self, name: str, bins: Bins, value: Callable[[Sums], float], output: str = "") -> None:
        def computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            return [make_computation(tfma.metrics.MetricKey(name=name, **key_fields), eval_config, bins, value, output)]

        super().__init__(name, computations)


class MeanMetric(KeyedMetric):
    """A mean over the rows, with its confidence interval.

    Args:
      name: Name of the metric.
      values: (labels, predictions) → the values of the rows, [rows]; rows with NaN are ignored.
      interval: (mean, mean of the squares, number of rows) → the interval; see `mean_and_squares`.
      output: See ColumnarCombiner.
    """

    def __init__(
        self,
        name: str,
        values: Callable[[Numbers, Numbers], Numbers],
        interval: Callable[[float, float, float], Interval | None] = intervals.compute_mean_interval,
        output: str = "",
    ) -> None:
        def bins(labels: Numbers, predictions: Numbers) -> Binned:
            row_values = values(labels, predictions)
            with np.errstate(over="ignore"):
                return in_one_bin(row_values, np.square(row_values))

        def computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            key = tfma.metrics.MetricKey(name=name, **key_fields)
            sums, select_sums = make_weighted_sums(f"total_{name}", eval_config, key_fields, bins, output)

            def derive(results: Mapping[Any, Any]) -> dict[Any, Any]:
                return {key: mean(select_sums(results).sums)}

            def bounds(results: Mapping[Any, Any]) -> dict[Any, Any]:
                value, squares, rows = mean_and_squares(*(by_weight.total() for by_weight in select_sums(results)))
                return {key: to_bounded_value(value, interval(value, squares, rows))}

            return [
                *sums,
                tfma.metrics.DerivedMetricComputation([key], derive),
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
    squared_rows, (squared_value, squared_square, *_) = squared
    if not rows or not squared_rows:
        return math.nan, math.nan, 0.0
    average = float(value / rows)
    deviations = squared_square - 2 * average * squared_value + average**2 * squared_rows
    return average, float(average**2 + deviations / squared_rows), float(rows**2 / squared_rows)


def to_bounded_value(value: float, interval: Interval | None) -> Any:
    """Return a value with its interval as TFMA's message, or only the value without a finite interval."""
    if interval is None or not all(map(math.isfinite, interval)):
        return value
    low, high = interval
    return protos.BoundedValue(value={"value": value}, lower_bound={"value": low}, upper_bound={"value": high})


def make_computation(
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


def is_bounded_value(value: object) -> bool:
    """Return whether the value of a metric has an interval."""
    return isinstance(value, protos.BoundedValue)
