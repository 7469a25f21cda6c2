"""Outcomes: the metrics of recorded answers by labels that have arrived later, and the differences of versions."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow_model_analysis as tfma

from components.data.examples import to_lists
from components.errors import InputError
from components.evaluator import gate, intervals
from components.evaluator.columnar import Evaluation
from components.evaluator.config import EvaluationConfig, metric
from components.evaluator.eval_config import eval_config
from components.evaluator.recorded import RecordedAnswers, differences
from components.evaluator.verdict import NOT_JUDGED, Check, Measured, SliceMetrics
from components.features import expression
from components.ingest.column_types import Kind
from components.monitor import labels
from components.monitor.labels import Labels
from components.monitor.plan import MonitorPlan
from components.monitor.request_log import ServedRows
from components.monitor.result import Outcome, VersionDifference


@dataclass(frozen=True)
class Labelled:
    """The labelled rows of a version.

    Attributes:
      version: the version that has answered.
      answers: its answers and labels.
      keys: [rows].
      outcome: the metrics, without bounds.
    """

    version: int
    answers: RecordedAnswers | None
    keys: npt.NDArray[np.object_]
    outcome: Outcome


class Outcomes:
    """Measures the outcomes of versions by a label.

    Args:
      plan: of this label, with files of labels.
    """

    def __init__(self, plan: MonitorPlan) -> None:
        if plan.labels is None or plan.monitor.key is None:
            raise ValueError("expected a plan with labels and a key")
        self._plan, self._data, self._key = plan, plan.labels, plan.monitor.key
        config = eval_config(plan.evaluation, plan.label_key, plan.preprocessing, plan.prediction_key)
        self._config = tfma.utils.update_eval_config_with_defaults(config, has_baseline=False, rubber_stamp=True)
        self._name = plan.evaluation.label_name
        self._of_label = expression.parse(plan.evaluation.label).columns

    def are_answered(self, version: int, served: ServedRows) -> bool:
        """Returns whether the version predicts this label, which a version that learned others does not."""
        wanted = self._plan.prediction_key
        if not self._name or wanted in served.outputs:
            return True
        received = ", ".join(sorted(served.outputs))
        logging.warning("monitor.labels: the answers of version %d have no %s, but %s", version, wanted, received)
        return False

    def measure(
        self, version: int, served: ServedRows, model: str, kinds: Mapping[str, Kind], evaluated: Sequence[SliceMetrics]
    ) -> Labelled:
        """Joins answers with labels, and computes metrics.

        Args:
          version: the version that has answered.
          served: the rows.
          model: the folder of its SavedModel.
          kinds: of the columns that it was trained on.
          evaluated: the Evaluator's metrics of the version; empty if they are not known.

        Raises:
          InputError: the labels cannot be read, or a column of the label or the weight is missing.
        """
        keys = labels.texts(served.columns.get(self._key, pa.nulls(served.compared)))
        found = labels.read(self._data, self._key, keys.drop_null(), self._kinds(kinds))
        at = pc.index_in(keys, value_set=found.keys)
        known = np.asarray(at.is_valid()) & self._has_label(found, at)
        outcome = Outcome(version, served.compared, len(keys) - keys.null_count, int(known.sum()), label=self._name)
        rows = pa.array(np.flatnonzero(known))
        if not len(rows):
            return Labelled(version, None, np.empty(0, object), outcome)
        batch = self._batch(served, found, at, rows)
        spec = self._config.model_specs[0]
        label_columns = self._plan.evaluation.label_columns
        what = Evaluation(
            self._config.SerializeToString(), {spec.name: model}, label_columns, group=self._plan.evaluation.group
        )
        outputs = {name: values[np.asarray(rows)] for name, values in served.outputs.items()}
        answers = RecordedAnswers(what, batch, outputs)
        enough = len(rows) >= self._plan.monitor.least_rows
        outcome = _judged(outcome, answers.slices(), evaluated, self._bounds(), enough).named()
        return Labelled(version, answers, np.array(keys.take(rows).to_pylist(), object), outcome)

    def compare(self, one: Labelled, other: Labelled) -> VersionDifference | None:
        """Computes the difference of the metrics of two versions; None if either has too few labelled rows."""
        least = self._plan.monitor.least_rows
        if one.answers is None or other.answers is None or min(len(one.keys), len(other.keys)) < least:
            return None
        evaluation = self._plan.evaluation
        names = evaluation.evaluation.metrics_for(evaluation.task, evaluation.metrics_of_loss)
        units = len({*one.keys, *other.keys})
        found = differences(one.answers, other.answers, (one.keys, other.keys), self._config, names)
        return VersionDifference(one.version, other.version, units, found, self._name).named()

    def _kinds(self, kinds: Mapping[str, Kind]) -> dict[str, Kind]:
        """The columns to look for in the files of labels."""
        weight = self._plan.evaluation.weight
        slices = (name for spec in self._config.slicing_specs for name in (*spec.feature_keys, *spec.feature_values))
        others = (each for each in (weight, self._plan.evaluation.group) if each)
        wanted = dict.fromkeys((*self._of_label, *others, *slices))
        return {name: kinds[name] for name in wanted if name in kinds and name != self._key}

    def _has_label(self, found: Labels, at: pa.Array) -> npt.NDArray[np.bool_]:
        """Which rows have a value in a column of the label that has arrived."""
        arrived = [found.columns[name] for name in self._of_label if name in found.columns]
        if not arrived:
            return np.full(len(at), len(found.keys) > 0)
        return np.any([np.asarray(each.take(at).is_valid()) for each in arrived], axis=0)

    def _batch(self, served: ServedRows, found: Labels, at: pa.Array, rows: pa.Array) -> pa.RecordBatch:
        """The labelled rows: of the label what has arrived, of all other columns what was sent."""
        arrived = {name: column.take(at.take(rows)) for name, column in found.columns.items()}
        sent = {name: column.take(rows) for name, column in served.columns.items()}
        columns = {**arrived, **sent, **{name: arrived[name] for name in self._of_label if name in arrived}}
        of = "data.labels" if self._name else "data.label"
        for name in self._of_label:
            if name not in columns:
                raise InputError(
                    f"monitor.labels: expected the column {name!r} of {of}, received none in labels or requests",
                    "add it to the files of labels",
                )
        return to_lists(pa.RecordBatch.from_arrays(list(columns.values()), list(columns)))

    def _bounds(self) -> EvaluationConfig:
        """The bounds in the form of the gate: no others than those of the section `monitor`."""
        config = self._plan.evaluation.evaluation
        fairness = config.fairness and config.fairness.model_copy(update={"max_gap": {}})
        return config.model_copy(
            update={
                "thresholds": self._plan.monitor.thresholds,
                "slice_thresholds": {},
                "max_importance": {},
                "constant": "warn",
                "fairness": fairness,
            }
        )


def _judged(
    outcome: Outcome,
    measured: Sequence[SliceMetrics],
    evaluated: Sequence[SliceMetrics],
    bounds: EvaluationConfig,
    enough: bool,
) -> Outcome:
    before = {_name(each): _reported(each) for each in evaluated}
    none = SliceMetrics({}, 0, {}, {})
    with_baseline = [replace(each, baseline=before.get(_name(each), none).metrics) for each in measured]
    [whole] = (each for each in with_baseline if not each.slice)
    slices = tuple(each for each in with_baseline if each.slice)
    verdict = gate.judge(bounds, Measured(whole, slices, bool(evaluated)), None)
    # By the constant and the gain over it, models are compared with each other, not windows.
    judged = tuple(replace(each, constant={}) for each in verdict.slices)
    same = tuple(before[name] for name in map(_name, judged) if name in before)
    checks = tuple(_beyond_chance(each, judged, same) for each in verdict.checks) if enough else None
    return replace(outcome, slices=judged, evaluated=same, checks=checks)


def _reported(evaluated: SliceMetrics) -> SliceMetrics:
    metrics = {name: value for name, value in evaluated.metrics.items() if math.isfinite(value)}
    return SliceMetrics(evaluated.slice, evaluated.rows, metrics, {}, evaluated.intervals)


def _name(measured: SliceMetrics) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(measured.slice.items()))


def _beyond_chance(check: Check, slices: Sequence[SliceMetrics], evaluated: Sequence[SliceMetrics]) -> Check:
    """Lets a value pass that is worse than the Evaluator's, but not beyond the interval of the difference.

    A metric of groups without a value is not judged: requests need not have the group's column.
    """
    if check.value is None and metric(check.metric).grouped:
        return replace(check, passed=True, why=f"{NOT_JUDGED}no group of labelled rows has what the metric needs")
    (live,) = (each.intervals.get(check.metric) for each in slices if not each.slice)
    before = next((each.intervals.get(check.metric) for each in evaluated if not each.slice), None)
    is_relative = check.bound.endswith("the baseline") and check.baseline is not None and check.value is not None
    if check.passed or not is_relative or live is None or before is None:
        return check
    low, high = intervals.of_independent(check.baseline or 0.0, before, check.value or 0.0, live)
    words = f"difference {check.value - check.baseline:+.4g}, 95 % interval {low:.4g} to {high:.4g}"  # type: ignore[operator]
    if low <= 0 <= high:
        return replace(check, passed=True, why=f"{NOT_JUDGED}{words}")
    return replace(check, why=words)
