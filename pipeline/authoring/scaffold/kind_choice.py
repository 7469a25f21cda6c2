"""Choice of the kind of model: compares the losses of fitted candidates on the same validation rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from components.models.config import Kind
from pipeline.authoring.scaffold.sample import Table

_SIMPLEST_FIRST = ("linear", "gbt", "gbt_linear", "tabm", "dcn_v2", "din", "ensemble")
_ERRORS = 2.0
"""Number of standard errors within which a difference may be noise. Two are about a 95 % interval."""
_NEGLIGIBLE = 0.001
"""Share of the loss below which a difference is too small to justify a more complex kind."""
_ROWS_PER_SECOND = 20_000 / 60
"""Number of rows to fit per second of the budget, so that networks and trees finish in time on two cores."""
_FEW, _COLUMNS = 0.25, 100
"""Share of these rows up to which networks certainly end in time. With more than this number of columns it is lower."""
_LEAST_ROWS = 1_000
_LEAST_SHARE = 0.1
"""Minimum share of the table to fit. The best kind for a smaller sample is often not the best kind for the table."""


@dataclass(frozen=True)
class Fit:
    """A fitted candidate.

    Attributes:
      kind: Kind of the model.
      losses: Losses of the validation rows, float32, shape [rows]. All candidates are measured on the same rows.
      metrics: Metric name → value on the validation rows.
      seconds: Duration of the training. None if the kind was trained as a part of another kind.
    """

    kind: Kind
    losses: npt.NDArray[np.float32]
    metrics: dict[str, float]
    seconds: float | None = None

    @property
    def loss(self) -> float:
        """Mean loss over the validation rows."""
        return float(self.losses.mean())


class Difference(NamedTuple):
    """Difference between the losses of two candidates; positive if the first candidate is worse.

    Attributes:
      mean: Mean difference over the validation rows.
      error: Standard error of the mean. It is computed from the differences per row, because a row that is hard for
        one candidate is usually hard for the other.
    """

    mean: float
    error: float

    @classmethod
    def of(cls, first: Fit, second: Fit) -> Difference:
        """Compare the losses of two candidates row by row."""
        differences = first.losses.astype(np.float64) - second.losses
        error = differences.std(ddof=1) / np.sqrt(len(differences)) if len(differences) > 1 else np.inf
        return cls(float(differences.mean()), float(error))


def simplest_first(fits: Sequence[Fit]) -> list[Fit]:
    """Sort candidates from the simplest kind to the most complex kind."""
    return sorted(fits, key=lambda fit: _SIMPLEST_FIRST.index(fit.kind))


def choose(fits: Sequence[Fit], default: Fit) -> Fit:
    """Choose the candidate for the config.

    Start with the default kind for the size of the table. Switch to the candidate with the lowest loss if the
    difference is greater than two standard errors, which is unlikely to be noise. Then switch to the simplest kind
    whose loss is higher by less than a thousandth, including two standard errors. For example, an average of two
    models is replaced by one model if that model has all the weight.

    Two alternatives had higher losses on twelve public tables: fewer standard errors, and the simplest kind within
    the noise.

    Args:
      fits: All candidates.
      default: The candidate whose kind is the default for the size.
    """
    chosen = min(fits, key=lambda fit: fit.loss)
    mean, error = Difference.of(default, chosen)
    if mean <= _ERRORS * error:
        chosen = default
    # `chosen` itself satisfies the condition, so the loop does not reach more complex kinds.
    for fit in simplest_first(fits):
        mean, error = Difference.of(fit, chosen)
        if mean + _ERRORS * error <= _NEGLIGIBLE * chosen.loss:
            return fit
    return chosen


def fitted_rows(rows: int, seconds: float) -> int:
    """Return the number of rows that candidates are fitted to; 0 if they would be too few for a choice.

    Args:
      rows: Number of rows of the table.
      seconds: Time budget, in seconds.
    """
    fitted = min(rows, max(_LEAST_ROWS, int(seconds * _ROWS_PER_SECOND)))
    return fitted if fitted >= _LEAST_SHARE * rows else 0


def has_few_rows(rows: int, columns: int, seconds: float) -> bool:
    """Return whether there are so few rows to fit that all candidates end in time.

    Args:
      rows: Number of rows to fit.
      columns: Number of columns that become features.
      seconds: Time budget, in seconds.
    """
    return rows * max(1, columns / _COLUMNS) <= _FEW * seconds * _ROWS_PER_SECOND


def write_rows(table: Table, rows: int, file: str) -> int:
    """Write a random sample of a table's rows to a Parquet file, and return the number of rows.

    The rows keep their order.

    Args:
      table: Table to sample. Columns without any value are not written.
      rows: Maximum number of rows.
      file: Path of the Parquet file.
    """
    chosen = np.sort(np.random.default_rng(0).permutation(table.sampled)[:rows])
    columns = {name: column for name, column in table.columns.items() if not pa.types.is_null(column.type)}
    pq.write_table(pa.table(columns).take(pa.array(chosen)), file)
    return len(chosen)
