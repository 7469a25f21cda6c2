"""The choice of the kind of model by the losses that fitted candidates have on the same validation rows."""

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

_SIMPLEST_FIRST = ("linear", "gbt", "tabm", "dcn_v2", "din", "ensemble")
_ERRORS = 2.0
"""Standard errors within which a difference may be noise; a 95 % interval."""
_NEGLIGIBLE = 0.001
"""The share of the loss below which a difference is of no use."""
_ROWS_PER_SECOND = 20_000 / 60
"""Rows that are fitted for each second of the budget: then networks and trees end in time on two cores."""
_LEAST_ROWS = 1_000
_LEAST_SHARE = 0.1
"""The least share of the table that is fitted: fewer rows say little about the kind that is best for all."""


@dataclass(frozen=True)
class Fit:
    """A candidate that was fitted.

    Attributes:
      kind: of the model.
      losses: of each validation row, [rows]; the rows are the same for all candidates.
      metrics: by name.
      seconds: of the training; None if the kind was trained as a part of another one.
    """

    kind: Kind
    losses: npt.NDArray[np.float32]
    metrics: dict[str, float]
    seconds: float | None = None

    @property
    def loss(self) -> float:
        """The mean loss."""
        return float(self.losses.mean())


class Difference(NamedTuple):
    """How much greater the loss of one candidate is than that of another one.

    Attributes:
      mean: over the validation rows.
      error: the standard error of the mean; of pairs, because both losses of a row are high where it is hard.
    """

    mean: float
    error: float

    @classmethod
    def of(cls, one: Fit, other: Fit) -> Difference:
        """Compare two candidates."""
        each = one.losses.astype(np.float64) - other.losses
        error = each.std(ddof=1) / np.sqrt(len(each)) if len(each) > 1 else np.inf
        return cls(float(each.mean()), float(error))


def simplest_first(fits: Sequence[Fit]) -> list[Fit]:
    """Return the candidates from the simplest to the most complex one."""
    return sorted(fits, key=lambda fit: _SIMPLEST_FIRST.index(fit.kind))


def choose(fits: Sequence[Fit], own: Fit) -> Fit:
    """Return the candidate for the config.

    The kind for the size is replaced by the one with the lowest loss if the difference is greater than two standard
    errors: then it is more than noise. The result is replaced by a simpler kind if the loss of that one is higher by
    less than a thousandth, also with two standard errors: for example a mean of two models by the one that has all the
    weight. On twelve public tables both a smaller multiple and the simplest kind within the noise had higher losses.

    Args:
      fits: all candidates.
      own: the one of the kind for the size.
    """
    chosen = min(fits, key=lambda fit: fit.loss)
    mean, error = Difference.of(own, chosen)
    if mean <= _ERRORS * error:
        chosen = own
    for fit in simplest_first(fits):
        mean, error = Difference.of(fit, chosen)
        if mean + _ERRORS * error <= _NEGLIGIBLE * chosen.loss:
            return fit
    return chosen


def fitted_rows(rows: int, seconds: float) -> int:
    """Return how many rows of a table are fitted within a budget; 0 if they would be too few to choose by.

    Args:
      rows: of the table.
      seconds: the budget.
    """
    fitted = min(rows, max(_LEAST_ROWS, int(seconds * _ROWS_PER_SECOND)))
    return fitted if fitted >= _LEAST_SHARE * rows else 0


def write_rows(table: Table, rows: int, file: str) -> int:
    """Write rows of a table at random, in their order, to a Parquet file; return their number.

    Args:
      table: the table. Columns without any value are left out.
      rows: how many, at most.
      file: the file.
    """
    chosen = np.sort(np.random.default_rng(0).permutation(table.sampled)[:rows])
    columns = {name: each for name, each in table.columns.items() if not pa.types.is_null(each.type)}
    pq.write_table(pa.table(columns).take(pa.array(chosen)), file)
    return len(chosen)
