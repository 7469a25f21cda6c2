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

from components.base.config_section import Task
from components.compat import tfma as compat
from components.evaluator.columnar_metric import bounded, weighted_sums
from components.evaluator.constant.paired import Compared
from components.evaluator.constant.tasks import TASKS, with_loss
from components.evaluator.keyed_metric import KeyedMetric
from components.evaluator.scores import score_computations

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
            needed: list[Any] = [weighted_sums(name, eval_config, key_fields, made.bins, made.output)]
            if task == "binary":
                needed.append(score_computations(eval_config, key_fields))
            for number, (bins, output) in enumerate(made.further):
                needed.append(weighted_sums(f"{name}_{number}", eval_config, key_fields, bins, output))
            counted = [each for computations, _ in needed for each in computations]
            values = {metric: _key(f"{VALUE}{metric}", key_fields) for metric in made.metrics}
            gains = {metric: _key(f"{GAIN}{metric}", key_fields) for metric in made.judged}

            def compared(results: Mapping[Any, Any]) -> dict[str, Compared]:
                unknown = dict.fromkeys(made.metrics, Compared(math.nan))
                totals = [of_results(results) for _, of_results in needed]
                if not totals[0].sums.rows.sum() > 0:
                    # No rows, or all of weight 0.
                    return unknown
                with np.errstate(all="ignore"):
                    return unknown | made.compare(*totals)

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
                tfma.metrics.DerivedMetricComputation([*values.values(), *gains.values()], derived),
                compat.interval_computation(_key(name, key_fields), bounds),
            ]

        super().__init__(name, computations)


def _key(name: str, key_fields: Mapping[str, Any]) -> Any:
    return tfma.metrics.MetricKey(name=name, **key_fields)
