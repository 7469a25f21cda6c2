"""The comparison of the tasks with the best constant prediction."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from components.base.config_section import Task
from components.data.forecast_columns import NAIVE, SCALE
from components.evaluator import survival_metrics
from components.evaluator.binning import Binned, Numbers
from components.evaluator.columnar_metric import COLUMN, WeightedSums
from components.evaluator.config import metric
from components.evaluator.constant import class_sets, classes, naive, numbers, ranks, survival
from components.evaluator.constant.paired import Compared
from components.evaluator.intervals import ScoreBins
from components.evaluator.multilabel_metrics import bin_losses
from components.evaluator.quantile_metrics import OUTPUT
from components.results.retrieval_outputs import POPULARITY_RANK, RANK


class TaskComparison(NamedTuple):
    """The comparison of a task with the best constant prediction.

    Attributes:
      metrics: Metrics of the constant.
      judged: Metrics for which the gain of the model is computed.
      bins: (labels, predictions) → bins and summands.
      compare: Sums → the metrics; unknown metrics are omitted.
      further: Further bins with the output of the model that they read; `compare` receives their sums as well.
      output: Output of the model that `bins` reads; empty for the prediction.
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
        ("accuracy", "balanced_accuracy", "crossentropy"),
        classes.multiclass_bins,
        classes.compare_multiclass,
    ),
    "multilabel": TaskComparison(
        class_sets.METRICS,
        class_sets.JUDGED,
        bin_losses,
        class_sets.compare_class_sets,
    ),
    "anomaly": TaskComparison(
        ("auc", "auc_precision_recall"),
        ("auc",),
        classes.binary_bins,
        classes.compare_ranks,
    ),
    "regression": TaskComparison(
        ("mean_absolute_error", numbers.ERROR_OF_MEAN, "mean_squared_error", "r_squared", "root_mean_squared_error"),
        ("mean_absolute_error", numbers.ERROR_OF_MEAN, "mean_squared_error"),
        numbers.regression_bins,
        numbers.compare_regression,
    ),
    "survival": TaskComparison(
        survival.METRICS,
        survival.JUDGED,
        survival_metrics.bin_losses,
        survival.compare_survival,
        output=survival_metrics.OUTPUTS,
    ),
    "retrieval": TaskComparison(
        tuple(ranks.MEASURES),
        tuple(ranks.MEASURES),
        ranks.retrieval_bins,
        ranks.compare_retrieval,
        output=f"{RANK},{POPULARITY_RANK}",
    ),
}


FORECASTS = TaskComparison(
    naive.METRICS,
    naive.JUDGED,
    naive.naive_bins,
    naive.compare_naive,
    output=f",{COLUMN}{NAIVE},{COLUMN}{SCALE}",
)
"""The comparison of forecasts with the seasonal naive forecast."""


def with_loss(comparison: TaskComparison, of_loss: str, quantiles: Sequence[float]) -> TaskComparison:
    """Add the metric of a loss to the comparison of a task.

    Args:
      comparison: The comparison.
      of_loss: Name of the metric.
      quantiles: Quantiles that the model predicts, if the metric is the quantile loss.
    """
    if quantiles:
        bins = numbers.quantile_bins(quantiles)
        compare = functools.partial(numbers.compare_quantiles, quantiles)
    else:
        power = float(metric(of_loss).options["power"])
        bins = numbers.deviance_bins(power)
        compare = functools.partial(numbers.compare_deviance, power, of_loss)
    interval_metrics = ("interval_coverage", "interval_width") if len(quantiles) > 1 else ()
    return TaskComparison(
        (*comparison.metrics, of_loss, *interval_metrics),
        (*comparison.judged, of_loss),
        comparison.bins,
        lambda sums, further: comparison.compare(sums) | compare(further),
        ((bins, OUTPUT if quantiles else ""),),
    )


def with_costs(comparison: TaskComparison, fp: float, fn: float) -> TaskComparison:
    """Add the mean cost of the best constant decision to the comparison of a binary task.

    Args:
      comparison: The comparison.
      fp: Cost of the decision 1 for a row with label 0.
      fn: Cost of the decision 0 for a row with label 1.
    """

    def compare(weighted: WeightedSums, scores: ScoreBins) -> dict[str, Compared]:
        compared: dict[str, Compared] = comparison.compare(weighted, scores)
        # Without a probability of label 1, the labels are no probabilities.
        prior = compared["auc_precision_recall"].value if compared else math.nan
        return compared | {"cost": Compared(min(fp * (1 - prior), fn * prior))}

    return comparison._replace(metrics=(*comparison.metrics, "cost"), compare=compare)
