"""The crossentropy of a multiclass task, defined also for classes that the training split does not have."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma

from components.compat import tfma as compat
from components.evaluator import intervals
from components.evaluator.keyed_metric import KeyedMetric
from components.evaluator.plot_metrics import bounded

_LEAST = 1e-7
"""Smallest probability, as in tf_keras; also the probability of a class that the model does not have."""


class MulticlassCrossentropy(KeyedMetric):
    """The mean of -ln(probability of the label's class).

    A label outside of [0, classes), as of a class that the training split does not have, counts with the smallest
    probability. tf_keras' own metric, which TFMA uses, raises an error for it.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, _computations)


def _computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
    key, total_key = (
        tfma.metrics.MetricKey(name=each, **key_fields) for each in (name, compat.private(f"total_{name}"))
    )

    def mean(results: Mapping[Any, Any]) -> dict[Any, Any]:
        return {key: results[total_key].mean(results[total_key].losses)}

    def bounds(results: Mapping[Any, Any]) -> dict[Any, Any]:
        total = results[total_key]
        value = total.mean(total.losses)
        return {key: bounded(value, intervals.of_mean(value, total.mean(total.squares), total.examples))}

    return [
        tfma.metrics.MetricComputation([total_key], None, _Sum(total_key, eval_config, key_fields)),
        tfma.metrics.DerivedMetricComputation([key], mean),
        compat.interval_computation(key, bounds),
    ]


@dataclass
class _Total:
    """The sums of losses, squared losses and examples, all weighted."""

    losses: float = 0.0
    squares: float = 0.0
    examples: float = 0.0

    def mean(self, total: float) -> float:
        """Divides a sum by the number of examples; NaN without examples."""
        return total / self.examples if self.examples else math.nan


class _Sum(beam.CombineFn):  # type: ignore[misc]
    """Adds the losses of examples to a total."""

    def __init__(self, key: Any, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> None:
        self._key, self._eval_config, self._key_fields = key, eval_config, key_fields

    def create_accumulator(self) -> _Total:
        return _Total()

    def add_input(self, total: _Total, element: Any) -> _Total:
        for label, prediction, weight in compat.label_prediction_weight(element, self._eval_config, **self._key_fields):
            probabilities, index = np.ravel(prediction), int(np.ravel(label)[0])
            probability = float(probabilities[index]) if 0 <= index < len(probabilities) else 0.0
            each, loss = float(np.ravel(weight)[0]), -math.log(max(probability, _LEAST))
            total.losses += each * loss
            total.squares += each * loss * loss
            total.examples += each
        return total

    def merge_accumulators(self, totals: Iterable[_Total]) -> _Total:
        merged = _Total()
        for total in totals:
            merged.losses += total.losses
            merged.squares += total.squares
            merged.examples += total.examples
        return merged

    def extract_output(self, total: _Total) -> dict[Any, _Total]:
        return {self._key: total}
