"""The comparison of a model with the best constant prediction on the same rows, from sums of one pass.

The constant knows the labels of the evaluated rows: their share of label 1, their shares of classes, their mean or
their quantiles. No other constant has a smaller loss on them. It is fitted to them, but to first order this does not
change the variance of the difference: at its optimum the mean loss does not depend on the constant. The constant of a
retrieval is the order of items by popularity, and knows only the training split.

A row's difference is the constant's loss minus the model's. Its mean and its mean square are functions of sums, so the
interval of the mean is that of paired rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow_model_analysis as tfma

from components.compat import tfma as compat
from components.compat.tfma.columnar import Sums
from components.config_section import Task
from components.evaluator.columnar_metric import bounded, combined, effective, scale_of
from components.evaluator.constant.paired import Compared
from components.evaluator.constant.tasks import TASKS, with_loss
from components.evaluator.keyed_metric import KeyedMetric
from components.evaluator.plot_metrics import score_bins

VALUE, GAIN = "constant ", "gain over the constant "
"""How the names of the results begin in TFMA's files; the name of the metric follows."""


class ConstantComparison(KeyedMetric):
    """The metrics of the best constant prediction, and by how much the model is better.

    Args:
      name: a name for the computation; no metric has it.
      task: the task.
      of_loss: the metric of the model's loss, if that is not the task's own.
      quantiles: those that the model predicts, if the metric is that of quantiles.
    """

    def __init__(self, name: str, task: Task, of_loss: str = "", quantiles: Sequence[float] = ()) -> None:
        def computations(name: str, eval_config: tfma.EvalConfig | None, key_fields: dict[str, Any]) -> list[Any]:
            made = TASKS[task]
            if of_loss:
                made = with_loss(made, of_loss, quantiles)
            total_key = _key(compat.private(name), key_fields)
            counted = [combined(total_key, eval_config, made.bins, lambda sums: sums, made.output)]
            totals = [counted[0].keys[-1]]
            if task == "binary":
                # The area under the curve is computed from the histogram that TFMA's AUC has.
                counted += compat.histogram_computations(eval_config, **key_fields)
                totals.append(counted[-1].keys[-1])
            for number, (bins, output) in enumerate(made.further):
                key = _key(compat.private(f"{name}_{number}"), key_fields)
                counted.append(combined(key, eval_config, bins, lambda sums: sums, output))
                totals.append(key)
            values = {metric: _key(f"{VALUE}{metric}", key_fields) for metric in made.metrics}
            gains = {metric: _key(f"{GAIN}{metric}", key_fields) for metric in made.judged}

            weighed, effective_rows = effective(eval_config, key_fields)

            def compared(results: Mapping[Any, Any]) -> dict[str, Compared]:
                unknown = dict.fromkeys(made.metrics, Compared(math.nan))
                if not results[totals[0]].rows.sum() > 0:
                    # No rows, or all of weight 0.
                    return unknown
                scale = scale_of(effective_rows(results))
                with np.errstate(all="ignore"):
                    return unknown | made.compare(*(_scaled(results[key], scale) for key in totals))

            def derived(results: Mapping[Any, Any]) -> dict[Any, Any]:
                found = compared(results)
                return {
                    **{key: found[metric].value for metric, key in values.items()},
                    **{key: found[metric].gain for metric, key in gains.items()},
                }

            def bounds(results: Mapping[Any, Any]) -> dict[Any, Any]:
                found = compared(results)
                return {key: bounded(found[metric].gain, found[metric].interval) for metric, key in gains.items()}

            return [
                *counted,
                *weighed,
                tfma.metrics.DerivedMetricComputation([*values.values(), *gains.values()], derived),
                compat.interval_computation(_key(name, key_fields), bounds),
            ]

        super().__init__(name, computations)


def _key(name: str, key_fields: Mapping[str, Any]) -> Any:
    return tfma.metrics.MetricKey(name=name, **key_fields)


def _scaled(sums: Any, scale: float) -> Any:
    """Returns sums, or TFMA's histogram, as of weights multiplied by a factor."""
    return sums.scaled(scale) if isinstance(sums, Sums) else score_bins(sums, scale)
