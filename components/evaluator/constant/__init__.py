"""The comparison of a model with the best constant prediction on the same rows, from sums of one pass.

The constant is fitted to the labels of the evaluated rows: to the share of label 1, the shares of the classes, the mean
or the quantiles. Every other constant has a larger loss on these rows. To first order, the fit does not change the
variance of the difference, because the derivative of the mean loss is 0 at the optimum. For a retrieval, the constant
is the order of items by popularity in the training split.

The difference of a row is the loss of the constant minus the loss of the model. Its mean and its mean square are
functions of sums, so that the interval of the mean is the interval of paired differences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow_model_analysis as tfma

from components.base.config_section import Task
from components.compat import tfma as compat
from components.evaluator.columnar_metric import make_weighted_sums, to_bounded_value
from components.evaluator.constant.paired import Compared
from components.evaluator.constant.tasks import FORECASTS, TASKS, with_costs, with_loss
from components.evaluator.keyed_metric import KeyedMetric
from components.evaluator.scores import score_computations
from components.evaluator.survival_metrics import error_computations, order_computations

VALUE, GAIN = "constant ", "gain over the constant "
"""Prefixes of the results' names in TFMA's files, before the name of the metric."""


class ConstantComparison(KeyedMetric):
    """The metrics of the best constant prediction, and the gain of the model over it.

    Args:
      name: Name of the computation, different from the names of metrics.
      task: The task.
      of_loss: Metric of the model's loss, if the model does not have the default loss of the task.
      quantiles: Quantiles that the model predicts, if it has the quantile loss.
      forecasts: Whether to compare with the seasonal naive forecast of the rows instead, whatever the loss.
      costs: Cost of the decision 1 for a row with label 0, and of the decision 0 for a row with label 1. Empty if the
        decisions do not have costs.
    """

    def __init__(
        self,
        name: str,
        task: Task,
        of_loss: str = "",
        quantiles: Sequence[float] = (),
        forecasts: bool = False,
        costs: Sequence[float] = (),
    ) -> None:
        def computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            comparison = FORECASTS if forecasts else TASKS[task]
            if of_loss and not forecasts:
                comparison = with_loss(comparison, of_loss, quantiles)
            if costs:
                comparison = with_costs(comparison, *costs)
            needed: list[Any] = [make_weighted_sums(name, eval_config, key_fields, comparison.bins, comparison.output)]
            if task in ("binary", "anomaly"):
                needed.append(score_computations(eval_config, key_fields))
            if task == "survival":
                needed += [make(eval_config, key_fields) for make in (order_computations, error_computations)]
            for number, (bins, output) in enumerate(comparison.further):
                needed.append(make_weighted_sums(f"{name}_{number}", eval_config, key_fields, bins, output))
            counted = [computation for computations, _ in needed for computation in computations]
            values = {metric: _key(f"{VALUE}{metric}", key_fields) for metric in comparison.metrics}
            gains = {metric: _key(f"{GAIN}{metric}", key_fields) for metric in comparison.judged}

            def compare(results: Mapping[Any, Any]) -> dict[str, Compared]:
                unknown = dict.fromkeys(comparison.metrics, Compared(math.nan))
                totals = [select(results) for _, select in needed]
                if not totals[0].sums.rows.sum() > 0:
                    # The slice is empty, or all rows have weight 0.
                    return unknown
                with np.errstate(all="ignore"):
                    return unknown | comparison.compare(*totals)

            def derive(results: Mapping[Any, Any]) -> dict[Any, Any]:
                compared = compare(results)
                return {
                    **{key: compared[metric].value for metric, key in values.items()},
                    **{key: compared[metric].gain for metric, key in gains.items()},
                }

            def bounds(results: Mapping[Any, Any]) -> dict[Any, Any]:
                compared = compare(results)
                return {
                    key: to_bounded_value(compared[metric].gain, compared[metric].interval)
                    for metric, key in gains.items()
                }

            return [
                *counted,
                tfma.metrics.DerivedMetricComputation([*values.values(), *gains.values()], derive),
                compat.interval_computation(_key(name, key_fields), bounds),
            ]

        super().__init__(name, computations)


def _key(name: str, key_fields: Mapping[str, Any]) -> Any:
    return tfma.metrics.MetricKey(name=name, **key_fields)
