"""Metrics of answers that a model has given before, such as those of a request log, and their differences.

Labels, slices and metrics are those of the Evaluator; only the predictions are not computed again.

The interval of a difference is a bootstrap interval: the units, such as users, are drawn with replacement, each with
all of its rows, and the metrics of the rows drawn are computed again. So rows of one unit need not be independent, and
a unit may have answers of both models. The interval is the normal one with the standard error over the draws, for which
200 draws are enough. Sources: B. Efron and R. J. Tibshirani, An introduction to the bootstrap, 1993, sections 6.4 and
13.3; of units with several rows: C. A. Field and A. H. Welsh, Bootstrapping clustered data, J. Royal Statistical
Society B 69, 2007 (the cluster bootstrap).
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
from components.compat.tfma.columnar import Floats
from components.data.saved_model import Columns
from components.data.weights import weights_of
from components.evaluator import binned_sums, tfma_results
from components.evaluator.binned_sums import Slices
from components.evaluator.columnar import BatchCounter, Evaluation, Metrics, ResultsFn, count_groups
from components.evaluator.columnar_metric import raised
from components.evaluator.config import metric
from components.evaluator.importance import Estimate
from components.evaluator.intervals import Z
from components.evaluator.saved_model import Model
from components.evaluator.verdict import SliceMetrics

MEAN_LABEL = "mean label"
"""The name of the mean of the labels among the differences of metrics."""
_DRAWS = 200
_FINITE = 0.9
"""Smallest share of draws with a value, such as those with both classes, of a difference with an interval."""


class RecordedAnswers:
    """Answers of a model to some rows, and the labels of these.

    Args:
      what: the model and TFMA's config.
      batch: the rows, with the columns of label, weight and slices; a batch of components.data.examples.
      outputs: name → answers; [rows, ...].

    Raises:
      InputError: a row has no label or no weight.
    """

    def __init__(self, what: Evaluation, batch: pa.RecordBatch, outputs: Columns) -> None:
        config = what.config()
        (spec,) = config.model_specs
        self._what, self._batch = what, batch
        self.evaluated = Model(what.models[spec.name], spec, what.label_columns).evaluate(batch, outputs)
        self.weights = weights_of(batch, spec.example_weight_key) if spec.example_weight_key else None

    def slices(self) -> list[SliceMetrics]:
        """Compute the metrics of all rows and of each slice; values may be NaN."""
        of_rows, grouped = BatchCounter(self._what).count(self._batch, {"": self.evaluated})
        of_groups = [] if grouped is None else [count_groups(Metrics(self._what.config()), grouped)]
        combined = ResultsFn(self._what)
        combined.setup()
        # TFMA divides by zero where a slice has one class.
        with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
            # TFMA's messages have one reader, that of its files.
            evaluation.write(
                folder, combined.extract_output([of_rows, *of_groups]), self._what.config(), self._what.models
            )
            return tfma_results.read(folder)


def differences(
    one: RecordedAnswers,
    other: RecordedAnswers,
    units: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    eval_config: tfma.EvalConfig,
    names: Sequence[str],
    seed: int = 0,
) -> dict[str, Estimate]:
    """Compute the differences of metrics, other minus one, and that of the mean label.

    Metrics of groups are left out, those that are computed row by row, such as the user's own, and those without a
    value.

    Args:
      one: the answers of a model.
      other: those of another one.
      units: what the rows of both belong to; [rows] each.
      eval_config: TFMA's config.
      names: the metrics.
      seed: of the draws.
    """
    codes = np.unique(np.concatenate(units), return_inverse=True)[1]
    count = int(codes.max()) + 1
    config = _columnar_part(eval_config, names)
    sides = [
        (_Resampled(one, config), codes[: len(units[0])]),
        (_Resampled(other, config), codes[len(units[0]) :]),
    ]

    def difference(times: Floats) -> dict[str, float]:
        before, after = (side.values(times[of_rows]) for side, of_rows in sides)
        return {name: after[name] - before[name] for name in after if name in before}

    random, shares = np.random.default_rng(seed), np.full(count, 1 / count)
    # As in `slices`.
    with np.errstate(all="ignore"):
        found = difference(np.ones(count))
        draws = [difference(random.multinomial(count, shares).astype(float)) for _ in range(_DRAWS)]
    return {
        name: Estimate(value, _interval(value, [each.get(name, np.nan) for each in draws]))
        for name, value in found.items()
        if np.isfinite(value)
    }


def _interval(value: float, drawn: Iterable[float]) -> tuple[float, float] | None:
    finite = np.array([each for each in drawn if np.isfinite(each)])
    if len(finite) < _FINITE * _DRAWS:
        return None
    half = Z * float(finite.std(ddof=1))
    return value - half, value + half


def _columnar_part(eval_config: tfma.EvalConfig, names: Sequence[str]) -> tfma.EvalConfig:
    """Return a config of the metrics with these names that are sums over rows, without slices."""
    config = tfma.EvalConfig()
    config.CopyFrom(eval_config)
    del config.slicing_specs[:]
    for spec in config.metrics_specs:
        chosen = [each for each in spec.metrics if _name(each) in names and _is_columnar(config, each)]
        del spec.metrics[:]
        spec.metrics.extend(chosen)
    for at in reversed(range(len(config.metrics_specs))):
        if not config.metrics_specs[at].metrics:
            del config.metrics_specs[at]
    return config


def _name(each: tfma.MetricConfig) -> str:
    return str(json.loads(each.config or "{}").get("name", ""))


def _is_columnar(config: tfma.EvalConfig, each: tfma.MetricConfig) -> bool:
    alone = tfma.EvalConfig(model_specs=config.model_specs, metrics_specs=[tfma.MetricsSpec(metrics=[each])])
    found = Metrics(alone)
    return found.others is None and not found.grouped


class _Resampled:
    """The metrics of some answers, each row counted a number of times."""

    def __init__(self, answers: RecordedAnswers, config: tfma.EvalConfig) -> None:
        self._config, self._metrics, self._weights = config, Metrics(config), answers.weights
        self._labels = answers.evaluated.labels
        # The numbers of classes have no mean.
        self._has_mean = answers.evaluated.predictions.ndim == 1
        self._binned = []
        for _, each, weighted in self._metrics.columnar:
            self._binned.append((each, each.bins(self._labels, answers.evaluated.output(each.output)), weighted))

    def values(self, times: Floats) -> dict[str, float]:
        """Compute the metrics.

        Args:
          times: how often each row counts; [rows].
        """
        rows = np.flatnonzero(times)
        if not len(rows):
            return {}
        times = times[rows]
        of_rows = np.ones(len(rows)) if self._weights is None else self._weights[rows]
        weights = times * of_rows
        slices = Slices([()], np.arange(len(rows)), np.zeros(len(rows), np.int64))
        results: evaluation.Results = {}
        for each, (bins, summands), weighted in self._binned:
            table = binned_sums.count(
                (bins[rows], summands[rows]), slices, times * raised(of_rows, each.power) if weighted else times
            )
            results.update(each.result(table.of_slice(0)))
        values = dict(_scalars(evaluation.completed(results, self._metrics.parts, self._config)))
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
