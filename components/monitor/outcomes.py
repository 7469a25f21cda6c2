"""Compute metrics of recorded answers from delayed labels, and the differences between versions."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow_model_analysis as tfma

from components.base.errors import InputError
from components.data.decisions import read as read_decisions
from components.data.examples import to_lists
from components.data.private_columns import PrivateColumns
from components.data.request_log import ServedRows
from components.evaluator import gate, intervals
from components.evaluator.columnar import Evaluation
from components.evaluator.config import EvaluationConfig, metric, thresholds_of
from components.evaluator.eval_config import eval_config
from components.evaluator.recorded import RecordedAnswers, differences
from components.evaluator.verdict import Check, Measured, SliceMetrics
from components.features.expression import Label
from components.ingest.column_types import Kind
from components.monitor import labels
from components.monitor.labels import Labels
from components.monitor.plan import MonitorPlan
from components.monitor.result import Outcome, VersionDifference


@dataclass(frozen=True)
class Labelled:
    """The rows of a version whose labels have arrived.

    Attributes:
      version: Number of the version that answered the requests.
      answers: The version's answers with their labels. None if none of the labels has arrived.
      keys: Keys of the rows, as bytes; [rows].
      outcome: The version's metrics and checks.
    """

    version: int
    answers: RecordedAnswers | None
    keys: npt.NDArray[np.object_]
    outcome: Outcome


class Outcomes:
    """Measures how well versions have predicted a label.

    Args:
      plan: The plan of the node. It must name files of labels and a key.
      label: The label.
      private: How the log masks private columns; a key is hashed in the same way. None if no column is private.
    """

    def __init__(self, plan: MonitorPlan, label: Label, private: PrivateColumns | None = None) -> None:
        if plan.labels is None or plan.monitor.key is None:
            raise ValueError("expected a plan with labels and a key")
        self._plan, self._data, self._key = plan, plan.labels, plan.monitor.key
        self._private = private or PrivateColumns({})
        self._label, self._label_columns = label, label.columns
        self._config = self._make_config({})
        self._group = plan.evaluation.find_group(label)

    def is_predicted(self, version: int, served: ServedRows) -> bool:
        """Return whether a version predicts this label; a version that was trained on other labels does not."""
        expected = self._config.model_specs[0].prediction_key
        if not self._label.name or expected in served.outputs:
            return True
        received = ", ".join(sorted(served.outputs))
        logging.warning(
            "monitor.labels: expected %s in the answers of version %d, received %s", expected, version, received
        )
        return False

    def measure(
        self, version: int, served: ServedRows, model: str, kinds: Mapping[str, Kind], evaluated: Sequence[SliceMetrics]
    ) -> Labelled:
        """Join a version's answers with labels, and compute metrics.

        Args:
          version: Number of the version that answered the requests.
          served: The requests and answers.
          model: Folder of the version's SavedModel.
          kinds: Column of the training rows → its kind.
          evaluated: The metrics that the Evaluator measured for the version; empty if it was not evaluated.

        Raises:
          InputError: If the labels cannot be read, or a column of the label or the weight is missing.
        """
        keys = labels.encode_keys(served.columns.get(self._key, pa.nulls(served.compared)))
        hash_keys = functools.partial(self._private.hash_column, self._key)
        arrived = labels.read(self._data, self._key, keys.drop_null(), self._select_kinds(kinds), hash_keys)
        # Served row → index of the first matching row of labels; null without a match.
        label_rows = pc.index_in(keys, value_set=arrived.keys)
        is_labelled = np.asarray(label_rows.is_valid()) & self._has_label(arrived, label_rows)
        keyed = len(keys) - keys.null_count
        outcome = Outcome(version, served.compared, keyed, int(is_labelled.sum()), label=self._label.name)
        rows = pa.array(np.flatnonzero(is_labelled))
        if not len(rows):
            return Labelled(version, None, np.empty(0, object), outcome)
        batch = self._join(served, arrived, label_rows, rows)
        decision = read_decisions(model).get(self._label.name)
        config = self._make_config({"": decision.threshold} if decision else {})
        spec = config.model_specs[0]
        label_columns = self._plan.evaluation.label_columns
        evaluation = Evaluation(config.SerializeToString(), {spec.name: model}, label_columns, group=self._group)
        outputs = {name: values[np.asarray(rows)] for name, values in served.outputs.items()}
        answers = RecordedAnswers(evaluation, batch, outputs)
        has_enough_rows = len(rows) >= self._plan.monitor.least_rows
        outcome = _judge(outcome, answers.slices(), evaluated, self._bounds(), has_enough_rows).prefix_metrics()
        return Labelled(version, answers, np.array(keys.take(rows).to_pylist(), object), outcome)

    def compare(self, older: Labelled, newer: Labelled) -> VersionDifference | None:
        """Compute the differences between the metrics of two versions; None if either has too few labelled rows."""
        least_rows = self._plan.monitor.least_rows
        if older.answers is None or newer.answers is None or min(len(older.keys), len(newer.keys)) < least_rows:
            return None
        evaluation = self._plan.evaluation
        names = evaluation.select_label(self._label).metrics_for(evaluation.task, evaluation.metrics_of_loss)
        units = len({*older.keys, *newer.keys})
        metrics = differences(older.answers, newer.answers, (older.keys, newer.keys), names)
        return VersionDifference(older.version, newer.version, units, metrics, self._label.name).prefix_metrics()

    def _make_config(self, thresholds: Mapping[str, float]) -> tfma.EvalConfig:
        """Return TFMA's config of a version; see `eval_config` for the thresholds."""
        config = eval_config(self._plan.evaluation, self._label, thresholds)
        return tfma.utils.update_eval_config_with_defaults(config, has_baseline=False, rubber_stamp=True)

    def _select_kinds(self, kinds: Mapping[str, Kind]) -> dict[str, Kind]:
        """Return the columns to read from the files of labels, with their kinds."""
        slices = (name for spec in self._config.slicing_specs for name in (*spec.feature_keys, *spec.feature_values))
        weight_and_group = (name for name in (self._plan.evaluation.weight, self._group) if name)
        names = dict.fromkeys((*self._label_columns, *weight_and_group, *slices))
        return {name: kinds[name] for name in names if name in kinds and name != self._key}

    def _has_label(self, arrived: Labels, label_rows: pa.Array) -> npt.NDArray[np.bool_]:
        """Return for every served row whether a column of its label has arrived with a value; [rows].

        Args:
          arrived: The rows of labels.
          label_rows: Index of the row of labels for every served row, null without a match; [rows].
        """
        columns = [arrived.columns[name] for name in self._label_columns if name in arrived.columns]
        if not columns:
            # The label's columns may all be in the requests. `_join` reports a column that is missing there too.
            return np.full(len(label_rows), len(arrived.keys) > 0)
        if self._plan.evaluation.task == "multilabel":
            # A row without a value does not have any of the classes.
            return np.full(len(label_rows), True)
        return np.any([np.asarray(column.take(label_rows).is_valid()) for column in columns], axis=0)

    def _join(self, served: ServedRows, arrived: Labels, label_rows: pa.Array, rows: pa.Array) -> pa.RecordBatch:
        """Return the labelled rows with the columns of labels and requests.

        If both contain a column, the value that arrived counts for a column of the label, and the value that was sent
        counts for any other column.

        Args:
          served: The requests.
          arrived: The rows of labels.
          label_rows: Index of the row of labels for every served row, null without a match; [served rows].
          rows: Indices of the labelled rows among the served rows; [rows].
        """
        labelled = {name: column.take(label_rows.take(rows)) for name, column in arrived.columns.items()}
        sent = {name: column.take(rows) for name, column in served.columns.items()}
        columns = {**labelled, **sent, **{name: labelled[name] for name in self._label_columns if name in labelled}}
        for name in self._label_columns:
            if name not in columns:
                expected = f"the column {name!r} of {self._label}"
                raise InputError(
                    f"monitor.labels: expected {expected}, received none in labels or requests",
                    "add it to the files of labels",
                )
        return to_lists(pa.RecordBatch.from_arrays(list(columns.values()), list(columns)))

    def _bounds(self) -> EvaluationConfig:
        """Return the bounds of the section `monitor` as a config of the Evaluator's gate, without the other bounds."""
        config = self._plan.evaluation.evaluation
        fairness = config.fairness and config.fairness.model_copy(update={"max_gap": {}})
        return config.model_copy(
            update={
                "thresholds": thresholds_of(self._label.name, self._plan.monitor.thresholds),
                "slice_thresholds": {},
                "max_importance": {},
                "constant": "warn",
                "fairness": fairness,
            }
        )


