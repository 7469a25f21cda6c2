"""The importance of a model's columns, as dataclasses and as the file `importance.json` of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from components.results.json_result import JsonResult

FILE = "importance.json"
Value = int | float | str | None


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % confidence interval.

    Attributes:
      value: The number.
      interval: Lower and upper bound; None if it cannot be computed.
    """

    value: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class ColumnImportance:
    """The importance of a column in the rows of a slice; see components/evaluator/permutation.

    Attributes:
      column: Name of the column.
      loss: Increase of the mean loss if the model reads other rows' values of the column.
      share: The positive part of `loss` as a share of the sum over all columns, for the whole split; None for a slice.
      auc: Decrease of the area under the ROC curve; None if the task is not binary or the rows have a single class.
    """

    column: str
    loss: Estimate
    share: Estimate | None = None
    auc: Estimate | None = None


@dataclass(frozen=True)
class SliceImportance:
    """The importance of all columns in a slice.

    Attributes:
      slice: Column → value; `{}` is the whole split.
      rows: Number of rows of the sample.
      loss: Mean loss of the rows.
      columns: The columns, in descending order of importance in the whole split.
    """

    slice: dict[str, str]
    rows: int
    loss: float
    columns: tuple[ColumnImportance, ...]


@dataclass(frozen=True)
class ColumnSelection:
    """The columns that the model predicts equally well without; see components/evaluator/column_selection.

    Attributes:
      unneeded: The columns, those that are most likely noise first.
      loss: Increase of the mean loss if the model reads other rows' values of all these columns; None without columns.
      limit: Largest increase that counts as equally well.
      kept: Other columns whose importance is inside the noise → the reason why they are needed or may be.
    """

    unneeded: tuple[str, ...] = ()
    loss: Estimate | None = None
    limit: float = 0.0
    kept: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Importance(JsonResult):
    """The importance of columns in the whole split and its slices.

    Attributes:
      metric: Name of the loss.
      repeats: Number of permutations.
      slices: The whole split, followed by its slices; empty if nothing was measured.
      typical: Column → the median of its numbers or its most frequent text; None if values are mostly missing.
      selection: The columns that the model does not need; None if they were not looked for.
      unknown: Reason why nothing was measured; None if the importance was measured.
    """

    metric: str = ""
    repeats: int = 0
    slices: tuple[SliceImportance, ...] = ()
    typical: Mapping[str, Value] = field(default_factory=dict)
    selection: ColumnSelection | None = None
    unknown: str | None = None

    def find(self, column: str) -> ColumnImportance | None:
        """Return the importance of a column in the whole split; None if it was not measured."""
        overall = self.slices[0].columns if self.slices else ()
        return next((importance for importance in overall if importance.column == column), None)
