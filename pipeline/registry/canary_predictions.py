"""The canary's predictions against the stable version's, from the request log.

Numbers: the Wasserstein distance of the two distributions, in standard deviations of all predictions, which is how far
predictions have moved on average; texts: the largest difference between two shares. Deciles, as `monitor` uses them,
would take 1e-5 instead of 1e-4 for a change. Source: C. Villani, Optimal Transport, Springer, 2009, chapter 6.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from scipy import stats

from components.errors import InputError, MachineError
from components.monitor import comparison, request_log
from components.monitor.config import MonitorConfig
from components.monitor.request_log import ServedRows
from components.predictor import output
from pipeline.registry.canary_rollout import OutputDifference, Predictions

_MOST_ROWS = 10_000
"""Rows of a version that are compared at a look."""


def read(stable: int, canary: int, since: float, config: MonitorConfig) -> Predictions:
    """Compares the answers of two versions; the requests that each gets are a random sample of all.

    Args:
      stable: the stable version.
      canary: the canary.
      since: the files that were written since then are read; in seconds since 1970.
      config: the request log.

    Raises:
      MachineError: a file has got its final name, or was removed, while the log was read.
    """
    try:
        paths = [each.path for each in request_log.files(config.requests) if request_log.modified(each.path) >= since]
        served = request_log.read(paths, _MOST_ROWS)
    except InputError:
        served = {}  # The log has no file yet.
    except OSError as error:
        raise MachineError(
            f"the request log has changed while it was read: {error}", "the next look reads it again"
        ) from error
    return compare(served.get(stable), served.get(canary))


def compare(stable: ServedRows | None, canary: ServedRows | None) -> Predictions:
    """Compares what two versions have answered; None: nothing."""
    rows = tuple(len(next(iter(each.outputs.values()))) if each else 0 for each in (canary, stable))
    if stable is None or canary is None:
        return Predictions(rows[0], rows[1], ())
    reference, sample = (output.columns(each.outputs) for each in (stable, canary))
    differences = [
        OutputDifference(each.name, _difference(reference[each.name], sample[each.name], each.distance), each.p_value)
        if each.name in sample
        else OutputDifference(each.name, 1.0, 0.0)
        for each in comparison.compare(reference, sample)
    ]
    return Predictions(rows[0], rows[1], tuple(sorted(differences, key=lambda each: -each.difference)))


def _difference(reference: pa.Array, sample: pa.Array, distance: float | None) -> float:
    """The difference of an output; 1 if one version has answered missing values alone."""
    if distance is None or comparison.is_text(reference):
        return 1.0 if distance is None else distance
    one, other = (np.asarray(each.drop_null()).astype(np.float64) for each in (reference, sample))
    moved = float(stats.wasserstein_distance(one, other))
    return moved / float(np.concatenate([one, other]).std()) if moved else 0.0