def _judge(
    outcome: Outcome,
    measured: Sequence[SliceMetrics],
    evaluated: Sequence[SliceMetrics],
    bounds: EvaluationConfig,
    has_enough_rows: bool,
) -> Outcome:
    """Add metrics and checks to an outcome.

    Args:
      outcome: The outcome to complete.
      measured: Metrics of the answers, of all rows and of every slice.
      evaluated: Metrics that the Evaluator measured for the version; empty if it was not evaluated.
      bounds: Bounds on the metrics of the answers.
      has_enough_rows: Whether the labelled rows are enough to check the bounds.
    """
    evaluated_by_slice = {_slice_key(metrics): _drop_undefined(metrics) for metrics in evaluated}
    empty = SliceMetrics({}, 0, {}, {})
    with_baseline = [
        replace(metrics, baseline=evaluated_by_slice.get(_slice_key(metrics), empty).metrics) for metrics in measured
    ]
    [whole] = (metrics for metrics in with_baseline if not metrics.slice)
    slices = tuple(metrics for metrics in with_baseline if metrics.slice)
    verdict = gate.judge(bounds, Measured(whole, slices, bool(evaluated)), None)
    # Drop the constant baseline: it compares models, not time windows.
    judged = tuple(replace(metrics, constant={}) for metrics in verdict.slices)
    evaluated_slices = tuple(evaluated_by_slice[key] for key in map(_slice_key, judged) if key in evaluated_by_slice)
    checks = (
        tuple(_pass_chance(check, judged, evaluated_slices) for check in verdict.checks) if has_enough_rows else None
    )
    return replace(outcome, slices=judged, evaluated=evaluated_slices, checks=checks)


