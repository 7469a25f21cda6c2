"""The weights of an ensemble's members: those with the lowest loss on held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import scipy.optimize

from components.models.forest import Floats

_LEAST = 0.01
"""Weights below this become 0, so that the exported model does not compute the member."""


def mix(members: Sequence[Floats], weights: npt.ArrayLike) -> Floats:
    """Return the weighted sum of the members' logits, float32 [rows, outputs]."""
    total: Floats = np.tensordot(np.asarray(weights, np.float32), np.stack(members), 1)
    return total


def choose_weights(members: Sequence[Floats], loss: Callable[[Floats], float]) -> Floats:
    """Return the weights, at least 0 and of sum 1, with which the mean of the members has the lowest loss.

    Args:
      members: Logits of each member, float32 [rows, outputs].
      loss: Logits → their mean loss.
    """
    if len(members) == 1:
        return np.ones(1, np.float32)
    best = scipy.optimize.minimize(
        lambda weights: loss(mix(members, weights)),
        np.full(len(members), 1 / len(members)),
        method="SLSQP",
        bounds=[(0, 1)] * len(members),
        constraints={"type": "eq", "fun": lambda weights: weights.sum() - 1},
        # Smaller steps would drown in the rounding of the float32 logits.
        options={"eps": 1e-3},
    )
    weights = np.where(best.x < _LEAST, 0.0, best.x)
    rounded: Floats = (weights / weights.sum()).astype(np.float32)
    return rounded
