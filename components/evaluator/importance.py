"""The importance of a model's columns, as dataclasses and as the file `importance.json` of an evaluation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

FILE = "importance.json"
Value = int | float | str | None


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % confidence interval.

    Attributes:
      value: the number.
      interval: lower and upper bound; None without one.
    """

    value: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class ColumnImportance:
    """The importance of a column in the rows of a slice; see components/evaluator/permutation.

    Attributes:
      column: its name.
      loss: by how much the mean loss increases if other rows' values of the column are read.
      share: of the whole split, the positive part of `loss` as a share of the sum over all columns; None of a slice.
      auc: by how much the area under the ROC curve decreases; None if the task is not binary, or has one class only.
    """

    column: str
    loss: Estimate
    share: Estimate | None = None
    auc: Estimate | None = None


@dataclass(frozen=True)
class SliceImportance:
    """The importance of all columns in a slice.

    Attributes:
      slice: column → value; `{}` is the whole split.
      rows: number of rows of the sample.
      loss: their mean loss.
      columns: the columns, the most important of the whole split first.
    """

    slice: dict[str, str]
    rows: int
    loss: float
    columns: tuple[ColumnImportance, ...]


@dataclass(frozen=True)
class Importance:
    """What was measured.

    Attributes:
      metric: name of the loss.
      repeats: number of permutations.
      slices: the whole split, then its slices; empty if nothing was measured.
      typical: column → the median of its numbers, or the most frequent of its texts; None: mostly missing.
      unknown: why nothing was measured; None if it was.
    """

    metric: str = ""
    repeats: int = 0
    slices: tuple[SliceImportance, ...] = ()
    typical: Mapping[str, Value] = field(default_factory=dict)
    unknown: str | None = None

    def of(self, column: str) -> ColumnImportance | None:
        """Return the importance of a column in the whole split; None if it was not measured."""
        overall = self.slices[0].columns if self.slices else ()
        return next((each for each in overall if each.column == column), None)

    def to_json(self) -> str:
        """Return the content of `importance.json`."""
        return json.dumps(asdict(self), indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Importance:
        """Parse the result of `to_json`."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "slices": tuple(map(_slice, fields["slices"]))})


def _slice(fields: dict[str, Any]) -> SliceImportance:
    columns = tuple(
        ColumnImportance(
            each["column"],
            _estimate(each["loss"]),
            each["share"] and _estimate(each["share"]),
            each["auc"] and _estimate(each["auc"]),
        )
        for each in fields["columns"]
    )
    return SliceImportance(fields["slice"], fields["rows"], fields["loss"], columns)


def _estimate(fields: Mapping[str, Any]) -> Estimate:
    ends: Sequence[float] | None = fields["interval"]
    return Estimate(fields["value"], None if ends is None else (ends[0], ends[1]))
