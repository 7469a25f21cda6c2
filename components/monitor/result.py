"""Monitor's result as dataclasses and as JSON: drift, metrics from delayed labels, and differences between versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from components.evaluator.importance import Estimate
from components.evaluator.verdict import Check, SliceMetrics
from components.results.column_comparison import ColumnComparison


@dataclass(frozen=True)
class Finding:
    """A column that has drifted.

    Attributes:
      column: Name of the column.
      what: Name of the figure: `distance`, `missing`, `new values`, `out of range` or `tails`.
      value: Measured value of the figure; of `missing`, `new values` and `tails`, the difference from the share to
        expect.
      bound: Bound from the config, which the value has reached.
    """

    column: str
    what: str
    value: float
    bound: float


@dataclass(frozen=True)
class Judgement:
    """The comparison of the requests to a version in a window with a reference.

    Attributes:
      version: Number of the version that answered the requests.
      reference: Name of the reference: `training` or `the window before`.
      rows: Number of rows in the window.
      compared: Number of rows of the window that were compared.
      reference_rows: Number of rows of the reference that were compared.
      columns: Comparison of every column, in descending order of the distance. Columns of predictions are named after
        the model's outputs.
      findings: The columns that have drifted. None if the window contains too few rows to judge.
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
    """The metrics of a version's answers in a window, computed from labels that arrived after the answers.

    Attributes:
      version: Number of the version that answered the requests.
      rows: Number of rows of the window that were compared.
      keyed: Number of compared rows that have a key.
      labelled: Number of compared rows whose label has arrived.
      slices: Metrics of all labelled rows, then of every slice. Their `baseline` contains the values that the Evaluator
        measured for the version.
      evaluated: Metrics that the Evaluator measured, with their intervals, for all rows and for the same slices.
      checks: Result of every bound. None if there are too few labelled rows to judge.
      label: Name of the label if the model has several labels, otherwise empty.
    """

    version: int
    rows: int
    keyed: int
    labelled: int
    slices: tuple[SliceMetrics, ...] = ()
    evaluated: tuple[SliceMetrics, ...] = ()
    checks: tuple[Check, ...] | None = None
    label: str = ""

    def prefix_metrics(self) -> Outcome:
        """Prepend the label to the names of the metrics, if the model has several labels."""
        if not self.label:
            return self
        slices = tuple(metrics.with_label(self.label) for metrics in self.slices)
        evaluated = tuple(metrics.with_label(self.label) for metrics in self.evaluated)
        checks = None if self.checks is None else tuple(check.with_label(self.label) for check in self.checks)
        return replace(self, slices=slices, evaluated=evaluated, checks=checks)

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks whose bound is exceeded; empty if the rows were too few to judge."""
        return tuple(check for check in self.checks or () if not check.passed)


@dataclass(frozen=True)
class VersionDifference:
    """The differences between the metrics of two versions in the same window.

    Attributes:
      a: Number of the older version.
      b: Number of the newer version.
      units: Number of distinct keys among the labelled rows of both versions. The intervals are computed by key.
      metrics: Name → value of version `b` minus value of version `a`, with its interval.
      label: Name of the label if the model has several labels, otherwise empty.
    """

    a: int
    b: int
    units: int
    metrics: Mapping[str, Estimate]
    label: str = ""

    def prefix_metrics(self) -> VersionDifference:
        """Prepend the label to the names of the metrics, if the model has several labels."""
        metrics = {f"{self.label}/{name}": estimate for name, estimate in self.metrics.items()}
        return replace(self, metrics=metrics) if self.label else self


@dataclass(frozen=True)
class Monitoring:
    """The result of monitoring the newest window of requests.

    Attributes:
      judgements: Comparisons of the requests. A version that answered is compared with its training rows, and with the
        window before if it answered there too.
      outcomes: Metrics per version, if the config names files of labels.
      differences: Differences between the oldest version that answered and every newer version.
    """

    judgements: tuple[Judgement, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    differences: tuple[VersionDifference, ...] = ()

    def findings(self) -> Iterator[str]:
        """Yield a line of text for every column that has drifted and every bound that is exceeded."""
        for judgement in self.judgements:
            for finding in judgement.findings or ():
                measured = f"{finding.column}: {finding.what} {finding.value:.3f}, bound {finding.bound:g}"
                yield f"version {judgement.version} against {judgement.reference}: {measured}"
        for outcome in self.outcomes:
            yield from (f"version {outcome.version}: {check}" for check in outcome.failed)

    def find_drift(self, version: int | None = None) -> dict[str, float | None]:
        """Return the columns that have drifted and the metrics that exceed a bound.

        Args:
          version: Version whose findings are returned. If None, the findings of all versions are.

        Returns:
          Column name → distance of the column, and metric name → value of the metric.
        """
        drift: dict[str, float | None] = {}
        for judgement in self.judgements:
            for finding in (judgement.findings or ()) if version in (None, judgement.version) else ():
                # The first finding on a column is its distance; findings on missing or new values follow.
                drift.setdefault(finding.column, finding.value)
        for outcome in self.outcomes:
            for check in outcome.failed if version in (None, outcome.version) else ():
                drift.setdefault(check.metric, check.value)
        return drift

    def brief(self) -> Monitoring:
        """Return the result without the comparisons of columns, which may contain thousands of bins."""
        return replace(self, judgements=tuple(replace(judgement, columns=()) for judgement in self.judgements))

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON values, with the lines of `findings`."""
        return {**asdict(self), "findings": list(self.findings())}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Monitoring:
        """Restore a result from the return value of `to_dict`, or from its JSON."""
        return TypeAdapter(cls).validate_python(fields)
