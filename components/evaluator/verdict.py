"""The verdict on a model, as plain records and as the file `verdict.json` of an evaluation."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

FILE = "verdict.json"
NOT_JUDGED = "not judged: "
"""How `why` begins where a value is there to be seen only."""


@dataclass(frozen=True)
class Measured:
    """The metrics of the rows that share some values, e.g. `{"trip_start_hour": "5"}`; of all rows with `{}`.

    Attributes:
      slice: column → value.
      rows: how many they are.
      metrics: of the candidate; what cannot be computed is not there.
      baseline: of the latest blessed model, on the same rows; empty without one.
      intervals: metric of the candidate → from and to, with 95 % confidence; those that have one.
    """

    slice: dict[str, str]
    rows: int
    metrics: dict[str, float]
    baseline: dict[str, float]
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """One bound of the config, held against one value.

    Attributes:
      metric: its name.
      slice: column → value; empty for the whole split.
      bound: what was asked for, in words, e.g. `at least 0.6`.
      value: the candidate's; None where it cannot be computed.
      baseline: that of the latest blessed model, if there is one.
      rows: how many the value was computed from; None where that is no one number.
      passed: also true where it was not judged.
      why: why it was not judged, or what explains the outcome.
    """

    metric: str
    slice: dict[str, str]
    bound: str
    value: float | None
    baseline: float | None
    rows: int | None
    passed: bool
    why: str | None

    @property
    def judged(self) -> bool:
        """Whether its outcome says something of the model."""
        return self.why is None or not self.why.startswith(NOT_JUDGED)

    def __str__(self) -> str:
        where = f" where {told_slice(self.slice)}" if self.slice else ""
        received = "none" if self.value is None else f"{self.value:.6g}"
        beside = "" if self.baseline is None else f", the baseline has {self.baseline:.6g}"
        why = f" ({self.why})" if self.why else ""
        return f"{self.metric}{where}: expected {self.bound}, received {received}{beside}{why}"


@dataclass(frozen=True)
class Verdict:
    """What the gate has said of a model.

    Attributes:
      blessed: whether it may be pushed.
      forced: the reason that somebody gave for blessing it although checks have failed.
      rows: of the evaluated split.
      checks: all of them.
      slices: what was measured, the whole split first.
    """

    blessed: bool
    forced: str | None
    rows: int
    checks: tuple[Check, ...]
    slices: tuple[Measured, ...]

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that did not pass."""
        return tuple(check for check in self.checks if not check.passed)

    def to_json(self) -> str:
        """The content of `verdict.json`."""
        return json.dumps(asdict(self), indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Verdict:
        """Reads what `to_json` has written."""
        told: dict[str, Any] = json.loads(text)
        checks = tuple(Check(**each) for each in told["checks"])
        slices = tuple(_measured(each) for each in told["slices"])
        return cls(told["blessed"], told["forced"], told["rows"], checks, slices)


def _measured(told: dict[str, Any]) -> Measured:
    # There are none in a verdict of an earlier release.
    intervals = {name: (low, high) for name, (low, high) in told.get("intervals", {}).items()}
    return Measured(**{**told, "intervals": intervals})


def told_slice(values: dict[str, str]) -> str:
    """A slice in words, e.g. `payment_type = Cash`."""
    return " and ".join(f"{column} = {value}" for column, value in values.items())
