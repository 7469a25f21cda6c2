"""Metrics of recorded answers of a model, such as the answers in a request log, and their differences.

Labels, slices and metrics are computed in the same way as by the Evaluator, but the predictions are not computed again.

The interval of a difference is a bootstrap interval: units, such as users, are drawn with replacement together with all
of their rows, and the metrics of these rows are computed again. Rows of a unit therefore do not have to be independent,
and a unit may have answers of both models. The interval is the normal interval with the standard error over the draws,
for which 200 draws are enough.

Sources: B. Efron and R. J. Tibshirani, An introduction to the bootstrap, 1993, sections 6.4 and 13.3; for units with
several rows: C. A. Field and A. H. Welsh, Bootstrapping clustered data, J. Royal Statistical Society B 69, 2007 (the
cluster bootstrap).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow_model_analysis as tfma

from components.compat.tfma import evaluation
from components.data.saved_model import Columns
from components.data.weights import weights_of
from components.evaluator import binned_sums, tfma_results
from components.evaluator.binned_sums import Slices
from components.evaluator.binning import Floats
from components.evaluator.columnar import BatchCounter, Evaluation, Metrics, ResultsFn, count_groups
from components.evaluator.columnar_metric import raise_weights
from components.evaluator.config import metric
from components.evaluator.importance import Estimate
from components.evaluator.intervals import Z
from components.evaluator.saved_model import Model
from components.evaluator.verdict import SliceMetrics

MEAN_LABEL = "mean label"
"""Name of the mean label among the differences of metrics."""
_DRAWS = 200
_FINITE = 0.9
"""Minimum share of draws in which the metric is defined; with fewer, a difference does not get an interval."""


class RecordedAnswers:
    """Answers of a model to some rows, and the labels of the rows.

    Args:
      specification: The model and TFMA's config.
      batch: The rows, with the columns of label, weight and slices; a batch of components.data.examples.
      outputs: Name → answers; [rows, ...].

    Attributes:
      config: TFMA's config.
      evaluated: Labels and answers.
      weights: Weights of the rows, [rows]; None if all rows count the same.

    Raises:
      InputError: A row does not have a label or a weight.
    """

    def __init__(self, specification: Evaluation, batch: pa.RecordBatch, outputs: Columns) -> None:
        self._specification, self._batch = specification, batch
        self.config = specification.config()
        (spec,) = self.config.model_specs
        model = Model(specification.models[spec.name], spec, specification.label_columns)
        self.evaluated = model.evaluate(batch, outputs)
        self.weights = weights_of(batch, spec.example_weight_key) if spec.example_weight_key else None

    def slices(self) -> list[SliceMetrics]:
        """Compute the metrics of all rows and of all slices; values may be NaN."""
        row_sums, grouped = BatchCounter(self._specification).count(self._batch, {"": self.evaluated})
        group_sums = [] if grouped is None else [count_groups(Metrics(self.config), grouped)]
        combiner = ResultsFn(self._specification)
        combiner.setup()
        # TFMA divides by zero if a slice has a single class.
        with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
            # TFMA does not offer a public parser of its messages, so write and read a file.
            results = combiner.extract_output([row_sums, *group_sums])
            evaluation.write(folder, results, self.config, self._specification.models)
            return tfma_results.read(folder)


def differences(
    before: RecordedAnswers,
    after: RecordedAnswers,
    units: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    names: Sequence[str],
    seed: int = 0,
) -> dict[str, Estimate]:
    """Compute the differences of metrics and of the mean label, after minus before.

    Grouped metrics, metrics that are computed row by row (such as user-defined metrics) and undefined values are left
    out.

    Args:
      before: Answers of a model.
      after: Answers of another model.
      units: Units that the rows of both models belong to, such as users; [rows] for each model.
      names: Names of the metrics.
      seed: Seed of the draws.
    """
    codes = np.unique(np.concatenate(units), return_inverse=True)[1]
    count = int(codes.max()) + 1
    # Each model has its own config, because the thresholds of their decisions may differ.
    sides = [
        (_Resampled(answers, _columnar_part(answers.config, names)), row_codes)
        for answers, row_codes in ((before, codes[: len(units[0])]), (after, codes[len(units[0]) :]))
    ]

    def difference(times: Floats) -> dict[str, float]:
        values_before, values_after = (answers.values(times[row_codes]) for answers, row_codes in sides)
        return {name: value - values_before[name] for name, value in values_after.items() if name in values_before}

    random, shares = np.random.default_rng(seed), np.full(count, 1 / count)
    # TFMA divides by zero if a draw has a single class.
    with np.errstate(all="ignore"):
        measured = difference(np.ones(count))
        draws = [difference(random.multinomial(count, shares).astype(float)) for _ in range(_DRAWS)]
    return {
        name: Estimate(value, _interval(value, [draw.get(name, np.nan) for draw in draws]))
        for name, value in measured.items()
        if np.isfinite(value)
    }


def _interval(value: float, drawn: Iterable[float]) -> tuple[float, float] | None:
    finite = np.array([value for value in drawn if np.isfinite(value)])
    if len(finite) < _FINITE * _DRAWS:
        return None
    half = Z * float(finite.std(ddof=1))
    return value - half, value + half


def _columnar_part(eval_config: tfma.EvalConfig, names: Sequence[str]) -> tfma.EvalConfig:
    """Return a config without slices that contains only the metrics that are sums over rows."""
    config = tfma.EvalConfig()
    config.CopyFrom(eval_config)
    del config.slicing_specs[:]
    for spec in config.metrics_specs:
        chosen = [metric for metric in spec.metrics if _name(metric) in names and _is_columnar(config, metric)]
        del spec.metrics[:]
        spec.metrics.extend(chosen)
    for at in reversed(range(len(config.metrics_specs))):
        if not config.metrics_specs[at].metrics:
            del config.metrics_specs[at]
    return config


def _name(metric: tfma.MetricConfig) -> str:
    return str(json.loads(metric.config or "{}").get("name", ""))


def _is_columnar(config: tfma.EvalConfig, metric: tfma.MetricConfig) -> bool:
    alone = tfma.EvalConfig(model_specs=config.model_specs, metrics_specs=[tfma.MetricsSpec(metrics=[metric])])
    metrics = Metrics(alone)
    return metrics.row_by_row is None and not metrics.grouped


class _Resampled:
    """The metrics of some answers when each row counts a given number of times."""

    def __init__(self, answers: RecordedAnswers, config: tfma.EvalConfig) -> None:
        self._config, self._metrics, self._weights = config, Metrics(config), answers.weights
        self._labels = answers.evaluated.labels
        # A mean of class numbers is meaningless.
        self._has_mean = answers.evaluated.predictions.ndim == 1
        self._binned = [
            (metric, metric.bins(self._labels, answers.evaluated.output(metric.output)))
            for metric in self._metrics.columnar
        ]

    def values(self, times: Floats) -> dict[str, float]:
        """Compute the metrics.

        Args:
          times: How often a row counts; [rows].
        """
        rows = np.flatnonzero(times)
        if not len(rows):
            return {}
        times = times[rows]
        row_weights = np.ones(len(rows)) if self._weights is None else self._weights[rows]
        weights = times * row_weights
        slices = Slices([()], np.arange(len(rows)), np.zeros(len(rows), np.int64))
        results: evaluation.Results = {}
        for combiner, (bins, summands) in self._binned:
            factors = times * raise_weights(row_weights, combiner.power) if combiner.is_weighted else times
            table = binned_sums.count((bins[rows], summands[rows]), slices, factors)
            results.update(combiner.result(table.select_slice(0)))
        values = dict(_scalars(evaluation.complete_results(results, self._metrics.parts, self._config)))
        labels = self._labels[rows]
        if len(np.unique(labels)) < 2:
            values = {name: value for name, value in values.items() if not metric(name).both_classes}
        if self._has_mean and weights.sum():
            values[MEAN_LABEL] = float(np.average(labels, weights=weights))
        return values


def _scalars(results: evaluation.Results) -> Iterator[tuple[str, float]]:
    for key, value in results.items():
        if hasattr(value, "lower_bound"):
            yield key.name, float(value.value.value)
        elif isinstance(value, (float, np.floating)) or (isinstance(value, np.ndarray) and value.size == 1):
            yield key.name, float(value)
