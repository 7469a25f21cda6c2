"""Metrics of the order of rows within groups, such as users: means over the groups, with their intervals.

The groups are the independent units, so an interval covers the variance between groups: see intervals.of_groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma

from components.base.errors import InputError
from components.compat import tfma as compat
from components.compat.tfma.columnar import Sums
from components.evaluator import binned_sums, intervals
from components.evaluator.binned_sums import Slices, Table
from components.evaluator.columnar_metric import bounded
from components.evaluator.keyed_metric import KeyedMetric
from components.evaluator.ranking import Measured, Ranking


class _Total(NamedTuple):
    """The weighted mean over groups.

    Attributes:
      mean: NaN without groups.
      error: its standard error, 0 with fewer than two groups.
    """

    mean: float
    error: float


class GroupedCombiner(beam.CombineFn):  # type: ignore[misc]
    """A combiner for TFMA that has no row-by-row form: see columnar.CountGroups, which computes its sums.

    Args:
      key: the key of its result.
      measure: ranking → value and weight of each group.
    """

    def __init__(self, key: Any, measure: Callable[[Ranking], Measured]) -> None:
        self._key, self._measure = key, measure

    def table(self, ranking: Ranking, slices: Slices) -> Table:
        """Return the sums over the groups of a ranking.

        Args:
          ranking: the groups.
          slices: the slices of their rows.
        """
        values, weights = self._measure(ranking)
        counted = ~np.isnan(values)
        x, w = values[counted], weights[counted]
        summands = np.stack([w, w * x, w * w, w * w * x, w * w * x * x], axis=1)
        of_groups = Slices(slices.keys, np.arange(len(x)), ranking.slices[counted])
        return binned_sums.count((np.zeros(len(x), np.int64), summands), of_groups)

    def result(self, sums: Sums) -> dict[Any, Any]:
        """Return the result of these sums, by key."""
        groups, totals = sums.total()
        if not groups or not totals[0]:
            return {self._key: _Total(float("nan"), 0.0)}
        weight, weighted, *squares = totals.tolist()
        mean = weighted / weight
        residuals = max(squares[2] - 2 * mean * squares[1] + mean**2 * squares[0], 0.0)
        # A variance that is smaller relative to the sums is a rounding error.
        residuals = residuals if groups > 1 and residuals > 1e-12 * squares[0] else 0.0
        error = float(np.sqrt(residuals * groups / (groups - 1))) / weight if residuals else 0.0
        return {self._key: _Total(mean, error)}

    def create_accumulator(self) -> None:
        """Return nothing: TFMA calls this before the first row."""

    def add_input(self, accumulator: None, element: Any) -> None:
        """Refuses a row.

        Raises:
          InputError: always.
        """
        raise refused("one by TFMA, row by row")

    def merge_accumulators(self, accumulators: Iterable[None]) -> None:
        """Return nothing."""

    def extract_output(self, accumulator: None) -> dict[Any, Any]:
        """Return the result without rows."""
        return {self._key: _Total(float("nan"), 0.0)}


def refused(why: str) -> InputError:
    """Return the error of an evaluation that brings no rows of a group together, and ha no metrics of a retrieval."""
    return InputError(
        f"evaluation: metrics of groups, and of a retrieval, expect an evaluation in record batches; received {why}",
        "remove evaluation.group and the metrics of groups; for a retrieval give the pipeline another name",
    )


class _GroupedMetric(KeyedMetric):
    def __init__(self, name: str, measure: Callable[[Ranking], Measured]) -> None:
        def computations(name: str, _: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            key, total_key = (
                tfma.metrics.MetricKey(name=each, **key_fields) for each in (name, compat.private(f"total_{name}"))
            )

            def bounds(results: Mapping[Any, Any]) -> dict[Any, Any]:
                mean, error = results[total_key]
                return {key: bounded(mean, intervals.of_groups(mean, error))}

            return [
                tfma.metrics.MetricComputation([total_key], None, GroupedCombiner(total_key, measure)),
                tfma.metrics.DerivedMetricComputation([key], lambda results: {key: results[total_key].mean}),
                compat.interval_computation(key, bounds),
            ]

        super().__init__(name, computations)


class GroupedAuc(_GroupedMetric):
    """The mean area under the ROC curve of the groups with both classes, weighted by their rows (GAUC)."""

    def __init__(self, name: str) -> None:
        super().__init__(name, Ranking.area)


class MeanDiscountedGain(_GroupedMetric):
    """The mean normalized discounted cumulated gain (NDCG) of the groups with a label above 0.

    Args:
      name: the metric's name.
      rows: how many rows of a group count, those with the highest predictions.
    """

    def __init__(self, name: str, rows: int) -> None:
        super().__init__(name, lambda ranking: ranking.discounted_gain(rows))


class MeanReciprocalRank(_GroupedMetric):
    """The mean of 1 / rank of the first label above 0, of the groups that have one; `rows` as MeanDiscountedGain."""

    def __init__(self, name: str, rows: int | None = None) -> None:
        super().__init__(name, lambda ranking: ranking.reciprocal_rank(rows))


class GroupedRecall(_GroupedMetric):
    """The mean share of a group's labels 1 among its first rows; arguments as MeanDiscountedGain."""

    def __init__(self, name: str, rows: int) -> None:
        super().__init__(name, lambda ranking: ranking.recall(rows))


class GroupedPrecision(_GroupedMetric):
    """The mean share of label 1 among the first rows of a group with any; arguments as MeanDiscountedGain."""

    def __init__(self, name: str, rows: int) -> None:
        super().__init__(name, lambda ranking: ranking.precision(rows))


class GroupedItemRecall(_GroupedMetric):
    """The mean share of a group's interactions whose item a retrieval has among the first `rows` of all items."""

    def __init__(self, name: str, rows: int) -> None:
        super().__init__(name, lambda ranking: ranking.item_recall(rows))


class GroupedItemGain(_GroupedMetric):
    """The mean NDCG of the items of a group's interactions among all items; arguments as GroupedItemRecall."""

    def __init__(self, name: str, rows: int) -> None:
        super().__init__(name, lambda ranking: ranking.item_gain(rows))
