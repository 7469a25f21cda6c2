"""The records of this package as pandas frames, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import pandas as pd

_TIMES = ("started", "updated", "created", "ended")


def frame(records: Iterable[Any]) -> pd.DataFrame:
    """Runs, executions, artifacts, events, rows of the history or columns of the data, as a table.

    Args:
      records: dataclasses of one kind.

    Returns:
      A row for each, in their order. Fields are columns, and what a field holds by name is spread: `properties.span`,
      `metrics.auc`. Times are timestamps in UTC.
    """
    table = pd.json_normalize([asdict(record) for record in records])
    for name in _TIMES:
        if name in table:
            table[name] = pd.to_datetime(table[name], unit="s", utc=True).dt.round("ms")
    return table
