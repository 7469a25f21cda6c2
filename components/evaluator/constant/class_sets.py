"""The comparison of a multilabel task with the shares of the rows that have each class."""

from __future__ import annotations

import numpy as np
from scipy import special

from components.evaluator.binning import LEAST_PROBABILITY, Floats
from components.evaluator.columnar_metric import WeightedSums
from components.evaluator.constant.paired import Compared
from components.evaluator.multilabel_metrics import compute_jackknife_interval

METRICS = ("hamming_loss", "log_loss", "macro_auc", "macro_average_precision")
JUDGED = ("log_loss",)


def compare_class_sets(weighted: WeightedSums) -> dict[str, Compared]:
    """Compare the losses with the losses of the shares of the classes, which are fitted to these rows."""
    rows, summands = weighted.sums.total()
    shares = summands[1:] / rows
    clipped = np.clip(shares, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    # The constant's loss of a row is the mean over classes of straight + slope * label.
    straight, slope = -np.log1p(-clipped), np.log1p(-clipped) - np.log(clipped)

    def compute_gain(sums: Floats) -> float:
        loss, *labels = sums[1:]
        constant_loss = (straight * sums[0] + slope * np.array(labels)).mean()
        return float((constant_loss - loss) / sums[0])

    groups = np.column_stack([weighted.sums.rows, weighted.sums.sums])
    gain = compute_gain(groups.sum(axis=0))
    entropy = float((special.entr(shares) + special.entr(1 - shares)).mean())
    present = shares[shares > 0]
    return {
        "hamming_loss": Compared(float(np.minimum(shares, 1 - shares).mean())),
        "log_loss": Compared(entropy, gain, compute_jackknife_interval(gain, compute_gain, groups)),
        "macro_auc": Compared(0.5),
        "macro_average_precision": Compared(float(present.mean()) if len(present) else 0.0),
    }
