"""The comparison of a survival task with the survival of all rows."""

from __future__ import annotations

import numpy as np

from components.evaluator.binning import Floats
from components.evaluator.columnar_metric import WeightedSums
from components.evaluator.constant.paired import Compared
from components.evaluator.multilabel_metrics import compute_jackknife_interval
from components.evaluator.survival_metrics import compute_concordance, compute_errors

METRICS = ("negative_log_likelihood", "concordance", "integrated_brier_score")
JUDGED = ("negative_log_likelihood", "concordance")


def compare_survival(weighted: WeightedSums, order: WeightedSums, errors: WeightedSums) -> dict[str, Compared]:
    """Compare a model with constants.

    The negative log-likelihood is compared with the hazards of all rows in the intervals of the model, the concordance
    with 1/2, and the Brier score with the Kaplan-Meier estimate.
    """
    rows, summands = weighted.sums.total()
    exposure, events = np.split(summands[1:], 2)
    # Where no event happens, the hazard is 0, and its logarithm does not count.
    log_hazards = np.log(np.divide(events, exposure, out=np.ones_like(events), where=events > 0))
    hazards = np.where(events > 0, np.exp(log_hazards), 0.0)

    def compute_gain(sums: Floats) -> float:
        exposure, events = np.split(sums[2:], 2)
        return float((hazards @ exposure - log_hazards @ events - sums[1]) / sums[0])

    groups = np.column_stack([weighted.sums.rows, weighted.sums.sums])
    gain = compute_gain(groups.sum(axis=0))
    concordance, interval = compute_concordance(order)
    return {
        "negative_log_likelihood": Compared(
            float((events.sum() - log_hazards @ events) / rows),
            gain,
            compute_jackknife_interval(gain, compute_gain, groups),
        ),
        "concordance": Compared(0.5, concordance - 0.5, interval and (interval[0] - 0.5, interval[1] - 0.5)),
        "integrated_brier_score": Compared(compute_errors(errors.sums).kaplan_meier),
    }
