"""The crossentropy of a multiclass task, which a class that the training split does not have cannot break."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.metrics import metric_types, metric_util

from components.evaluator import intervals
from components.evaluator.evidence import bounded

_LEAST = 1e-7
"""The least probability that counts, as tf_keras has it; a class that the model does not know has this."""


class MulticlassCrossentropy(tfma.metrics.Metric):  # type: ignore[misc]
    """The mean of -log(probability of the right class), by natural logarithm.

    A label outside of 0 … classes - 1, as a class has that the training split lacks, counts as one of the least
    probability. tf_keras' own metric, which TFMA would take, raises an error there.
    """

    def __init__(self, name: str) -> None:
        super().__init__(tfma.metrics.merge_per_key_computations(_computations), name=name)


def _computations(
    name: str,
    eval_config: tfma.EvalConfig | None = None,
    model_name: str = "",
    output_name: str = "",
    example_weighted: bool = False,
) -> list[Any]:
    # A name that begins so is private: TFMA writes it nowhere.
    key, kept = (
        tfma.metrics.MetricKey(
            name=each, model_name=model_name, output_name=output_name, example_weighted=example_weighted
        )
        for each in (name, f"_total_{name}")
    )

    def mean(found: Mapping[Any, Any]) -> dict[Any, Any]:
        return {key: found[kept].mean(found[kept].losses)}

    def bounds(found: Mapping[Any, Any]) -> dict[Any, Any]:
        total = found[kept]
        value = total.mean(total.losses)
        return {key: bounded(value, intervals.of_mean(value, total.mean(total.squares), total.examples))}

    return [
        tfma.metrics.MetricComputation([kept], None, _Sum(kept, eval_config)),
        tfma.metrics.DerivedMetricComputation([key], mean),
        metric_types.CIDerivedMetricComputation([key], bounds),
    ]


@dataclass
class _Total:
    """Losses, their squares and examples, all weighted."""

    losses: float = 0.0
    squares: float = 0.0
    examples: float = 0.0

    def mean(self, total: float) -> float:
        """A total over the examples; NaN where there are none."""
        return total / self.examples if self.examples else math.nan


class _Sum(beam.CombineFn):  # type: ignore[misc]
    """Adds the losses of examples up."""

    def __init__(self, key: Any, eval_config: tfma.EvalConfig | None) -> None:
        self._key, self._eval_config = key, eval_config

    def create_accumulator(self) -> _Total:
        return _Total()

    def add_input(self, total: _Total, element: Any) -> _Total:
        read = metric_util.to_label_prediction_example_weight(
            element,
            eval_config=self._eval_config,
            model_name=self._key.model_name,
            output_name=self._key.output_name,
            example_weighted=self._key.example_weighted,
            flatten=False,
        )
        for label, prediction, weight in read:
            of_class, asked = np.ravel(prediction), int(np.ravel(label)[0])
            probability = float(of_class[asked]) if 0 <= asked < len(of_class) else 0.0
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
