"""Metrics of our own that both executors compute: ours from arrays, TFX's row by row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.proto import metrics_for_slice_pb2 as protos

from components.compat import tfma as compat
from components.compat.tfma.columnar import Binned, Floats, Numbers, Sums, in_one_bin
from components.evaluator import intervals
from components.evaluator.intervals import Interval
from components.evaluator.keyed_metric import KeyedMetric

Bins = Callable[[Numbers, Numbers], Binned]
"""(labels, predictions) → bins and summands of the rows, see compat.tfma.columnar."""
Accumulator = dict[int, Floats]
"""Bin → number of rows, and sums of the summands; all weighted."""


WEIGHTS = "example weights"
"""What a metric names as its output to read the weights of the rows."""


class Effective(NamedTuple):
    """The effective sample size of weighted rows: as many rows of equal weight have a mean of the same variance.

    Source: L. Kish, Survey sampling, 1965.

    Attributes:
      scale: the factor of the sums of weights at which they are the effective sample size.
      rows: the effective sample size.
    """

    scale: float
    rows: float


def effective(
    eval_config: tfma.EvalConfig | None, key_fields: Mapping[str, Any]
) -> tuple[list[tfma.metrics.MetricComputation], Callable[[Mapping[Any, Any]], Effective | None]]:
    """Returns what computes the effective sample size, by which intervals are computed.

    Args:
      eval_config: TFMA's config.
      key_fields: see KeyedMetric.

    Returns:
      Computations, and a function of the results of a slice, which returns None if the metric is not weighted.
    """
    if not key_fields["example_weighted"]:
        return [], lambda results: None
    key = tfma.metrics.MetricKey(name=compat.private("effective_rows"), **key_fields)
    counted = combined(key, eval_config, lambda _, weights: in_one_bin(weights), _effective, WEIGHTS)
    return [counted], lambda results: results[key]


def scale_of(found: Effective | None) -> float:
    """Returns the factor of the sums of weights."""
    return 1.0 if found is None else found.scale


def _effective(sums: Sums) -> Effective:
    weights, squares = sums.total()
    scale = float(weights / squares[0]) if len(squares) and squares[0] > 0 else 1.0
    return Effective(scale, weights * scale)


class ColumnarCombiner(beam.CombineFn):  # type: ignore[misc]
    """A combiner for TFMA, which is also the columnar form of itself.

    Args:
      key: the key of its result.
      eval_config: TFMA's config.
      bins: assigns bins and summands to rows.
      value: sums → the result.
      output: the output of the model that it reads instead of the prediction; or several ones, separated by commas,
        side by side. If a model does not have it, the bins are those of NaN.
    """

    def __init__(
        self,
        key: Any,
        eval_config: tfma.EvalConfig | None,
        bins: Bins,
        value: Callable[[Sums], Any],
        output: str = "",
    ) -> None:
        self._key, self._eval_config, self.bins, self._value, self.output = key, eval_config, bins, value, output
        self._of_output = compat.with_output(eval_config, output) if output not in ("", WEIGHTS) else eval_config

    def result(self, sums: Sums) -> dict[Any, Any]:
        """Returns the result of these sums, by key."""
        return {self._key: self._value(sums)}

    def create_accumulator(self) -> Accumulator:
        """Returns the accumulator of no rows."""
        return {}

    def add_input(self, accumulator: Accumulator, element: Any) -> Accumulator:
        """Adds an example."""
        fields = {name: getattr(self._key, name) for name in ("model_name", "output_name", "example_weighted")}
        has_output = self.output in ("", WEIGHTS) or compat.has_output(element, self._key.model_name, self.output)
        config = self._of_output if has_output else self._eval_config
        for label, prediction, weight in compat.label_prediction_weight(element, config, **fields):
            labels, predictions = np.ravel(label), np.ravel(prediction)
            if self.output == WEIGHTS:
                predictions = np.ravel(weight).astype(np.float64)
            if not has_output:
                predictions = np.full(1, np.nan)
            if labels.size != predictions.size:
                predictions = predictions[np.newaxis]
            for at, summands in zip(*self.bins(labels, predictions), strict=True):
                _add(accumulator, int(at), float(np.ravel(weight)[0]) * np.array([1.0, *summands]))
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Accumulator]) -> Accumulator:
        """Adds up accumulators."""
        merged: Accumulator = {}
        for accumulator in accumulators:
            for at, sums in accumulator.items():
                _add(merged, at, sums)
        return merged

    def extract_output(self, accumulator: Accumulator) -> dict[Any, Any]:
        """Returns the result, by key."""
        bins = sorted(accumulator)
        sums = np.array([accumulator[at] for at in bins]).reshape(len(bins), -1) if bins else np.empty((0, 1))
        return self.result(Sums(np.array(bins, np.int64), sums[:, 0], sums[:, 1:]))


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
      interval: (mean, mean of the squares, number of rows) → the interval.
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
            key, total_key = (
                tfma.metrics.MetricKey(name=each, **key_fields) for each in (name, compat.private(f"total_{name}"))
            )

            def derived(results: Mapping[Any, Any]) -> dict[Any, Any]:
                return {key: results[total_key][0]}

            weighed, effective_rows = effective(eval_config, key_fields)

            def bounds(results: Mapping[Any, Any]) -> dict[Any, Any]:
                mean, squares, rows = results[total_key]
                return {key: bounded(mean, interval(mean, squares, rows * scale_of(effective_rows(results))))}

            return [
                *weighed,
                combined(total_key, eval_config, bins, _means, output),
                tfma.metrics.DerivedMetricComputation([key], derived),
                compat.interval_computation(key, bounds),
            ]

        super().__init__(name, computations)


def _means(sums: Sums) -> tuple[float, float, float]:
    """Returns the mean, the mean square and the number of rows; NaN without rows."""
    rows, totals = sums.total()
    mean, square = (totals / rows).tolist() if rows else (float("nan"), float("nan"))
    return mean, square, rows


def bounded(value: float, interval: Interval | None) -> Any:
    """Returns a value with its interval as TFMA's message, or the value if there is no interval."""
    if interval is None or not all(map(math.isfinite, interval)):
        return value
    low, high = interval
    return protos.BoundedValue(value={"value": value}, lower_bound={"value": low}, upper_bound={"value": high})


def combined(
    key: Any, eval_config: tfma.EvalConfig | None, bins: Bins, value: Callable[[Sums], Any], output: str = ""
) -> tfma.metrics.MetricComputation:
    """Returns the computation of a ColumnarCombiner."""
    return tfma.metrics.MetricComputation([key], None, ColumnarCombiner(key, eval_config, bins, value, output))


def _add(accumulator: Accumulator, at: int, sums: Floats) -> None:
    accumulator[at] = accumulator[at] + sums if at in accumulator else sums
