"""Compares the canary's predictions with the stable version's predictions, both from the request log.

- Numeric outputs: the Wasserstein distance between the two distributions, divided by the standard deviation of all
  predictions. It is the average distance by which predictions have moved.
- Text outputs: the largest difference between the shares of a text in the two versions.

Do not compare deciles, as `monitor` does: a shift of predictions from 1e-5 to 1e-4 would count as a large change.
Source: C. Villani, Optimal Transport, Springer, 2009, chapter 6.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from scipy import stats

from components.base.errors import InputError, MachineError
from components.data import column_comparison, request_log, saved_model
from components.data.request_log import ServedRows
from pipeline.registry.canary_rollout import OutputDifference, Predictions

_MOST_ROWS = 10_000
"""Maximum number of rows per version that one comparison reads."""


def read(stable: int, canary: int, since: float, requests: Sequence[str]) -> Predictions:
    """Read the logged predictions of two versions and compare them.

    The comparison is fair because the proxy sends each version a random sample of the requests.

    Args:
      stable: Number of the stable version.
      canary: Number of the canary.
      since: Unix time in seconds. Log files that were last written before it are skipped.
      requests: Folders, files or patterns of the request log, as in `monitor.requests`.

    Raises:
      MachineError: A log file was renamed or removed while the log was read.
    """
    try:
        paths = [file.path for file in request_log.files(requests) if request_log.modified(file.path) >= since]
        served = request_log.read(paths, _MOST_ROWS)
    except InputError:
        served = {}  # No request has been logged yet.
    except OSError as error:
        raise MachineError(
            f"the request log changed while it was read: {error}", "the next measurement reads it again"
        ) from error
    return compare(served.get(stable), served.get(canary))


def compare(stable: ServedRows | None, canary: ServedRows | None) -> Predictions:
    """Compare the logged predictions of two versions.

    Args:
      stable: Requests that the stable version has answered. None if it has not answered any.
      canary: Requests that the canary has answered. None if it has not answered any.

    Returns:
      The number of logged rows of both versions and, if both have rows, the differences of all outputs. An output that
      the canary lacks differs by 1 with a p-value of 0.
    """
    canary_rows, stable_rows = _count_rows(canary), _count_rows(stable)
    if stable is None or canary is None:
        return Predictions(canary_rows, stable_rows, ())
    reference, sample = saved_model.convert_outputs(stable.outputs), saved_model.convert_outputs(canary.outputs)
    differences = [
        OutputDifference(
            test.name, _measure_difference(reference[test.name], sample[test.name], test.distance), test.p_value
        )
        if test.name in sample
        else OutputDifference(test.name, 1.0, 0.0)
        for test in column_comparison.compare(reference, sample)
    ]
    return Predictions(canary_rows, stable_rows, tuple(sorted(differences, key=lambda output: -output.difference)))


def _count_rows(served: ServedRows | None) -> int:
    return len(next(iter(served.outputs.values()))) if served else 0


def _measure_difference(reference: pa.Array, sample: pa.Array, distance: float | None) -> float:
    """Return the difference between two versions of an output; 1 if one version predicted only missing values.

    Args:
      reference: Predictions of the stable version, text or numeric.
      sample: Predictions of the canary.
      distance: Distance according to `column_comparison.compare`, which is used for texts. None if one of the arrays
        has only missing values.
    """
    if distance is None or column_comparison.is_text(reference):
        return 1.0 if distance is None else distance
    stable, canary = (np.asarray(array.drop_null()).astype(np.float64) for array in (reference, sample))
    wasserstein = float(stats.wasserstein_distance(stable, canary))
    # If the distance is 0, all predictions may be equal, with a standard deviation of 0.
    return wasserstein / float(np.concatenate([stable, canary]).std()) if wasserstein else 0.0
