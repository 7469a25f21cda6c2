"""How each task is compared with the best constant prediction."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from components.base.config_section import Task
from components.compat.tfma.columnar import Binned, Numbers
from components.evaluator.config import metric
from components.evaluator.constant import classes, numbers, ranks
from components.evaluator.constant.paired import Compared
from components.evaluator.quantile_metrics import OUTPUT
from components.results.retrieval_outputs import POPULARITY_RANK, RANK


class TaskComparison(NamedTuple):
    """How a task is compared.

    Attributes:
      metrics: the metrics of the constant.
      judged: those with a gain.
      bins: (labels, predictions) → bins and summands.
      compare: sums → the metrics; one that is left out is not known.
      further: more bins, each with the output of the model that is their prediction, whose sums `compare` takes too.
      output: the output that is the prediction of `bins`; empty: the model's prediction.
    """

    metrics: tuple[str, ...]
    judged: tuple[str, ...]
    bins: Callable[[Numbers, Numbers], Binned]
    compare: Callable[..., dict[str, Compared]]
    further: tuple[tuple[Callable[[Numbers, Numbers], Binned], str], ...] = ()
    output: str = ""


TASKS: dict[Task, TaskComparison] = {
    "binary": TaskComparison(
        ("auc", "auc_precision_recall", "binary_accuracy", "binary_crossentropy", "brier_score"),
        ("auc", "binary_crossentropy", "brier_score"),
        classes.binary_bins,
        classes.compare_binary,
    ),
    "multiclass": TaskComparison(
        ("accuracy", "balanced_accuracy", "crossentropy"),
        ("balanced_accuracy", "crossentropy"),
        classes.multiclass_bins,
        classes.compare_multiclass,
    ),
    "regression": TaskComparison(
        ("mean_absolute_error", "mean_squared_error", "r_squared", "root_mean_squared_error"),
        ("mean_absolute_error", "mean_squared_error"),
        numbers.regression_bins,
        numbers.compare_regression,
    ),
    "retrieval": TaskComparison(
        tuple(ranks.MEASURES),
        tuple(ranks.MEASURES),
        ranks.retrieval_bins,
        ranks.compare_retrieval,
        output=f"{RANK},{POPULARITY_RANK}",
    ),
}


def with_loss(made: TaskComparison, of_loss: str, quantiles: Sequence[float]) -> TaskComparison:
    """Add the metric of a loss to the comparison of a task.

    Args:
      made: the comparison.
      of_loss: the metric's name.
      quantiles: those that the model predicts, if the metric is that of quantiles.
    """
    if quantiles:
        bins = numbers.quantile_bins(quantiles)
        compare = functools.partial(numbers.compare_quantiles, quantiles)
    else:
        power = float(metric(of_loss).options["power"])
        bins = numbers.deviance_bins(power)
        compare = functools.partial(numbers.compare_deviance, power, of_loss)
    of_interval = ("interval_coverage", "interval_width") if len(quantiles) > 1 else ()
    return TaskComparison(
        (*made.metrics, of_loss, *of_interval),
        (*made.judged, of_loss),
        made.bins,
        lambda sums, further: made.compare(sums) | compare(further),
        ((bins, OUTPUT if quantiles else ""),),
    )
