"""Measures interactions: how much the effect of a column on the prediction depends on another column.

The interaction of two columns is the part of their common partial dependence that is not the sum of the partial
dependences on each of them. Friedman's H is its root mean square, relative to the common partial dependence. It is
measured on the scale on which a linear model is additive, so that for example a logistic regression does not have
interactions.

Source: J. H. Friedman and B. E. Popescu, Predictive learning via rule ensembles, Annals of Applied Statistics 2, 2008,
section 8.1.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from components.base.config_section import Loss, Task
from components.evaluator.binning import Floats, Ints
from components.evaluator.dependence import Interaction

_LEAST, _LEAST_OF_CLASSES = 1e-6, 1e-30
"""Probabilities are limited to [1e-6, 1 - 1e-6], and means of counts to 1e-6 and more, before the logarithm: 1 less a
float32 close to 1 is inexact. Probabilities of classes are limited to 1e-30, because small float32 are exact."""
_ROUNDING = 1e-5
"""Variation of float32 predictions by rounding, relative to their size; smaller effects count as 0."""

Predict = Callable[[Mapping[str, Ints], Ints], Floats]
"""A function that predicts rows whose columns come from different rows, [n, outputs]; see `Model.recombine`."""


class Link(NamedTuple):
    """A scale of predictions.

    Attributes:
      name: Name of the scale.
      transform: Function that converts predictions to the scale, [n, outputs].
    """

    name: str
    transform: Callable[[Floats], Floats]


def choose_link(task: Task, loss: Loss | None) -> Link:
    """Return the scale on which the logits of a model are, up to a constant per row."""
    if task == "binary":
        return Link("log-odds", _log_odds)
    if task == "multiclass":
        return Link("log-probability", _log_ratios)
    if loss in ("poisson", "tweedie"):
        return Link("logarithm of the prediction", lambda predictions: np.log(np.maximum(predictions, _LEAST)))
    return Link("prediction", lambda predictions: predictions)


def _log_odds(probabilities: Floats) -> Floats:
    probabilities = np.clip(probabilities, _LEAST, 1 - _LEAST)
    return np.log(probabilities) - np.log1p(-probabilities)


def _log_ratios(probabilities: Floats) -> Floats:
    """Return the logarithms less their mean over the classes, which are the logits less their mean."""
    logarithms = np.log(np.maximum(probabilities, _LEAST_OF_CLASSES))
    return logarithms - logarithms.mean(axis=1, keepdims=True)


def measure_pairs(predict: Predict, names: Sequence[str], rows: Ints) -> tuple[Interaction, ...]:
    """Measure the interactions of all pairs of columns, the strongest first.

    Args:
      predict: Function that predicts rows. For n rows and k columns it predicts n² · k · (k + 1) / 2 rows.
      names: Names of the columns.
      rows: Rows that are both the points and the rows over which predictions are averaged.
    """
    single = {name: _partial_dependence(predict, (name,), rows) for name in names}
    pairs = []
    for pair in itertools.combinations(names, 2):
        joint = _partial_dependence(predict, pair, rows)
        rest = joint - single[pair[0]] - single[pair[1]]
        strength, effect = _root_mean_square(rest), _root_mean_square(joint)
        if strength <= _ROUNDING * max(effect, float(np.abs(joint).max(initial=0.0))):
            strength = 0.0
        pairs.append(Interaction(pair, strength, strength / effect if strength else 0.0))
    return tuple(sorted(pairs, key=lambda interaction: -interaction.strength))


def _partial_dependence(predict: Predict, names: Sequence[str], rows: Ints) -> Floats:
    """Return the partial dependence at the values of the rows, less its mean; [rows, outputs]."""
    count = len(rows)
    values = np.repeat(rows, count)
    predictions = predict(dict.fromkeys(names, values), np.tile(rows, count))
    dependence: Floats = predictions.reshape(count, count, -1).mean(axis=1)
    return dependence - dependence.mean(axis=0)


def _root_mean_square(values: Floats) -> float:
    """Return the root of the mean over the rows of the squares, summed over the outputs."""
    return float(np.sqrt(np.square(values).sum(axis=1).mean()))
