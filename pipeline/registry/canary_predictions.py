"""The canary's predictions against the stable version's, from the request log."""

from __future__ import annotations

from components.errors import InputError, MachineError
from components.monitor import judgement, request_log
from components.monitor.config import MonitorConfig
from components.monitor.judgement import Judgement
from components.predictor import output

_MOST_ROWS = 10_000
"""Rows of a version that are compared at a look."""


def compare(stable: int, canary: int, since: float, config: MonitorConfig) -> Judgement:
    """Compares the answers of two versions; the requests that each gets are a random sample of all.

    Args:
      stable: the stable version.
      canary: the canary.
      since: the files that were written since then are read; in seconds since 1970.
      config: the request log, bounds, and the least rows.

    Returns:
      The judgement; without findings if one of the versions has too few rows.

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
            f"the request log changed while it was read: {error}", "the next look reads it again"
        ) from error
    reference, sample = served.get(stable), served.get(canary)
    if reference is None or sample is None or reference.compared < config.least_rows:
        rows = [each.compared if each else 0 for each in (sample, reference)]
        return Judgement(canary, f"version {stable}", rows[0], rows[0], rows[1], (), None)
    columns = (f"version {stable}", output.columns(reference.outputs))
    return judgement.judge(canary, sample.rows, columns, output.columns(sample.outputs), config)
