"""Choice of the threshold of a binary model, on rows that the model was not trained on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from components.base.bounds import least_passing
from components.base.errors import InputError
from components.features.expression import Label
from components.models.forest import Floats
from components.results import decision
from components.results.decision import Decision, Decisions
from components.results.decision_goal import DecisionGoal
from components.results.model_outputs import CLASS, PREDICTION_KEY

Outputs: TypeAlias = Callable[[tf.Tensor], dict[str, tf.Tensor]]
_Float64: TypeAlias = "npt.NDArray[np.float64]"

_FEW = 30
"""Number of rows with one label below which a warning is logged, because the threshold depends on single rows."""
_PROBABILITY = PREDICTION_KEY["binary"]


class Thresholds(NamedTuple):
    """The thresholds that divide some rows differently, descending, with the rows that they divide.

    Attributes:
      values: Thresholds, float32; [thresholds]. The first one is above all probabilities.
      tp: Weight of the rows with label 1 at or above the threshold; [thresholds].
      fp: Weight of the rows with label 0 at or above the threshold; [thresholds].
      positives: Weight of all rows with label 1.
      negatives: Weight of all rows with label 0.
    """

    values: Floats
    tp: _Float64
    fp: _Float64
    positives: float
    negatives: float

    @classmethod
    def find(cls, probabilities: Floats, label: npt.NDArray[np.bool_], weight: _Float64) -> Thresholds:
        """Find the thresholds of rows. The time is proportional to n log n, for one sort.

        A threshold is in the middle between two neighbouring probabilities, so that a rounding error of a probability
        does not change the decision. The last one is between 0 and the lowest probability.

        Args:
          probabilities: Probabilities of label 1, [rows].
          label: Whether the label is 1, [rows].
          weight: Weights of the rows, [rows].
        """
        order = np.argsort(-probabilities)
        descending = probabilities[order]
        hits, misses = (np.cumsum(np.where(label == value, weight, 0.0)[order]) for value in (True, False))
        # Rows with equal probabilities are on the same side of every threshold.
        last = np.flatnonzero(np.append(descending[1:] != descending[:-1], True))
        distinct = descending[last]
        above = np.append(1.0 if distinct[0] < 1 else np.nextafter(np.float32(1), np.float32(2)), distinct)
        below = np.append(distinct, 0.0)
        middle = ((above.astype(np.float64) + below) / 2).astype(np.float32)
        # The middle of two neighbouring float32 numbers is rounded to one of them.
        values = np.where(middle > below, middle, above.astype(np.float32))
        tp, fp = (np.append(0.0, sums[last]) for sums in (hits, misses))
        return cls(values, tp, fp, float(hits[-1]), float(misses[-1]))

    def measure(self, goal: DecisionGoal) -> dict[str, _Float64]:
        """Return the metrics at every threshold, [thresholds]. Without a positive row, the precision is 0."""
        predicted, missed = self.tp + self.fp, self.positives - self.tp
        metrics = {
            "precision": self.tp / np.where(predicted > 0, predicted, 1.0),
            "recall": self.tp / self.positives,
            "f1": 2 * self.tp / (predicted + self.positives),
        }
        if goal.cost is not None:
            total = self.positives + self.negatives
            metrics["cost"] = (goal.cost.fp * self.fp + goal.cost.fn * missed) / total
        return metrics


def choose(
    goal: DecisionGoal,
    labels: Sequence[Label],
    outputs: Mapping[str, tf.Tensor] | None = None,
    values: npt.NDArray[np.int64] | None = None,
    weight: Floats | None = None,
) -> Decisions:
    """Choose the thresholds of all labels, independently.

    Args:
      goal: The goal, the same for all labels.
      labels: The labels.
      outputs: Outputs of the model for rows that it was not trained on, by name; None without such rows.
      values: Labels of these rows, 0 or 1; [rows, labels].
      weight: Weights of the rows, [rows]; if None, all rows have the same weight.

    Raises:
      InputError: If a threshold is chosen on the rows, and all of them have the same label.
    """
    decisions = {}
    for number, label in enumerate(labels):
        if outputs is None or values is None:
            decisions[label.name] = Decision(_as_float32(goal.threshold), str(goal))
            continue
        probabilities = outputs[label.add_name(_PROBABILITY)].numpy()[:, 0]
        decisions[label.name] = choose_threshold(goal, probabilities, values[:, number] == 1, weight, str(label))
    return Decisions(decisions)


def choose_threshold(
    goal: DecisionGoal,
    probabilities: Floats,
    label: npt.NDArray[np.bool_],
    weight: Floats | None = None,
    name: str = "data.label",
) -> Decision:
    """Choose the threshold of a label.

    If no threshold reaches a smallest precision, the threshold with the highest precision is chosen, and the Evaluator
    does not bless the model. Among equally good thresholds the highest is chosen.

    Args:
      goal: The goal.
      probabilities: Probabilities of label 1, float32 [rows].
      label: Whether the label is 1, [rows].
      weight: Weights of the rows, [rows]; if None, all rows have the same weight.
      name: The label in messages.

    Raises:
      InputError: If the goal needs rows of both labels, and all rows with a weight above 0 have the same label.
    """
    weights = np.ones(len(label)) if weight is None else weight.astype(np.float64)
    counted = weights > 0
    probabilities, label, weights = probabilities[counted], label[counted], weights[counted]
    rows, positives = len(label), int(label.sum())
    if goal.needs_rows and not 0 < positives < rows:
        raise InputError(
            f"evaluation.decide: expected rows with both labels among the rows that are held out of the training, "
            f"received {positives:,} of {rows:,} with label 1 of {name}",
            "hold more rows out with training.validation or training.folds, or give evaluation.decide a threshold",
        )
    if not 0 < positives < rows:
        return Decision(_as_float32(goal.threshold), str(goal), rows=rows, positives=positives)
    fewest = min(positives, rows - positives)
    if goal.needs_rows and fewest < _FEW:
        logging.warning("%s: the threshold depends on only %d of %d rows with the rarer label", name, fewest, rows)
    thresholds = Thresholds.find(probabilities, label, weights)
    measured = thresholds.measure(goal)
    if goal.threshold is None:
        at = _find_best(goal, measured)
        threshold = float(thresholds.values[at])
    else:
        threshold = _as_float32(goal.threshold)
        # Thresholds descend, and the rows above a threshold are those above the next lower threshold of the list.
        distinct = np.unique(probabilities)
        at = len(distinct) - int(np.searchsorted(distinct, np.float32(threshold)))
    bounded, least = next(
        ((metric, bound) for metric in ("precision", "recall") if (bound := getattr(goal, metric)) is not None),
        (None, None),
    )
    metrics = {metric: float(values[at]) for metric, values in measured.items()}
    chosen = Decision(threshold, str(goal), bounded, least, metrics, rows, positives)
    logging.info("%s: threshold %.6g for the %s on %d rows: %s", name, threshold, goal, rows, metrics)
    if not chosen.is_reached:
        logging.warning("%s: no threshold reaches it; the highest %s is %.4g", name, bounded, metrics[str(bounded)])
    return chosen


def _find_best(goal: DecisionGoal, measured: Mapping[str, _Float64]) -> int:
    """Return the position of the best threshold."""
    precision, recall = measured["precision"], measured["recall"]
    if goal.cost is not None:
        order = [-measured["cost"]]
    elif goal.f1:
        order = [measured["f1"]]
    elif goal.precision is not None:
        reached = precision >= least_passing(goal.precision)
        order = [np.where(reached, recall, -1.0), precision] if reached.any() else [precision, recall]
    else:
        order = [np.where(recall >= least_passing(goal.recall or 0.0), precision, -1.0), recall]
    best = np.ones(len(precision), bool)
    for values in order:
        best &= values == values[best].max()
    return int(np.flatnonzero(best)[0])


def add_classes(outputs: Outputs, decisions: Decisions) -> Outputs:
    """Return the function from logits to outputs, with an output `class` for every label, int64 [batch, 1]."""
    labels = {Label("", name): chosen.threshold for name, chosen in decisions.labels.items()}

    def decide(logits: tf.Tensor) -> dict[str, tf.Tensor]:
        by_name = outputs(logits)
        classes = {
            label.add_name(CLASS): tf.cast(by_name[label.add_name(_PROBABILITY)] >= threshold, tf.int64)
            for label, threshold in labels.items()
        }
        return by_name | classes

    return decide


def write(decisions: Decisions, model: str) -> None:
    """Write the decisions into the folder of a SavedModel, which may be remote."""
    path = f"{model}/{decision.FILE}"
    tf.io.gfile.makedirs(path.rpartition("/")[0])
    with tf.io.gfile.GFile(path, "w") as file:
        file.write(decisions.to_json())


def _as_float32(threshold: float | None) -> float:
    """Return the threshold in the dtype of predictions: 0.7 is greater than the float32 nearest to it."""
    return float(np.float32(0.5 if threshold is None else threshold))
