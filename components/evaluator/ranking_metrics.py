"""Metrics of the order of rows within groups, such as users: means over the groups, with their intervals.

Different groups are independent, rows of a group are not. An interval therefore covers the variance between groups;
see `intervals.compute_group_mean_interval`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma

from components.base.errors import InputError
from components.compat import tfma as compat
from components.evaluator import binned_sums, intervals
from components.evaluator.binned_sums import Slices, Table
from components.evaluator.binning import Sums
from components.evaluator.columnar_metric import to_bounded_value
from components.evaluator.keyed_metric import KeyedMetric
from components.evaluator.ranking import Measured, Ranking


class _GroupMean(NamedTuple):
    """The weighted mean over groups.

    Attributes:
      mean: The mean; NaN without groups.
      error: Standard error of the mean; 0 with fewer than two groups.
    """

    mean: float
    error: float


class GroupedCombiner(beam.CombineFn):  # type: ignore[misc]
    """A combiner for TFMA that cannot take one row at a time; `columnar.CountGroups` computes its sums.

    Args:
      key: Key of its result.
      measure: Ranking → values and weights of the groups.

    Attributes:
      model_name: Name of the model to evaluate; "" for the only model.
    """

    def __init__(self, key: Any, measure: Callable[[Ranking], Measured]) -> None:
        self._key, self._measure = key, measure
        self.model_name = str(key.model_name or "")

    def table(self, ranking: Ranking, slices: Slices) -> Table:
        """Return the sums over the groups of a ranking.

        Args:
          ranking: The groups.
          slices: The slices of their rows.
        """
        values, weights = self._measure(ranking)
        counted = ~np.isnan(values)
        x, w = values[counted], weights[counted]
        summands = np.stack([w, w * x, w * w, w * w * x, w * w * x * x], axis=1)
        group_slices = Slices(slices.keys, np.arange(len(x)), ranking.slices[counted])
        return binned_sums.count((np.zeros(len(x), np.int64), summands), group_slices)

    def result(self, sums: Sums) -> dict[Any, Any]:
        """Return the result of these sums, by key."""
        groups, totals = sums.total()
        if not groups or not totals[0]:
            return {self._key: _GroupMean(float("nan"), 0.0)}
        weight, weighted, *squares = totals.tolist()
        mean = weighted / weight
        residuals = max(squares[2] - 2 * mean * squares[1] + mean**2 * squares[0], 0.0)
        # A variance that is smaller relative to the sums is a rounding error.
        residuals = residuals if groups > 1 and residuals > 1e-12 * squares[0] else 0.0
        error = float(np.sqrt(residuals * groups / (groups - 1))) / weight if residuals else 0.0
        return {self._key: _GroupMean(mean, error)}

    def create_accumulator(self) -> None:
        """Return nothing: TFMA calls this before the first row."""

    def add_input(self, accumulator: None, element: Any) -> None:
        """Refuse a row.

        Raises:
          InputError: Always.
        """
        raise make_grouping_error("TFMA, row by row")

    def merge_accumulators(self, accumulators: Iterable[None]) -> None:
        """Return nothing."""

    def extract_output(self, accumulator: None) -> dict[Any, Any]:
        """Return the result without rows."""
        return {self._key: _GroupMean(float("nan"), 0.0)}


def make_grouping_error(evaluator: str) -> InputError:
    """Return the error for metrics that TFX's evaluation does not compute: of groups, multilabel, and retrieval.

    Args:
      evaluator: Code that evaluates the model, and the reason.
    """
    return InputError(
        f"evaluation: group, multilabel and retrieval metrics expect the columnar Evaluator, received {evaluator}",
        "remove evaluation.group and the metrics of groups; for the other tasks give the pipeline another name",
    )


class GroupMetric(KeyedMetric):
    """The mean of a measure over groups.

    Args:
      name: Name of the metric.
      measure: Key of MEASURES.
      rows: Number of rows per group, or of items, that count, starting with the highest prediction; None for all.
    """

    def __init__(self, name: str, measure: str, rows: int | None = None) -> None:
        def measure_groups(ranking: Ranking) -> Measured:
            return MEASURES[measure](ranking, rows)

        def computations(name: str, _: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            key = tfma.metrics.MetricKey(name=name, **key_fields)
            total_key = tfma.metrics.MetricKey(name=compat.private(f"total_{name}"), **key_fields)

            def bounds(results: Mapping[Any, Any]) -> dict[Any, Any]:
                mean, error = results[total_key]
                return {key: to_bounded_value(mean, intervals.compute_group_mean_interval(mean, error))}

            return [
                tfma.metrics.MetricComputation([total_key], None, GroupedCombiner(total_key, measure_groups)),
                tfma.metrics.DerivedMetricComputation([key], lambda results: {key: results[total_key].mean}),
                compat.interval_computation(key, bounds),
            ]

        super().__init__(name, computations)


MEASURES: dict[str, Callable[[Ranking, Any], Measured]] = {
    # GAUC: the area under the ROC curve of groups with both classes, weighted by their rows.
    "auc": lambda ranking, _: ranking.measure_auc(),
    # NDCG of the groups with a label above 0.
    "gain": Ranking.measure_gain,
    # 1 / rank of the first label above 0; groups without such a label are ignored.
    "reciprocal_rank": Ranking.measure_reciprocal_rank,
    "recall": Ranking.measure_recall,
    "precision": Ranking.measure_precision,
    # The same for a retrieval, which ranks the items of a group's interactions among all items.
    "item_recall": Ranking.measure_item_recall,
    "item_gain": Ranking.measure_item_gain,
}
