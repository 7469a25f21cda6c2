"""Metrics of our own that both executors compute: ours from arrays, TFX's row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma

from components.compat import tfma as compat
from components.compat.tfma.columnar import Binned, Floats, Numbers, Sums
from components.evaluator.keyed_metric import KeyedMetric

Bins = Callable[[Numbers, Numbers], Binned]
"""(labels, predictions) → bins and summands of the rows, see compat.tfma.columnar."""
Accumulator = dict[int, Floats]
"""Bin → number of rows, and sums of the summands; all weighted."""


class ColumnarCombiner(beam.CombineFn):  # type: ignore[misc]
    """A combiner for TFMA, which is also the columnar form of itself.

    Args:
      key: the key of its result.
      eval_config: TFMA's config.
      bins: assigns bins and summands to rows.
      value: sums → the result.
    """

    def __init__(self, key: Any, eval_config: tfma.EvalConfig | None, bins: Bins, value: Callable[[Sums], Any]) -> None:
        self._key, self._eval_config, self.bins, self._value = key, eval_config, bins, value

    def result(self, sums: Sums) -> dict[Any, Any]:
        """Returns the result of these sums, by key."""
        return {self._key: self._value(sums)}

    def create_accumulator(self) -> Accumulator:
        """Returns the accumulator of no rows."""
        return {}

    def add_input(self, accumulator: Accumulator, element: Any) -> Accumulator:
        """Adds an example."""
        fields = {name: getattr(self._key, name) for name in ("model_name", "output_name", "example_weighted")}
        for label, prediction, weight in compat.label_prediction_weight(element, self._eval_config, **fields):
            labels, predictions = np.ravel(label), np.ravel(prediction)
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
    """

    def __init__(self, name: str, bins: Bins, value: Callable[[Sums], float]) -> None:
        def computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            return [combined(tfma.metrics.MetricKey(name=name, **key_fields), eval_config, bins, value)]

        super().__init__(name, computations)


def combined(
    key: Any, eval_config: tfma.EvalConfig | None, bins: Bins, value: Callable[[Sums], Any]
) -> tfma.metrics.MetricComputation:
    """Returns the computation of a ColumnarCombiner."""
    return tfma.metrics.MetricComputation([key], None, ColumnarCombiner(key, eval_config, bins, value))


def _add(accumulator: Accumulator, at: int, sums: Floats) -> None:
    accumulator[at] = accumulator[at] + sums if at in accumulator else sums
