"""The results of columnar metrics, from the merged sums of some parts of the rows, as the Evaluator computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow_model_analysis as tfma

from components.compat.tfma import evaluation
from components.evaluator import binned_sums
from components.evaluator.binned_sums import Slices
from components.evaluator.columnar import Metrics
from components.evaluator.columnar_metric import raise_weights
from components.evaluator.eval_config import eval_config
from components.evaluator.plan import EvaluationPlan

Array = npt.NDArray[Any]


def evaluate(
    plan: EvaluationPlan, labels: Array, read: Callable[[str], Array], weights: Array | None = None, parts: int = 1
) -> dict[str, Any]:
    """Return the results of a plan by name.

    Args:
      plan: Metrics of a label.
      labels: Labels; [rows, ...].
      read: Name of an output, see `Evaluated.output` → its values; [rows, ...].
      weights: Weights; [rows].
      parts: Number of parts.
    """
    config = tfma.utils.update_eval_config_with_defaults(
        eval_config(plan, plan.labels[0]), has_baseline=False, rubber_stamp=True
    )
    computed = Metrics(config)
    assert computed.row_by_row is None, "TFMA would compute them row by row"
    results: evaluation.Results = {}
    for combiner in computed.columnar:
        tables = []
        for rows in np.array_split(np.arange(len(labels)), parts):
            slices = Slices([()], np.arange(len(rows)), np.zeros(len(rows), np.int64))
            is_weighted = weights is not None and combiner.is_weighted
            factors = raise_weights(weights[rows], combiner.power) if weights is not None and is_weighted else None
            binned = combiner.bins(labels[rows], read(combiner.output)[rows])
            tables.append(binned_sums.count(binned, slices, factors, ordered=combiner.ordered))
        results.update(combiner.result(binned_sums.add_tables(tables).select_slice(0)))
    completed = evaluation.complete_results(results, computed.parts, config)
    return {key.name: value for key, value in completed.items()}


def value_of(result: Any) -> float:
    """Return the value of a result with or without an interval."""
    return float(result.value.value if hasattr(result, "lower_bound") else result)


def bounds_of(result: Any) -> tuple[float, float]:
    """Return the interval of a result."""
    return float(result.lower_bound.value), float(result.upper_bound.value)
