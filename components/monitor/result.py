"""The result of a monitoring, as dataclasses and as JSON: drift, metrics by later labels, differences of versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from components.evaluator.importance import Estimate
from components.evaluator.verdict import Check, SliceMetrics


@dataclass(frozen=True)
class Bin:
    """A value, or the numbers from the end of the bin before up to `label`, with its share in both samples."""

    label: str
    reference: float
    sample: float


@dataclass(frozen=True)
class ColumnComparison:
    """A column in two samples.

    Attributes:
      name: of the column.
      distance: 0 (equal) to 1, see comparison. None if one sample has no value.
      psi: population stability index; from 0.
      p_value: of the test, corrected for the number of columns by Holm's method.
      missing: share of rows without a value, in the reference and in the sample.
      new: share of the sample's values that the reference does not have; of texts only.
      bins: the distributions.
    """

    name: str
    distance: float | None
    psi: float | None
    p_value: float
    missing: tuple[float, float]
    new: float | None
    bins: tuple[Bin, ...]


@dataclass(frozen=True)
class Finding:
    """A column that has drifted.

    Attributes:
      column: its name.
      what: `distance`, `missing` or `new values`.
      value: what was measured.
      bound: of the config.
    """

    column: str
    what: str
    value: float
    bound: float


@dataclass(frozen=True)
class Judgement:
    """The requests of a version in a window, compared with other rows.

    Attributes:
      version: the version that has answered.
      reference: what they are compared with.
      rows: rows in the window.
      compared: how many of them were compared.
      reference_rows: the number of the others that were compared.
      columns: every column, the most different one first; predictions have the names of the outputs.
      findings: those that have drifted; None if there are too few rows to judge.
    """

    version: int
    reference: str
    rows: int
    compared: int
    reference_rows: int
    columns: tuple[ColumnComparison, ...]
    findings: tuple[Finding, ...] | None


@dataclass(frozen=True)
class Outcome:
    """The metrics of a version's answers in a window, by labels that have arrived later.

    Attributes:
      version: the version that has answered.
      rows: the rows that were compared, of the window.
      keyed: how many of them have a key.
      labelled: how many of them have a label yet.
      slices: metrics of all labelled rows, then of each slice; `baseline` has the Evaluator's values of the version.
      evaluated: the Evaluator's metrics with their intervals, of all its rows and of each of these slices.
      checks: the bounds; None if there are too few labelled rows to judge.
      label: which of several labels; empty if there is one.
    """

    version: int
    rows: int
    keyed: int
    labelled: int
    slices: tuple[SliceMetrics, ...] = ()
    evaluated: tuple[SliceMetrics, ...] = ()
    checks: tuple[Check, ...] | None = None
    label: str = ""

    def named(self) -> Outcome:
        """Returns the outcome with names of metrics that begin with the label, if it is one of several."""
        if not self.label:
            return self
        slices, evaluated = (tuple(each.of_label(self.label) for each in of) for of in (self.slices, self.evaluated))
        checks = None if self.checks is None else tuple(each.of_label(self.label) for each in self.checks)
        return replace(self, slices=slices, evaluated=evaluated, checks=checks)

    @property
    def failed(self) -> tuple[Check, ...]:
        """The bounds that are exceeded."""
        return tuple(each for each in self.checks or () if not each.passed)


@dataclass(frozen=True)
class VersionDifference:
    """Metrics of a version minus those of another one, in the same window.

    Attributes:
      a: the older version.
      b: the newer version.
      units: number of keys of the labelled rows of both.
      metrics: name → difference b - a, with its interval.
      label: which of several labels; empty if there is one.
    """

    a: int
    b: int
    units: int
    metrics: Mapping[str, Estimate]
    label: str = ""

    def named(self) -> VersionDifference:
        """See `Outcome.named`."""
        names = {f"{self.label}/{name}": each for name, each in self.metrics.items()}
        return replace(self, metrics=names) if self.label else self


@dataclass(frozen=True)
class Monitoring:
    """What was found in the newest window of the requests.

    Attributes:
      judgements: of each version, against its training rows, and against the window before.
      outcomes: of each version, if the config names labels.
      differences: of each version from the oldest one that has answered.
    """

    judgements: tuple[Judgement, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    differences: tuple[VersionDifference, ...] = ()

    def findings(self) -> Iterator[str]:
        """Yields each column that has drifted, and each bound that is exceeded, in words."""
        for judged in self.judgements:
            for each in judged.findings or ():
                measured = f"{each.column}: {each.what} {each.value:.3f}, bound {each.bound:g}"
                yield f"version {judged.version} against {judged.reference}: {measured}"
        for outcome in self.outcomes:
            yield from (f"version {outcome.version}: {check}" for check in outcome.failed)

    def brief(self) -> Monitoring:
        """Returns the result without the comparison of each column, which may have thousands of bins."""
        return replace(self, judgements=tuple(replace(each, columns=()) for each in self.judgements))

    def to_dict(self) -> dict[str, Any]:
        """Returns the result, with its findings in words, as plain JSON values."""
        return {**asdict(self), "findings": list(self.findings())}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Monitoring:
        """Restores the result of `to_dict`, or of its JSON."""
        return TypeAdapter(cls).validate_python(fields)