def _drop_undefined(evaluated: SliceMetrics) -> SliceMetrics:
    """Return the Evaluator's metrics without NaN and infinite values, and without a baseline."""
    metrics = {name: value for name, value in evaluated.metrics.items() if math.isfinite(value)}
    return SliceMetrics(evaluated.slice, evaluated.rows, metrics, {}, evaluated.intervals)


def _slice_key(metrics: SliceMetrics) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(metrics.slice.items()))


def _pass_chance(check: Check, slices: Sequence[SliceMetrics], evaluated: Sequence[SliceMetrics]) -> Check:
    """Let a check pass whose value is worse than the Evaluator's only by chance.

    The check passes if the interval of the difference contains 0. A metric of groups without a value passes as well,
    because requests may lack the group's column.

    Args:
      check: The check.
      slices: Metrics of the answers, of all rows and of every slice.
      evaluated: Metrics that the Evaluator measured for the same slices.
    """
    if check.value is None and metric(check.metric).grouped:
        return check.skip("no group of labelled rows has what the metric needs")
    (interval,) = (metrics.intervals.get(check.metric) for metrics in slices if not metrics.slice)
    baseline_interval = next((metrics.intervals.get(check.metric) for metrics in evaluated if not metrics.slice), None)
    if check.passed or not check.is_relative or interval is None or baseline_interval is None:
        return check
    if check.value is None or check.baseline is None:
        return check
    low, high = intervals.compute_independent_interval(check.baseline, baseline_interval, check.value, interval)
    words = f"difference {check.value - check.baseline:+.4g}, 95 % interval {low:.4g} to {high:.4g}"
    return check.skip(words) if low <= 0 <= high else replace(check, why=words)
